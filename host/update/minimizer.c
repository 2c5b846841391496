/* SPDX-License-Identifier: Apache-2.0
 *
 * minimizer.c: a coroutine as the rule of a chain. It asks, the host computes over chunks and asks the signals; until
 * it ends the step. What is computed for a chunk depends on that chunk only, and sums over chunks are exact.
 */
#include "host/update/minimizer.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/base/philox.h"
#include "host/base/take.h"
#include "host/update/internal.h"

#define VECTORS_MAX 1024
#define MEMORY_MAX  (1 << 24) /* f64 */

/* One planned slot: an arena in the parameters' layout. */
typedef struct vector {
    char *name, *init;
    int32_t persistent;
    void *block; /* what to free */
    char *data;
} vector;

struct tn_minimizer_link {
    tn_chain_options options;
    const tn_parameters *parameters;
    const tn_instance *instance;
    tn_minimizer table;
    tn_context context;
    size_t real; /* bytes of the real type */
    int64_t elements;

    vector *vectors;
    size_t vector_capacity;
    int32_t vector_count;
    int64_t memory_count;
    double *memory, *memory_before; /* before: of the step's begin */
    char *backup;                   /* p of the step's begin, where `moved` */

    tn_cut *cuts;
    int64_t item_count;
    tn_exact *sums;  /* [threads][TN_ASK_MAX] */
    int32_t *flawed; /* [threads]: found a number that is not finite */

    double scale; /* of one step */
    int32_t moved, rejected;
    double answers[TN_ASK_MAX];
    tn_ask ask;
};

int tn_is_minimizer(const tn_instance *instance) { return strcmp(instance->info->interface, TN_MINIMIZER) == 0; }

static int32_t no_memory(const tn_minimizer_link *m, tn_error *err)
{
    return tn_error_set(err, TN_E_MEMORY, "%s: no memory for its state", m->instance->path);
}

static int32_t bad_plugin(const tn_minimizer_link *m, const char *what, tn_error *err)
{
    return tn_error_set(err, TN_E_PLUGIN, "%s: %s; correct the plugin", m->instance->path, what);
}

/* ---- what it can be used with ---- */

static int32_t not_yet(const tn_minimizer_link *m, const char *what, tn_error *err)
{
    return tn_error_set(err, TN_E_UNSUPPORTED, "%s: %s %s not driven with %s yet; use another rule, such as adamw",
                        m->instance->path, what, what[strlen(what) - 1] == 's' ? "are" : "is", m->instance->info->name);
}

static int32_t check_parameters(const tn_minimizer_link *m, tn_error *err)
{
    for (int64_t i = 0; i < m->parameters->count; i++) {
        const tn_parameter *parameter = &m->parameters->list[i];
        int64_t whole = 1;
        for (int32_t j = 0; j < parameter->ndim; j++)
            whole *= parameter->shape[j];
        if (parameter->n != whole)
            return not_yet(m, "sharded parameters", err);
    }
    return TN_OK;
}

static int32_t check_use(const tn_minimizer_link *m, tn_error *err)
{
    const tn_chain_options *o = &m->options;
    const tn_component_info *info = m->instance->info;
    if (info->real && info->real != o->parameters->real)
        return tn_error_set(err, TN_E_INVALID, "%s: compiled for %u-bit reals, the parameters have %u bits",
                            m->instance->path, info->real, o->parameters->real);
    if (m->instance->on)
        return tn_error_set(err, TN_E_INVALID, "%s: works on all parameters at once; remove its `on:`",
                            m->instance->path);
    if (o->p.table || o->g.table || o->state.table)
        return not_yet(m, "storage in another type", err);
    if (o->parameters->p_of || o->parameters->g_of)
        return not_yet(m, "scattered arrays", err);
    if (!o->signals || !o->signals->gradient || (m->table.products && !o->signals->product))
        return tn_error_set(err, TN_E_UNSUPPORTED,
                            "%s: needs %s during a step, which is not offered here; use another rule, such as adamw",
                            m->instance->path, m->table.products ? "Hessian products" : "further gradients");
    return check_parameters(m, err);
}

