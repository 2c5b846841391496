/* SPDX-License-Identifier: Apache-2.0
 *
 * Random chains of whatever links the registry finds, on random tensors: the same bits for any threads, any shards over
 * two processes, and over a kill and resume, as in one process, on one thread, in one go.
 *
 * A case is a number; a failure names it. TENON_TEST_CASE=n runs that one alone, TENON_TEST_CASES=n the first n.
 */
#include <tenon/minimizer.h>

#include "host/update/operand.h"
#include "tests/matrix.h"
#include "tests/processes.h"

#define STEPS 6
#define CASES 240
#ifdef __SANITIZE_ADDRESS__
#define CASES_RUN 60 /* four times as slow */
#else
#define CASES_RUN CASES
#endif
#define ENTRIES_MAX 512
#define KIND_MAX    64

/* ---- random choices, a function of the case ---- */

typedef struct dice {
    uint64_t number, drawn;
} dice;

static int64_t roll(dice *d, int64_t sides)
{
    uint64_t key = d->number * 0x9E3779B97F4A7C15u + ++d->drawn * 0xD1B54A32D192ED03u;
    key = (key ^ (key >> 32)) * 0xBF58476D1CE4E5B9u;
    key = (key ^ (key >> 29)) * 0x94D049BB133111EBu;
    return (int64_t)((key ^ (key >> 32)) % (uint64_t)sides);
}

/* ---- what the registry offers ---- */

enum { SOURCE, GRADIENT, RULE, UPDATE, WRITE, AFTER, MINIMIZER, STAGES };
static const char *const stage_names[STAGES] = {"source", "gradient", "rule", "update", "write", "after", "minimizer"};

typedef struct offer {
    const char *name;
    int matrix; /* 1: of whole matrices */
    int exact;  /* 0: sums rows or columns, which shards change in the last bits */
} offer;

typedef struct offers {
    offer list[STAGES][KIND_MAX];
    int64_t count[STAGES];
} offers;

static int sums_vectors(const json_t *facts)
{
    size_t i;
    json_t *round;
    int vectors = 0;
    json_array_foreach(json_object_get(facts, "rounds"), i, round)
        vectors |= !json_object_get(round, "reduce") && /* the largest numbers have no last bits to change */
                   (json_object_get(round, "rows") || json_object_get(round, "columns"));
    return vectors;
}

static void add_offer(offers *o, const char *name, const json_t *facts)
{
    const char *stage = json_string_value(json_object_get(facts, "stage"));
    const char *grain = json_string_value(json_object_get(facts, "grain"));
    for (int s = 0; s < STAGES; s++)
        if (strcmp(stage, stage_names[s]) == 0 && !(grain && strcmp(grain, "layer") == 0)) /* that one needs taps */
            o->list[s][o->count[s]++] = (offer){name, grain && strcmp(grain, "matrix") == 0, !sums_vectors(facts)};
}

static offers offered(uint32_t real)
{
    offers o = {0};
    tn_registry *registry = test_plugins();
    for (size_t i = 0; i < tn_registry_count(registry); i++) {
        const tn_entry_info *entry = tn_registry_at(registry, i);
        const tn_component_info *info;
        int minimizer = strcmp(entry->interface, TN_MINIMIZER) == 0;
        if (entry->state != TN_FOUND || (strcmp(entry->interface, TN_OPTIMIZER) != 0 && !minimizer))
            continue;
        if (strcmp(entry->device, "cpu") != 0 || entry->real != real)
            continue;
        if (minimizer) {
            o.list[MINIMIZER][o.count[MINIMIZER]++] = (offer){entry->name, 0, 0};
            continue;
        }
        ck_assert_int_eq(tn_registry_info(registry, entry, &info, NULL), TN_OK);
        add_offer(&o, entry->name, info->facts);
    }
    ck_assert(o.count[RULE] > 5 && o.count[GRADIENT] > 2 && o.count[AFTER] && o.count[SOURCE] && o.count[UPDATE] &&
              o.count[MINIMIZER]);
    return o;
}

/* ---- a case ---- */

typedef struct tensor {
    int32_t ndim, role;
    int64_t shape[2], n;
} tensor;