/* ---- the plan ---- */

typedef struct planning {
    tn_minimizer_link *link;
    int32_t compare; /* 1: look whether the plan is still the same */
    int32_t count;   /* slots so far */
    int32_t status;  /* of the first call that failed: the plugin may not pass it on */
    tn_error *err;
} planning;

static int32_t check_slot(const planning *p, const tn_slot *slot, int32_t flags)
{
    if (!tn_slot_named(slot->name))
        return bad_plugin(p->link,
                          "it plans a slot without a name, or with one of other characters than letters, digits and "
                          "- _ .",
                          p->err);
    if (!slot->init || !tn_slot_init(slot->init))
        return bad_plugin(p->link, "a slot has an init other than zero, one, parameter", p->err);
    if (slot->shape && strcmp(slot->shape, "like") != 0)
        return bad_plugin(p->link, "a slot has another shape than \"like\"", p->err);
    if (flags < 0 || flags & TN_SLOT_TAPPED)
        return bad_plugin(p->link, "a slot has a flag that this host does not know", p->err);
    if (p->link->vector_count == VECTORS_MAX)
        return bad_plugin(p->link, "it plans more than 1024 slots", p->err);
    for (int32_t i = 0; i < p->link->vector_count; i++)
        if (strcmp(p->link->vectors[i].name, slot->name) == 0)
            return bad_plugin(p->link, "it plans two slots of one name", p->err);
    return TN_OK;
}

static int32_t add_slot(const planning *p, const tn_slot *slot)
{
    tn_minimizer_link *m = p->link;
    int32_t flags = tn_slot_flags(slot->flags), status = check_slot(p, slot, flags);
    if (status)
        return status;
    if (tn_grow(&m->vectors, &m->vector_capacity, (size_t)m->vector_count, sizeof *m->vectors))
        return no_memory(m, p->err);
    vector *v = &m->vectors[m->vector_count++];
    *v = (vector){
        .name = tn_strdup(slot->name), .init = tn_strdup(slot->init), .persistent = !(flags & TN_SLOT_TRANSIENT)};
    return v->name && v->init ? TN_OK : no_memory(m, p->err);
}

static int32_t changed_plan(const planning *p, const char *what)
{
    return tn_error_set(p->err, TN_E_INVALID,
                        "%s would need the state '%s', which it does not start with; give the row a value in the "
                        "experiment under which it does",
                        p->link->instance->path, what);
}

static int32_t plan_slot(void *host, const tn_slot *slot)
{
    planning *p = host;
    tn_slot taken;
    if (!p->status && !slot)
        p->status = bad_plugin(p->link, "it plans a slot that is NULL", p->err);
    if (p->status)
        return p->status;
    tn_take(&taken, sizeof taken, slot);
    if (!p->compare)
        p->status = add_slot(p, &taken);
    else if (!taken.name || p->count >= p->link->vector_count ||
             strcmp(p->link->vectors[p->count].name, taken.name) != 0)
        p->status = changed_plan(p, taken.name ? taken.name : "(no name)");
    p->count++;
    return p->status;
}

static int32_t plan_memory(void *host, int64_t count)
{
    planning *p = host;
    if (!p->status && p->compare && count > p->link->memory_count)
        p->status = changed_plan(p, "(more memory)");
    if (!p->status && (count < 0 || count > MEMORY_MAX))
        p->status = bad_plugin(p->link, "it plans memory outside 0 to 2^24 numbers", p->err);
    if (!p->status && !p->compare && count > p->link->memory_count)
        p->link->memory_count = count;
    return p->status;
}

static int32_t plan(tn_minimizer_link *m, int32_t compare, tn_error *err)
{
    tn_error own = {0};
    planning p = {.link = m, .compare = compare, .err = &own};
    const tn_minimizer_planner planner = {sizeof planner, 0, &p, plan_slot, plan_memory};
    int32_t status = m->table.plan(m->instance->hyper, &planner, &own);
    status = p.status ? p.status : status;
    return status ? tn_error_set(err, status, "%s: plan: %s", m->instance->path,
                                 own.msg[0] ? own.msg : "failed without a message")
                  : TN_OK;
}