typedef struct choice {
    offer link;
    int source;
    uint32_t roles; /* of its selector; 0: none */
    int32_t least_axes;
} choice;

/* How state is stored; name NULL: in the real type. */
typedef struct storage {
    const char *name, *rounding;
} storage;

static const storage storages[] = {{"bf16", "nearest"},    {"bf16", "stochastic"}, {"fp16", "nearest"},
                                   {"fp16", "stochastic"}, {"blockwise8", NULL},   {"blockwise8", NULL}};

typedef struct plan {
    uint64_t number;
    uint32_t real;
    tensor tensors[6];
    int64_t tensor_count;
    choice links[WORLD_LINKS];
    size_t link_count;
    storage state;
    int minimizer, check_finite;
    int64_t bad_step, bad_tensor, bad_element; /* a gradient that is not finite; -1: none */
    int bad_again;                             /* only the second gradient is */
    int64_t absent_step, absent_tensor;        /* likewise */
    int64_t killed;                            /* the step in which the first processes die */
    int32_t processes, threads[2];             /* threads before and after */
} plan;

static int reads_again(const plan *p) { return p->links[0].link.name && p->links[0].source; }

/* Of any shape; the first has two axes and the second is a bias, so that every route leads somewhere. */
static void choose_tensor(dice *d, int64_t index, tensor *t)
{
    static const int64_t shapes[][2] = {{0, 0},  {1, 0},   {7, 0},    {4096, 0},  {4097, 0},
                                        {31, 0}, {3, 5},   {64, 128}, {130, 97},  {97, 12},
                                        {1, 40}, {300, 7}, {9000, 0}, {70001, 0}, {20, 1000}};
    const int64_t *shape;
    do
        shape = shapes[roll(d, (int64_t)(sizeof shapes / sizeof *shapes))];
    while ((index == 0 && !shape[1]) || (index == 1 && shape[1]));
    t->ndim = shape[1] ? 2 : 1;
    memcpy(t->shape, shape, sizeof t->shape);
    t->n = shape[1] ? shape[0] * shape[1] : shape[0];
    t->role = t->ndim == 2 ? TN_ROLE_WEIGHT : index == 1 || roll(d, 2) ? TN_ROLE_BIAS : TN_ROLE_NORM;
}

static int is_in(const plan *p, const char *name)
{
    for (size_t i = 0; i < p->link_count; i++)
        if (strcmp(p->links[i].link.name, name) == 0)
            return 1;
    return 0;
}

static void choose_link(dice *d, const offers *o, int stage, plan *p)
{
    const offer *link = &o->list[stage][roll(d, o->count[stage])];
    for (int rare = stage == RULE && !roll(d, 6); rare && !link->matrix;) /* few of many rules */
        link = &o->list[stage][roll(d, o->count[stage])];
    if (p->link_count < WORLD_LINKS && !is_in(p, link->name))
        p->links[p->link_count++] =
            (choice){*link, stage == SOURCE, stage == RULE || roll(d, 4) ? 0 : 1u << TN_ROLE_BIAS, 0};
}

/* One rule for all, or two: of whole matrices on what has two axes, of others on biases. */
static void choose_rules(dice *d, const offers *o, plan *p)
{
    choose_link(d, o, RULE, p);
    choice *first = &p->links[p->link_count - 1];
    size_t before = p->link_count;
    if (!first->link.matrix && roll(d, 2))
        return;
    first->least_axes = first->link.matrix ? 2 : 0;
    first->roles = first->link.matrix ? 0 : 1u << TN_ROLE_BIAS;
    while (p->link_count == before) {
        choose_link(d, o, RULE, p);
        if (p->link_count > before && p->links[before].link.matrix)
            p->link_count = before;
    }
}

/* A rule that does the whole step, and perhaps an average behind it: of one process, in the real type, not too long. */
static void choose_minimizer(dice *d, const offers *o, plan *p)
{
    choose_link(d, o, MINIMIZER, p);
    p->links[0].roles = 0;
    if (roll(d, 2)) {
        choose_link(d, o, AFTER, p);
        p->links[1].roles = 0;
    }
    p->tensor_count = 2;
    for (int64_t i = 0; i < p->tensor_count; i++)
        while (p->tensors[i].n > 10000)
            choose_tensor(d, i, &p->tensors[i]);
    p->minimizer = p->processes = 1;
    p->state.name = NULL;
    p->absent_step = -1;
}