int32_t tn_minimizer_check_plan(const tn_minimizer_link *link, tn_error *err)
{
    return plan((tn_minimizer_link *)link, 1, err);
}

/* ---- memory ---- */

static size_t arena_bytes(const tn_minimizer_link *m) { return (size_t)m->parameters->elements * m->real; }

/* Arenas of one size would begin on the same cache sets: each begins some lines later than the one before. */
#define STAGGER       (17 * 64)
#define STAGGER_COUNT 16

static int32_t make_vector(const tn_minimizer_link *m, int32_t index, tn_error *err)
{
    vector *v = &m->vectors[index];
    if (!(v->block = tn_alloc_aligned(arena_bytes(m) + STAGGER_COUNT * STAGGER)))
        return no_memory(m, err);
    v->data = (char *)v->block + (index % STAGGER_COUNT) * STAGGER;
    if (strcmp(v->init, "parameter") == 0)
        memcpy(v->data, m->parameters->p, arena_bytes(m));
    for (int64_t i = 0; strcmp(v->init, "one") == 0 && i < m->parameters->elements; i++)
        if (m->parameters->real == 32)
            ((float *)v->data)[i] = 1;
        else
            ((double *)v->data)[i] = 1;
    return TN_OK;
}

static int32_t allocate(tn_minimizer_link *m, tn_error *err)
{
    size_t threads = (size_t)tn_pool_threads(m->options.pool), count = (size_t)m->memory_count + 1;
    int32_t status = TN_OK;
    m->memory = tn_alloc(count, sizeof *m->memory);
    m->memory_before = tn_alloc(count, sizeof *m->memory);
    m->backup = tn_alloc_aligned(arena_bytes(m) + 64);
    m->sums = tn_alloc_aligned(threads * TN_ASK_MAX * sizeof *m->sums);
    m->flawed = tn_alloc(threads, sizeof *m->flawed);
    if (!m->memory || !m->memory_before || !m->backup || !m->sums || !m->flawed)
        return no_memory(m, err);
    for (int32_t i = 0; i < m->vector_count && !status; i++)
        status = make_vector(m, i, err);
    return status ? status : tn_layout_cut(m->parameters, TN_CHAIN_STRETCH, &m->cuts, &m->item_count, err);
}

static int32_t load(tn_minimizer_link *m, tn_error *err)
{
    int32_t status = tn_registry_load(m->options.registry, m->instance->entry, &m->table, sizeof m->table, err);
    if (status)
        return status;
    if (!m->table.plan || !m->table.advance)
        return bad_plugin(m, "its table lacks plan or advance", err);
    return TN_OK;
}

int32_t tn_minimizer_open(const tn_chain_options *options, const tn_instance *instance, tn_minimizer_link **ret,
                          tn_error *err)
{
    tn_minimizer_link *m = tn_alloc(1, sizeof *m);
    if (!m)
        return tn_error_set(err, TN_E_MEMORY, "%s: no memory", instance->path);
    m->options = *options;
    m->parameters = options->parameters;
    m->instance = instance;
    m->real = options->parameters->real / 8;
    m->context = (tn_context){.struct_size = sizeof m->context,
                              .key = tn_hash_key(options->seed, instance->path, "update"),
                              .services = options->services};
    for (int64_t i = 0; i < m->parameters->count; i++)
        m->elements += m->parameters->list[i].n;
    int32_t status = load(m, err);
    if (!status)
        status = check_use(m, err);
    if (!status)
        status = plan(m, 0, err);
    if (!status)
        status = allocate(m, err);
    if (status)
        tn_minimizer_close(m);
    else
        *ret = m;
    return status;
}