/* Often in the slice of one process only; a second gradient may be bad where the first is not. */
static void choose_bad(dice *d, plan *p)
{
    p->bad_step = roll(d, STEPS);
    p->bad_tensor = roll(d, p->tensor_count);
    p->bad_element = p->tensors[p->bad_tensor].n ? roll(d, p->tensors[p->bad_tensor].n) : 0;
    p->bad_again = reads_again(p) && roll(d, 2);
}

/* Few links, so that the vote is all that tells one process of another's gradient. */
static void choose_bare(dice *d, const offers *o, plan *p)
{
    if (roll(d, 3) == 0)
        choose_link(d, o, SOURCE, p);
    choose_rules(d, o, p);
}

static void choose_links(dice *d, const offers *o, plan *p)
{
    if (roll(d, 4) == 0)
        choose_link(d, o, SOURCE, p);
    if (roll(d, 2))
        choose_link(d, o, GRADIENT, p);
    if (roll(d, 3) == 0)
        choose_link(d, o, GRADIENT, p);
    choose_rules(d, o, p);
    if (roll(d, 3) == 0)
        choose_link(d, o, UPDATE, p);
    if (roll(d, 4) == 0)
        choose_link(d, o, WRITE, p);
    else if (roll(d, 2))
        choose_link(d, o, AFTER, p);
}

static plan choose(uint64_t number)
{
    dice d = {number, 0};
    plan p = {.number = number, .bad_step = -1, .absent_step = -1};
    p.real = roll(&d, 3) ? 32 : 64;
    offers o = offered(p.real);
    p.tensor_count = 2 + roll(&d, 5);
    for (int64_t i = 0; i < p.tensor_count; i++)
        choose_tensor(&d, i, &p.tensors[i]);
    p.processes = 1 + (roll(&d, 3) > 0);
    if (roll(&d, 2))
        p.state = storages[roll(&d, (int64_t)(sizeof storages / sizeof *storages))];
    if (roll(&d, 2)) {
        p.absent_step = roll(&d, STEPS);
        p.absent_tensor = roll(&d, p.tensor_count);
    }
    int64_t kind = roll(&d, 10);
    (kind == 0 ? choose_minimizer : kind < 4 ? choose_bare : choose_links)(&d, &o, &p);
    for (size_t i = 0; i < p.link_count && !p.minimizer; i++)
        p.processes = p.links[i].link.exact ? p.processes : 1;
    if (roll(&d, 4))
        choose_bad(&d, &p);
    p.check_finite = roll(&d, 2) > 0;
    p.killed = roll(&d, STEPS);
    for (int i = 0; i < 2; i++)
        p.threads[i] = 1 + (int32_t)roll(&d, 3);
    return p;
}

static void describe(const plan *p, char *text, size_t size)
{
    size_t at = (size_t)snprintf(
        text, size, "case %d, f%u, state %s, %d processes, threads %d and %d, killed at %d:", (int)p->number, p->real,
        p->state.name ? p->state.name : "plain", p->processes, p->threads[0], p->threads[1], (int)p->killed);
    for (size_t i = 0; i < p->link_count && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, " %s%s", p->links[i].link.name,
                               p->links[i].roles || p->links[i].least_axes ? " (routed)" : "");
    for (int64_t i = 0; i < p->tensor_count && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, " [%d%s", (int)p->tensors[i].shape[0],
                               p->tensors[i].ndim == 2 ? ",...]" : "]");
}

/* ---- everything that is saved, whole, by name ---- */

typedef struct entry {
    char key[120];
    int64_t offset, bytes;
} entry;

typedef struct store {
    entry entries[ENTRIES_MAX];
    int64_t count, end;
    unsigned char bytes[];
} store;

#define STORE_BYTES ((size_t)48 << 20)

static unsigned char *stored(store *s, const char *key, int64_t bytes)
{
    int64_t i = 0;
    while (i < s->count && strcmp(s->entries[i].key, key) != 0)
        i++;
    entry *e = &s->entries[i];
    if (i == s->count) {
        ck_assert_int_lt(i, ENTRIES_MAX);
        snprintf(e->key, sizeof e->key, "%s", key);
        e->offset = s->end;
        e->bytes = bytes;
        s->end += (bytes + 63) / 64 * 64;
        s->count++;
        ck_assert_uint_le(sizeof *s + (size_t)s->end, STORE_BYTES);
    }
    ck_assert_msg(e->bytes == bytes, "%s: %d bytes, %d before", key, (int)bytes, (int)e->bytes);
    return s->bytes + e->offset;
}

/* ---- one process's part of a case ---- */

typedef struct part {
    const plan *plan;
    world *world;
    products products;
    tn_signals signals;
    tn_instance *codec; /* of the state; NULL: none */
    tn_codec table;
    int64_t step;
} part;

static double element(const tn_parameters *all, int64_t i, int64_t at)
{
    const void *p = all->p;
    return all->real == 32 ? (double)((const float *)p)[all->at[i] + at] : ((const double *)p)[all->at[i] + at];
}

/* A minimizer's Hessian is a diagonal of 1, 2 and 3; other rules have 1. */
static double curvature(const part *a, int64_t at) { return a->plan->minimizer ? (double)(1 + at % 3) : 1; }

static int is_bad(const part *a, int64_t tensor, int second)
{
    const plan *p = a->plan;
    return a->step == p->bad_step && tensor == p->bad_tensor && (second || !p->bad_again);
}

#define SCALE 0.5

/* Of the sum of c/2 (p - target)^2, the target with noise of the step: a function of each element alone. The loss is
 * that of the gradient as it is read, SCALE times what lies in g. */
static double gradients(part *a, int second)
{
    world *w = a->world;
    double loss = 0;
    for (int64_t i = 0; i < w->parameters.count; i++) {
        w->present[i] = !(a->step == a->plan->absent_step && i == a->plan->absent_tensor);
        for (int64_t j = 0; j < w->list[i].n; j++) {
            int64_t at = w->list[i].lo + j;
            double off = element(&w->parameters, i, j) - world_noise(i, at, 7) +
                         0.2 * world_noise(i, at, 100 + (uint64_t)a->step);
            loss += SCALE * curvature(a, at) / 2 * off * off;
            world_put(w, w->parameters.g, i, j,
                      is_bad(a, i, second) && at == a->plan->bad_element ? NAN : curvature(a, at) * off);
        }
    }
    return loss;
}

static int32_t again(void *user, double *ret_loss, tn_error *err)
{
    (void)err;
    *ret_loss = gradients(user, 1);
    return TN_OK;
}

static int32_t product(void *user, const void *v, void *ret, tn_error *err)
{
    const part *a = user;
    const world *w = a->world;
    (void)err;
    for (int64_t i = 0; i < w->parameters.count; i++)
        for (int64_t j = 0; j < w->list[i].n; j++)
            world_put(w, ret, i, j, SCALE * curvature(a, j) * world_get(w, v, i, j));
    return TN_OK;
}

/* A cut on a chunk, anywhere in the tensor. */
static int64_t cut(const plan *p, int64_t i, int64_t phase)
{
    dice d = {p->number * 1000 + (uint64_t)(i * 2 + phase), 0};
    int64_t n = p->tensors[i].n, at = roll(&d, (n + TN_CHUNK - 1) / TN_CHUNK + 1) * TN_CHUNK;
    return at < n ? at : n;
}

static void add_tensors(part *a, tn_comm *comm, int64_t phase)
{
    for (int64_t i = 0; i < a->plan->tensor_count; i++) {
        const tensor *t = &a->plan->tensors[i];
        int64_t at = tn_comm_size(comm) > 1 ? cut(a->plan, i, phase) : t->n;
        int64_t lo = tn_comm_rank(comm) ? at : 0, end = tn_comm_rank(comm) ? t->n : at;
        world_slice(a->world, t->ndim, t->shape, end > lo ? lo : 0, end - lo);
        a->world->list[i].role = t->role;
    }
}