void tn_minimizer_close(tn_minimizer_link *link)
{
    if (!link)
        return;
    for (int32_t i = 0; i < link->vector_count; i++) {
        tn_free(link->vectors[i].name);
        tn_free(link->vectors[i].init);
        tn_free(link->vectors[i].block);
    }
    void *const owned[] = {link->vectors, link->memory, link->memory_before, link->backup,
                           link->cuts,    link->sums,   link->flawed,        link};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        tn_free(owned[i]);
}

/* ---- passes over the elements, in chunks ---- */

typedef struct pass pass;
struct pass {
    tn_minimizer_link *link;
    void (*work)(const pass *pass, int64_t at, int64_t n, int32_t thread); /* elements of the arenas */
};

static void do_item(void *arg, int64_t index, int32_t thread)
{
    const pass *p = arg;
    const tn_parameters *all = p->link->parameters;
    const tn_cut *from = &p->link->cuts[index], *to = from + 1;
    for (int64_t i = from->parameter; i < all->count && i <= to->parameter; i++) {
        int64_t at = i == from->parameter ? from->at : 0, end = i == to->parameter ? to->at : all->list[i].n;
        for (int64_t n; at < end; at += n) {
            n = end - at < TN_CHUNK ? end - at : TN_CHUNK;
            p->work(p, all->at[i] + at, n, thread);
        }
    }
}

static void over_chunks(tn_minimizer_link *m, void (*work)(const pass *, int64_t, int64_t, int32_t))
{
    pass p = {m, work};
    tn_pool_run(m->options.pool, do_item, &p, m->item_count);
}

static char *vector_at(const tn_minimizer_link *m, int32_t index, int64_t at)
{
    char *base = index == TN_VECTOR_P   ? m->parameters->p
                 : index == TN_VECTOR_G ? m->parameters->g
                                        : m->vectors[index - TN_VECTOR_FIRST].data;
    return base + (size_t)at * m->real;
}

/* g holds the gradient but for the step's scale. */
static double scale_of(const tn_minimizer_link *m, int32_t index) { return index == TN_VECTOR_G ? m->scale : 1; }

/* `lanes` partial sums in an order of their own; a block in double, so that a sum of many vectors rounds once. */
#define LANES 32
#define KERNELS(type)                                                                                                  \
    static double dot_##type(const type *a, const type *b, int64_t n)                                                  \
    {                                                                                                                  \
        double lanes[LANES] = {0};                                                                                     \
        int64_t i = 0;                                                                                                 \
        for (; i + LANES <= n; i += LANES)                                                                             \
            for (int j = 0; j < LANES; j++)                                                                            \
                lanes[j] += (double)a[i + j] * (double)b[i + j];                                                       \
        for (int j = 0; i + j < n; j++)                                                                                \
            lanes[j] += (double)a[i + j] * (double)b[i + j];                                                           \
        for (int width = LANES / 2; width; width /= 2)                                                                 \
            for (int j = 0; j < width; j++)                                                                            \
                lanes[j] += lanes[j + width];                                                                          \
        return lanes[0];                                                                                               \
    }                                                                                                                  \
    static void set_##type(double *restrict sum, double factor, const type *restrict a, int64_t n)                     \
    {                                                                                                                  \
        for (int64_t i = 0; i < n; i++)                                                                                \
            sum[i] = factor * (double)a[i];                                                                            \
    }                                                                                                                  \
    static void add_##type(double *restrict sum, double factor, const type *restrict a, int64_t n)                     \
    {                                                                                                                  \
        for (int64_t i = 0; i < n; i++)                                                                                \
            sum[i] += factor * (double)a[i];                                                                           \
    }                                                                                                                  \
    static void put_##type(type *restrict to, const double *restrict sum, int64_t n)                                   \
    {                                                                                                                  \
        for (int64_t i = 0; i < n; i++)                                                                                \
            to[i] = (type)sum[i];                                                                                      \
    }
KERNELS(float)
KERNELS(double)