static void add_links(part *a)
{
    world *w = a->world;
    for (size_t i = 0; i < a->plan->link_count; i++) {
        const choice *c = &a->plan->links[i];
        world_link(w, c->link.name);
        if (!c->roles && !c->least_axes)
            continue;
        tn_selector *on = tn_alloc(1, sizeof *on);
        ck_assert_ptr_nonnull(on);
        on->roles = c->roles;
        on->least_axes = c->least_axes;
        on->most_axes = c->least_axes ? TN_MAX_DIMS : 0;
        w->links[i]->on = on;
    }
}

static void open_state(part *a)
{
    const storage *state = &a->plan->state;
    const tn_setting setting = {"rounding", state->rounding};
    tn_error err;
    if (!state->name)
        return;
    ck_ok(tn_instance_create(test_plugins(), "codec", state->name, a->plan->real, "precision.state", &setting,
                             state->rounding != NULL, &a->codec, &err),
          err);
    ck_ok(tn_codec_open(test_plugins(), a->codec, &a->table, &a->world->state, &err), err);
}

static void part_open(part *a, const plan *p, tn_comm *comm, int32_t threads, int64_t phase)
{
    *a = (part){.plan = p, .world = world_new(p->real, threads)};
    add_tensors(a, comm, phase);
    world_arenas(a->world);
    world_fill(a->world, a->world->parameters.p, 1);
    add_links(a);
    products_open(&a->products, a->world->pool);
    a->signals = (tn_signals){.user = a, .gradient = again, .product = product};
    a->world->compute = &a->products.host;
    a->world->signals = &a->signals;
    a->world->check_finite = p->check_finite;
    a->world->comm = comm;
    a->world->seed = 3;
    open_state(a);
    world_chain(a->world);
}

static void part_close(part *a)
{
    tn_instance_free(a->products.library);
    world_free(a->world);
    tn_instance_free(a->codec);
}

/* 1: committed. */
static int part_step(part *a)
{
    world *w = a->world;
    double loss = gradients(a, 0);
    ck_ok(tn_chain_step(w->chain, &(tn_step){.scale = SCALE, .loss = loss, .attempt = a->step}, &w->result, &w->err),
          w->err);
    a->step++;
    return w->result.committed;
}

/* Copies between a slice and its place in the store; `save` says which way. */
static void move(store *s, const char *key, void *data, int64_t lo, int64_t bytes, int64_t whole, int save)
{
    unsigned char *at = stored(s, key, whole) + lo;
    if (save)
        memcpy(at, data, (size_t)bytes);
    else
        memcpy(data, at, (size_t)bytes);
}

/* A slot behind a codec: its payload, and the scales of its blocks; slices begin on both. */
static void move_coded(part *a, const char *key, const tn_chain_slot *slot, store *s, int save)
{
    const tn_parameter *p = &a->world->list[slot->parameter];
    const tn_codec *codec = &a->table;
    uint32_t real = a->plan->real;
    int64_t n = a->plan->tensors[slot->parameter].n, whole = tn_codec_bytes(codec, real, n);
    int64_t scales = tn_codec_extra(codec, p->n), payload = tn_codec_payload(codec, real, p->n);
    ck_assert_int_eq(slot->bytes, tn_codec_bytes(codec, real, p->n));
    move(s, key, slot->data, tn_codec_payload(codec, real, p->lo), payload, whole, save);
    int64_t gap = tn_codec_payload(codec, real, n), end = whole - tn_codec_extra(codec, n);
    if (save) /* what lies between payload and scales is nobody's */
        memset(stored(s, key, whole) + gap, 0, (size_t)(end - gap));
    if (scales)
        move(s, key, (char *)slot->data + slot->bytes - scales,
             whole - tn_codec_extra(codec, n) + tn_codec_extra(codec, p->lo), scales, whole, save);
}