static void dots_of(const pass *p, int64_t at, int64_t n, int32_t thread)
{
    const tn_minimizer_link *m = p->link;
    tn_exact *sums = m->sums + (size_t)thread * TN_ASK_MAX;
    for (int32_t i = 0; i < m->ask.count; i++) {
        const void *a = vector_at(m, m->ask.a[i], at), *b = vector_at(m, m->ask.b[i], at);
        tn_exact_add(&sums[i], m->parameters->real == 32 ? dot_float(a, b, n) : dot_double(a, b, n));
    }
}

static void dots(tn_minimizer_link *m)
{
    int32_t threads = tn_pool_threads(m->options.pool);
    memset(m->sums, 0, (size_t)threads * TN_ASK_MAX * sizeof *m->sums);
    over_chunks(m, dots_of);
    for (int32_t i = 0; i < m->ask.count; i++) {
        for (int32_t t = 1; t < threads; t++)
            tn_exact_merge(&m->sums[i], &m->sums[t * TN_ASK_MAX + i]);
        m->answers[i] = scale_of(m, m->ask.a[i]) * scale_of(m, m->ask.b[i]) * tn_exact_value(&m->sums[i]);
    }
}

static void combine_block(const tn_minimizer_link *m, int64_t at, int64_t n)
{
    double sum[TN_CHAIN_BLOCK] = {0};
    int narrow = m->parameters->real == 32;
    for (int32_t i = 0; i < m->ask.count; i++) {
        const void *a = vector_at(m, m->ask.a[i], at);
        double factor = m->ask.factor[i] * scale_of(m, m->ask.a[i]);
        if (narrow)
            (i ? add_float : set_float)(sum, factor, a, n);
        else
            (i ? add_double : set_double)(sum, factor, a, n);
    }
    if (narrow)
        put_float((float *)vector_at(m, m->ask.to, at), sum, n);
    else
        put_double((double *)vector_at(m, m->ask.to, at), sum, n);
}

static void combine_of(const pass *p, int64_t at, int64_t n, int32_t thread)
{
    (void)thread;
    for (int64_t lo = 0; lo < n; lo += TN_CHAIN_BLOCK)
        combine_block(p->link, at + lo, n - lo < TN_CHAIN_BLOCK ? n - lo : TN_CHAIN_BLOCK);
}

static void back_up_of(const pass *p, int64_t at, int64_t n, int32_t thread)
{
    (void)thread;
    memcpy(p->link->backup + (size_t)at * p->link->real, vector_at(p->link, TN_VECTOR_P, at),
           (size_t)n * p->link->real);
}

static void restore_of(const pass *p, int64_t at, int64_t n, int32_t thread)
{
    (void)thread;
    memcpy(vector_at(p->link, TN_VECTOR_P, at), p->link->backup + (size_t)at * p->link->real,
           (size_t)n * p->link->real);
}

static void finite_of(const pass *p, int64_t at, int64_t n, int32_t thread)
{
    if (!tn_kernel_finite(p->link->parameters->real, vector_at(p->link, TN_VECTOR_G, at), n))
        p->link->flawed[thread] = 1;
}

static int32_t finite_gradient(tn_minimizer_link *m)
{
    int32_t threads = tn_pool_threads(m->options.pool), flawed = 0;
    memset(m->flawed, 0, (size_t)threads * sizeof *m->flawed);
    over_chunks(m, finite_of);
    for (int32_t t = 0; t < threads; t++)
        flawed |= m->flawed[t];
    return !flawed;
}

/* ---- requests ---- */

static int32_t bad_ask(const tn_minimizer_link *m, const char *field, int64_t found, const char *needed, tn_error *err)
{
    return tn_error_set(err, TN_E_PLUGIN, "%s: its request %d has %s %" PRId64 ", needed %s; correct the plugin",
                        m->instance->path, m->ask.what, field, found, needed);
}

static int is_vector(const tn_minimizer_link *m, int32_t index, int32_t least)
{
    return index >= least && index - TN_VECTOR_FIRST < m->vector_count;
}