static void move_slot(part *a, const tn_chain_slot *slot, store *s, int first, int save)
{
    const tn_parameter *p = slot->parameter < 0 ? NULL : &a->world->list[slot->parameter];
    char key[120];
    snprintf(key, sizeof key, "%s.%s.%s", slot->link, slot->slot, p ? p->name : "");
    int64_t size = slot->bits / 8;
    if (strcmp(slot->shape, "like") == 0 && a->codec && slot->bits == a->table.bits)
        move_coded(a, key, slot, s, save);
    else if (strcmp(slot->shape, "like") == 0)
        move(s, key, slot->data, p->lo * size, p->n * size, a->plan->tensors[slot->parameter].n * size, save);
    else if (first || !save)
        move(s, key, slot->data, 0, slot->bytes, slot->bytes, save);
}

static void part_move(part *a, store *s, int first, int save)
{
    int64_t real = a->plan->real / 8;
    tn_chain *chain = a->world->chain;
    for (int64_t i = 0; i < a->plan->tensor_count; i++)
        move(s, a->world->names[i], (char *)a->world->parameters.p + a->world->at[i] * real,
             a->world->list[i].lo * real, a->world->list[i].n * real, a->plan->tensors[i].n * real, save);
    for (size_t j = 0; j < tn_chain_slot_count(chain); j++) {
        tn_chain_slot slot;
        tn_chain_slot_at(chain, j, &slot);
        if (slot.persistent)
            move_slot(a, &slot, s, first, save);
    }
    if (first || !save) {
        move(s, "clocks", tn_chain_clocks(chain), 0, 8 * a->plan->tensor_count, 8 * a->plan->tensor_count, save);
        move(s, "update", tn_chain_update(chain), 0, 8, 8, save);
    }
}

/* ---- the run that is killed, and the one that goes on ---- */

typedef struct run {
    plan *plan;
    store *saved; /* shared; two of them: a save that a kill interrupts leaves the other whole */
    int64_t *done;
    int64_t phase;
    int committed[STEPS]; /* by the plain run */
} run;

static store *slot_of(const run *r, int64_t step)
{
    return (store *)((char *)r->saved + (size_t)(step % 2) * STORE_BYTES);
}

static void meet(tn_comm *comm)
{
    tn_error err = {0};
    ck_ok(tn_comm_barrier(comm, &err), err);
}

static void go(tn_comm *comm, void *arg)
{
    const run *r = arg;
    part a;
    int first = tn_comm_rank(comm) == 0;
    part_open(&a, r->plan, comm, r->plan->threads[r->phase], r->phase);
    if (r->phase && *r->done > 0)
        part_move(&a, slot_of(r, *r->done), first, 0);
    a.step = *r->done;
    while (a.step < STEPS) {
        int64_t step = a.step;
        int committed = part_step(&a);
        ck_assert_msg(committed == r->committed[step], "step %d: committed %d", (int)step, committed);
        if (!r->phase && a.step > r->plan->killed) /* its work is lost */
            raise(SIGKILL);
        part_move(&a, slot_of(r, a.step), first, 1);
        meet(comm);
        if (first)
            *r->done = a.step;
        meet(comm);
    }
    part_close(&a);
}

static int differs(const store *a, const store *b, const char **ret_key)
{
    for (int64_t i = 0; i < a->count; i++)
        for (int64_t j = 0; j < b->count; j++)
            if (strcmp(a->entries[i].key, b->entries[j].key) == 0 &&
                memcmp(a->bytes + a->entries[i].offset, b->bytes + b->entries[j].offset, (size_t)a->entries[i].bytes) !=
                    0) {
                *ret_key = a->entries[i].key;
                return 1;
            }
    *ret_key = "the list of what is saved";
    return a->count != b->count;
}

/* A bad gradient is skipped; without the check of all gradients only where a link reads it. Nothing else is, but that a
 * minimizer may find no step. */
static int skips_right(const run *r, const part *a, int64_t step)
{
    const plan *p = r->plan;
    int bad = step == p->bad_step && p->tensors[p->bad_tensor].n > 0 && a->world->present[p->bad_tensor];
    return bad ? !r->committed[step] : r->committed[step] || a->world->result.rejected;
}