static int32_t check_lists(const tn_minimizer_link *m, tn_error *err)
{
    int32_t product = m->ask.what == TN_ASK_PRODUCT, count = product ? 1 : m->ask.count;
    if (count < 0 || count > TN_ASK_MAX)
        return bad_ask(m, "count", count, "0 to 128", err);
    for (int32_t i = 0; i < count; i++) {
        if (!is_vector(m, m->ask.a[i], product ? TN_VECTOR_FIRST : TN_VECTOR_P))
            return bad_ask(m, "a vector a", m->ask.a[i], product ? "a planned slot" : "p, g or a planned slot", err);
        if (m->ask.what == TN_ASK_DOTS && !is_vector(m, m->ask.b[i], TN_VECTOR_P))
            return bad_ask(m, "a vector b", m->ask.b[i], "p, g or a planned slot", err);
    }
    return TN_OK;
}

static int32_t check_ask(const tn_minimizer_link *m, tn_error *err)
{
    const tn_ask *ask = &m->ask;
    if (ask->what < TN_ASK_DOTS || ask->what > TN_ASK_REJECT)
        return bad_ask(m, "the kind", ask->what, "one of TN_ASK_*", err);
    if (ask->what >= TN_ASK_COMMIT || ask->what == TN_ASK_EVALUATE)
        return TN_OK;
    if (ask->what == TN_ASK_COMBINE && ask->to != TN_VECTOR_P && !is_vector(m, ask->to, TN_VECTOR_FIRST))
        return bad_ask(m, "the vector to", ask->to, "p or a planned slot", err);
    if (ask->what == TN_ASK_PRODUCT && !m->table.products)
        return bad_ask(m, "the kind", ask->what, "another: its table does not say that it asks for products", err);
    if (ask->what == TN_ASK_PRODUCT && (!is_vector(m, ask->to, TN_VECTOR_FIRST) || ask->to == ask->a[0]))
        return bad_ask(m, "the vector to", ask->to, "a planned slot other than a", err);
    return check_lists(m, err);
}

static int32_t check_present(const tn_minimizer_link *m, tn_error *err)
{
    for (int64_t i = 0; i < m->parameters->count; i++)
        if (!m->parameters->present[i])
            return tn_error_set(err, TN_E_INVALID,
                                "%s: parameter '%s' has no gradient in this step, needed one for each; freeze nothing, "
                                "or use another rule",
                                m->instance->path, m->parameters->list[i].name);
    return TN_OK;
}

static int32_t evaluate(tn_minimizer_link *m, tn_error *err)
{
    double loss = NAN;
    tn_error_clear(err);
    int32_t status = m->options.signals->gradient(m->options.signals->user, &loss, err);
    if (status)
        return tn_error_wrap(err, status, "%s: evaluation", m->instance->path);
    m->answers[0] = loss;
    return check_present(m, err);
}

static int32_t product(tn_minimizer_link *m, tn_error *err)
{
    tn_error_clear(err);
    int32_t status = m->options.signals->product(m->options.signals->user, vector_at(m, m->ask.a[0], 0),
                                                 vector_at(m, m->ask.to, 0), err);
    return status ? tn_error_wrap(err, status, "%s: Hessian product", m->instance->path) : TN_OK;
}

static int32_t perform(tn_minimizer_link *m, tn_error *err)
{
    memset(m->answers, 0, sizeof m->answers);
    switch (m->ask.what) {
    case TN_ASK_DOTS:
        dots(m);
        return TN_OK;
    case TN_ASK_COMBINE:
        if (m->ask.to == TN_VECTOR_P && !m->moved)
            over_chunks(m, back_up_of);
        m->moved |= m->ask.to == TN_VECTOR_P;
        over_chunks(m, combine_of);
        return TN_OK;
    case TN_ASK_EVALUATE:
        return evaluate(m, err);
    default:
        return product(m, err);
    }
}

/* ---- the step ---- */

static void undo(tn_minimizer_link *m)
{
    if (m->moved)
        over_chunks(m, restore_of);
    memcpy(m->memory, m->memory_before, (size_t)m->memory_count * sizeof *m->memory);
}

/* Until the rule ends the step: what it ended it with goes into *ret. */
static int32_t converse(tn_minimizer_link *m, const tn_clock *clock, double *report, int32_t *ret, tn_error *err)
{
    tn_advance call = {.struct_size = sizeof call,
                       .first = 1,
                       .hyper = m->instance->hyper,
                       .clock = clock,
                       .context = &m->context,
                       .answers = m->answers,
                       .memory = m->memory,
                       .report = report,
                       .elements = m->elements};
    for (int32_t asks = 0; asks < TN_MINIMIZER_ASKS; asks++, call.first = 0) {
        memset(&m->ask, 0, sizeof m->ask);
        m->ask.struct_size = sizeof m->ask;
        m->table.advance(&call, &m->ask);
        int32_t status = check_ask(m, err);
        if (!status && m->ask.what >= TN_ASK_COMMIT) {
            *ret = m->ask.what;
            return TN_OK;
        }
        if (!status)
            status = perform(m, err);
        if (status)
            return status;
    }
    return tn_error_set(err, TN_E_PLUGIN,
                        "%s: made %d requests in one step and neither committed nor rejected; correct the plugin",
                        m->instance->path, TN_MINIMIZER_ASKS);
}

int32_t tn_minimizer_step(tn_minimizer_link *link, const tn_step *step, const tn_clock *clock, double *report,
                          int32_t *ret_committed, tn_error *err)
{
    int32_t end = TN_ASK_REJECT, status = check_present(link, err);
    if (status)
        return status;
    if (!isfinite(step->scale))
        return tn_error_set(err, TN_E_NUMERIC, "%s: the gradient's scale is %g, needed a finite number",
                            link->instance->path, step->scale);
    link->scale = step->scale;
    link->moved = link->rejected = 0;
    link->context.attempt = step->attempt;
    link->context.update = clock->update;
    memcpy(link->memory_before, link->memory, (size_t)link->memory_count * sizeof *link->memory);
    memset(link->answers, 0, sizeof link->answers);
    link->answers[0] = step->loss;
    if (isfinite(step->loss) && finite_gradient(link)) {
        status = converse(link, clock, report, &end, err);
        link->rejected = !status && end == TN_ASK_REJECT;
    }
    if (status || end == TN_ASK_REJECT)
        undo(link);
    if (!status)
        *ret_committed = end == TN_ASK_COMMIT;
    return status;
}

/* ---- looking in ---- */

int32_t tn_minimizer_rejected(const tn_minimizer_link *link) { return link->rejected; }

size_t tn_minimizer_slot_count(const tn_minimizer_link *link)
{
    return (size_t)link->vector_count * (size_t)link->parameters->count + (link->memory_count > 0);
}

void tn_minimizer_slot_at(const tn_minimizer_link *link, size_t index, tn_chain_slot *ret)
{
    size_t parameters = (size_t)link->parameters->count;
    *ret = (tn_chain_slot){.link = link->instance->handle,
                           .slot = "memory",
                           .parameter = -1,
                           .shape = "global",
                           .data = link->memory,
                           .elements = link->memory_count,
                           .bytes = link->memory_count * (int64_t)sizeof(double),
                           .bits = 64,
                           .persistent = 1,
                           .replicated = 1};
    if (index >= (size_t)link->vector_count * parameters)
        return;
    const vector *v = &link->vectors[index / parameters];
    int64_t i = (int64_t)(index % parameters), n = link->parameters->list[i].n;
    ret->slot = v->name;
    ret->parameter = i;
    ret->shape = "like";
    ret->data = v->data + (size_t)link->parameters->at[i] * link->real;
    ret->elements = n;
    ret->bytes = n * (int64_t)link->real;
    ret->bits = (int32_t)link->parameters->real;
    ret->persistent = v->persistent;
}

int64_t tn_minimizer_bytes(const tn_minimizer_link *link)
{
    return (link->vector_count + 1) * (int64_t)arena_bytes(link) + link->memory_count * (int64_t)sizeof(double);
}