/* The plan's steps; 0 where one of them is wrong. */
static int plain_steps(part *a, run *r)
{
    int right = 1;
    while (a->step < STEPS) {
        int64_t step = a->step;
        r->committed[step] = part_step(a);
        right &= skips_right(r, a, step);
    }
    return right;
}

/* One process, one thread, in one go; also lays out the stores, which processes then only fill. A plan whose links let
 * a bad gradient pass is changed to one that has all read. */
static store *reference(run *r)
{
    part a;
    part_open(&a, r->plan, NULL, 1, 0);
    if (!plain_steps(&a, r)) {
        ck_assert_int_eq(r->plan->check_finite, 0);
        part_close(&a);
        r->plan->check_finite = 1;
        return reference(r);
    }
    store *plain = slot_of(r, 0);
    part_move(&a, plain, 1, 1);
    part_close(&a);
    size_t bytes = sizeof *plain + (size_t)plain->end;
    plain = malloc(bytes);
    ck_assert_ptr_nonnull(plain);
    memcpy(plain, slot_of(r, 0), bytes);
    memset(slot_of(r, 0)->bytes, 0xA5, (size_t)plain->end);
    memcpy(slot_of(r, 1), slot_of(r, 0), bytes);
    return plain;
}

static void check_case(uint64_t number)
{
    plan p = choose(number);
    char text[512];
    const char *key;
    describe(&p, text, sizeof text);
    run r = {.plan = &p, .saved = processes_shared(2 * STORE_BYTES), .done = processes_shared(4096)};
    store *plain = reference(&r);
    processes_run_killed(p.processes, go, &r);
    ck_assert_msg(*r.done == p.killed, "%s: %d steps were saved", text, (int)*r.done);
    r.phase = 1;
    processes_run(p.processes, go, &r);
    ck_assert_msg(*r.done == STEPS, "%s: ended at %d", text, (int)*r.done);
    ck_assert_msg(!differs(plain, slot_of(&r, STEPS), &key), "%s: %s differs from the plain run", text, key);
    free(plain);
    munmap(r.saved, 2 * STORE_BYTES);
    munmap(r.done, 4096);
}

static int is_split(const plan *p)
{
    int split = 0;
    for (int64_t i = 0; i < p->tensor_count && p->processes == 2; i++)
        for (int64_t phase = 0; phase < 2; phase++)
            split |= cut(p, i, phase) > 0 && cut(p, i, phase) < p->tensors[i].n;
    return split;
}

START_TEST(the_cases_reach_what_they_are_for)
{
    int split = 0, skipped = 0, routed = 0, matrices = 0, coded = 0, minimizers = 0, apart = 0, second = 0;
    for (uint64_t number = 0; number < CASES; number++) {
        plan p = choose(number);
        split += is_split(&p);
        skipped += p.bad_step >= 0;
        minimizers += p.minimizer;
        coded += is_split(&p) && p.state.name;
        apart += p.processes == 2 && p.bad_step >= 0 && p.link_count == 1;
        second += p.processes == 2 && p.bad_step >= 0 && p.bad_again;
        for (size_t i = 0; i < p.link_count; i++) {
            routed += p.links[i].roles != 0;
            matrices += p.links[i].link.matrix && p.processes == 2;
        }
    }
    ck_assert_msg(split > 60 && skipped > 100 && routed > 20 && matrices > 5, "%d %d %d %d", split, skipped, routed,
                  matrices);
    ck_assert_msg(coded > 20 && minimizers > 10 && apart > 5 && second > 5, "%d %d %d %d", coded, minimizers, apart,
                  second);
}
END_TEST

static int case_count(void)
{
    const char *count = getenv("TENON_TEST_CASES");
    return getenv("TENON_TEST_CASE") ? 1 : count ? atoi(count) : CASES_RUN;
}

START_TEST(any_way_of_running_gives_the_same_bits)
{
    const char *one = getenv("TENON_TEST_CASE");
    check_case(one ? (uint64_t)atoll(one) : (uint64_t)_i);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("random_chains");
    TCase *tests = tcase_create("random");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, any_way_of_running_gives_the_same_bits, 0, case_count());
    tcase_add_test(tests, the_cases_reach_what_they_are_for);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
