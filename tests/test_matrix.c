/* SPDX-License-Identifier: Apache-2.0
 *
 * host/update/matrix: the items of muon and kfac against golden/matrix.json, refusals, owners; in one process and in
 * several, whose bits must be those of one.
 */
#include <tenon/dense.h>

#include "host/update/matrix.h"
#include "tests/malloc_count.h"
#include "tests/matrix.h"
#include "tests/processes.h"

/* ---- a rule of matrices on a world of parameters, driven as the chain does ---- */

#define RIG_SLOTS 16

typedef struct rig {
    world *w;
    tn_instance *rule;
    tn_optimizer table;
    tn_items *items;
    void *like[RIG_SLOTS]; /* arenas of like-shaped slots */
    int32_t slots;
    void *d;
    products products;
    tn_context context;
    tn_clock clock;
    int64_t clocks[WORLD_PARAMETERS];
    _Alignas(16) char k[TN_CONSTANTS_MAX];
    tn_error err;
    int64_t parameter; /* being planned */
    int32_t layer;
    tn_services services;
    int32_t warnings;
    tn_matrix matrix; /* the plugin's, with the next line's apply */
} rig;

static void (*plugin_apply)(const tn_matrix_call *call);
static int32_t apply_calls, apply_items;

static void counted_apply(const tn_matrix_call *call)
{
    apply_calls++;
    apply_items += call->count;
    plugin_apply(call);
}

static int32_t rig_slot(void *host, const tn_slot *slot)
{
    rig *r = host;
    int32_t index = r->slots++;
    if (tn_items_shape(slot->shape))
        return tn_items_slot(r->items, r->parameter, index, slot, &r->err);
    if (!r->like[index])
        r->like[index] = tn_alloc_aligned((size_t)r->w->parameters.elements * (r->w->parameters.real / 8));
    return r->like[index] ? TN_OK : TN_E_MEMORY;
}

static int32_t rig_item(void *host, const tn_box *boxes, int32_t count)
{
    rig *r = host;
    return tn_items_add(r->items, r->parameter, boxes, count, &r->err);
}

static void rig_log(void *host, int32_t level, const char *text)
{
    rig *r = host;
    (void)text;
    r->warnings += level == 2;
}

static tn_items_options rig_options(rig *r, tn_comm *comm)
{
    return (tn_items_options){.path = "update.rule",
                              .layer = r->layer,
                              .table = &r->matrix,
                              .hyper = r->rule->hyper,
                              .context = &r->context,
                              .parameters = &r->w->parameters,
                              .compute = &r->products.host,
                              .comm = comm};
}

/* The rule with settings as text pairs that end in NULL. */
static rig *rig_new(world *w, const char *name, ...)
{
    rig *r = calloc(1, sizeof *r);
    va_list args;
    r->w = w;
    r->rule = component_open("optimizer", name, w->parameters.real, &r->table, sizeof r->table);
    r->matrix = *r->table.matrix;
    plugin_apply = r->matrix.apply;
    r->matrix.apply = counted_apply;
    r->layer = strcmp(tn_fact_text(r->rule->info->facts, "grain", ""), "layer") == 0;
    va_start(args, name);
    for (const char *row; (row = va_arg(args, const char *));)
        component_set(r->rule, row, va_arg(args, const char *));
    va_end(args);
    products_open(&r->products, w->pool);
    r->services = (tn_services){.struct_size = sizeof r->services, .host = r, .log = rig_log};
    r->context = (tn_context){.struct_size = sizeof r->context, .services = &r->services};
    r->d = tn_alloc_aligned((size_t)w->parameters.elements * (w->parameters.real / 8));
    return r;
}

static int32_t rig_try_open(rig *r, tn_comm *comm)
{
    const tn_items_options options = rig_options(r, comm);
    const tn_slot_planner planner = {sizeof planner, 0, r, rig_slot, NULL, rig_item};
    int32_t status = tn_items_create(&options, &r->items, &r->err);
    for (r->parameter = 0; r->parameter < r->w->parameters.count && !status; r->parameter++) {
        r->slots = 0;
        status = r->table.plan(&r->w->list[r->parameter], r->rule->hyper, &planner, &r->err);
    }
    return status ? status : tn_items_settle(r->items, &r->err);
}

static void rig_free(rig *r)
{
    tn_items_free(r->items);
    for (int32_t j = 0; j < RIG_SLOTS; j++)
        tn_free(r->like[j]);
    tn_free(r->d);
    tn_instance_free(r->rule);
    tn_instance_free(r->products.library);
    world_free(r->w);
    free(r);
}

static const tn_clock *rig_clock(void *user, int64_t parameter)
{
    (void)parameter;
    return &((rig *)user)->clock;
}

static const void *rig_k(void *user, int64_t parameter)
{
    (void)parameter;
    return ((rig *)user)->k;
}

static void rig_update(rig *r, int64_t i)
{
    size_t real = r->w->parameters.real / 8;
    void *slot[RIG_SLOTS];
    int64_t at = r->w->at[i] * (int64_t)real;
    for (int32_t j = 0; j < RIG_SLOTS; j++)
        slot[j] = r->like[j] ? (char *)r->like[j] + at : NULL;
    const tn_piece piece = {.struct_size = sizeof piece,
                            .parameter = &r->w->list[i],
                            .context = &r->context,
                            .hyper = r->rule->hyper,
                            .k = r->k,
                            .lo = r->w->list[i].lo,
                            .n = r->w->list[i].n,
                            .scale = 1,
                            .g = (char *)r->w->parameters.g + at,
                            .p = (char *)r->w->parameters.p + at,
                            .d = (char *)r->d + at,
                            .slot = slot};
    if (piece.n > 0)
        r->table.update(&piece);
}

static int32_t rig_tapping(rig *r)
{
    return tn_items_tapping(r->items, r->clocks, r->clock.t, r->clock.t, TN_TAP_NONE);
}

/* One step from the gradients at hand, of parameters that share a clock. */
static int32_t rig_try_step(rig *r)
{
    const tn_items_step step = {r->d, r, rig_clock, rig_k};
    r->clock = (tn_clock){sizeof r->clock, 0, r->clock.t + 1, r->clock.t, r->clock.t, NULL};
    r->table.begin(r->rule->hyper, &r->clock, r->k);
    for (int64_t i = 0; i < r->w->parameters.count; i++)
        if (r->w->present[i])
            rig_update(r, i);
    int32_t status = tn_items_apply(r->items, &step, &r->err);
    double keep = r->table.keep(r->k);
    for (int64_t i = 0; i < r->w->parameters.count && !status; i++)
        for (int64_t j = 0; j < r->w->list[i].n && r->w->present[i]; j++)
            world_put(r->w, r->w->parameters.p, i, j, keep * world_p(r->w, i, j) + world_get(r->w, r->d, i, j));
    for (int64_t i = 0; i < r->w->parameters.count; i++)
        r->clocks[i] += r->w->present[i];
    return status;
}

static void rig_open(rig *r, tn_comm *comm) { ck_ok(rig_try_open(r, comm), r->err); }

static void rig_step(rig *r)
{
    ck_ok(rig_try_step(r), r->err);
    ck_assert_int_eq(r->products.host.failed, 0);
}

/* ---- singular values ---- */

/* Singular values, descending, by turning pairs of columns until all are orthogonal (one-sided Jacobi). */
static int32_t by_size(const void *a, const void *b)
{
    return (*(double *)a < *(double *)b) - (*(double *)a > *(double *)b);
}

static void turn(double *x, int64_t rows, int64_t columns, int64_t p, int64_t q)
{
    double pp = 0, qq = 0, pq = 0;
    for (int64_t i = 0; i < rows; i++) {
        double a = x[i * columns + p], b = x[i * columns + q];
        pp += a * a;
        qq += b * b;
        pq += a * b;
    }
    double angle = .5 * atan2(2 * pq, pp - qq), c = cos(angle), s = sin(angle);
    for (int64_t i = 0; i < rows; i++) {
        double a = x[i * columns + p], b = x[i * columns + q];
        x[i * columns + p] = c * a + s * b;
        x[i * columns + q] = c * b - s * a;
    }
}

static void singular_values(double *x, int64_t rows, int64_t columns, double *ret)
{
    for (int sweep = 0; sweep < 30; sweep++)
        for (int64_t p = 0; p < columns; p++)
            for (int64_t q = p + 1; q < columns; q++)
                turn(x, rows, columns, p, q);
    for (int64_t j = 0; j < columns; j++) {
        ret[j] = 0;
        for (int64_t i = 0; i < rows; i++)
            ret[j] += x[i * columns + j] * x[i * columns + j];
        ret[j] = sqrt(ret[j]);
    }
    qsort(ret, (size_t)columns, sizeof *ret, by_size);
}

/* ---- muon ---- */

static void add_parameter(world *w, const json_t *vector, int64_t *parts)
{
    int64_t shape[TN_MAX_DIMS];
    const json_t *list = json_object_get(vector, "shape"), *rows = json_object_get(vector, "parts");
    for (size_t a = 0; a < json_array_size(list); a++)
        shape[a] = json_integer_value(json_array_get(list, a));
    world_slice(w, (int32_t)json_array_size(list), shape, 0, -1);
    for (size_t i = 0; i < json_array_size(rows); i++)
        parts[i] = json_integer_value(json_array_get(rows, i));
    w->list[w->parameters.count - 1].part_count = (int32_t)json_array_size(rows);
    w->list[w->parameters.count - 1].part_rows = parts;
}

static rig *muon_rig(const json_t *vector, uint32_t real, int64_t *parts)
{
    world *w = world_new(real, 2);
    const char *row;
    json_t *value;
    add_parameter(w, vector, parts);
    world_arenas(w);
    put_all(w, w->parameters.p, 0, json_object_get(vector, "p0"));
    rig *r = rig_new(w, "muon", NULL);
    json_object_foreach(json_object_get(vector, "settings"), row, value)
        component_set(r->rule, row, json_string_value(value));
    rig_open(r, NULL);
    return r;
}

/* The step's singular values, part by part: those of d / -lr. */
static void expect_singular(const rig *r, const json_t *right, double lr, double allowed)
{
    const tn_parameter *p = &r->w->list[0];
    int split = json_array_size(right) != (size_t)(p->shape[0] < p->n / p->shape[0] ? p->shape[0] : p->n / p->shape[0]);
    int64_t columns = p->n / p->shape[0], at = 0, row = 0, one = p->shape[0];
    for (int32_t part = 0; part < (split ? p->part_count : 1); part++) {
        int64_t rows = split ? p->part_rows[part] : one, n = rows < columns ? rows : columns;
        double x[2048], found[64];
        ck_assert_int_le(rows * columns, 2048);
        for (int64_t i = 0; i < rows; i++) /* turned where it is wide, so that columns are few */
            for (int64_t j = 0; j < columns; j++)
                x[rows < columns ? j * rows + i : i * columns + j] =
                    world_get(r->w, r->d, 0, (row + i) * columns + j) / -lr;
        singular_values(x, rows < columns ? columns : rows, n, found);
        for (int64_t j = 0; j < n; j++, at++)
            expect(fabs(found[j] - number(right, (size_t)at)) <= allowed, "singular value %d of part %d: %g, needed %g",
                   (int)j, part, found[j], number(right, (size_t)at));
        row += rows;
    }
    ck_assert_uint_eq((size_t)at, json_array_size(right));
}

START_TEST(muon_follows_its_golden_trajectories)
{
    json_t *vectors = test_golden("matrix.json", "muon");
    for (size_t v = 0; v < json_array_size(vectors); v++)
        for (uint32_t real = 32; real <= 64; real += 32) {
            const json_t *vector = json_array_get(vectors, v), *p = json_object_get(vector, "p");
            int64_t parts[8];
            rig *r = muon_rig(vector, real, parts);
            double lr = *tn_instance_real(r->rule, tn_instance_row(r->rule, "lr"));
            for (size_t t = 0; t < json_array_size(p); t++) {
                put_all(r->w, r->w->parameters.g, 0, json_array_get(json_object_get(vector, "g"), t));
                rig_step(r);
                expect_all(r->w, r->w->parameters.p, 0, json_array_get(p, t), real == 64 ? 1e-10 : 1e-4, "muon");
                expect_singular(r, json_array_get(json_object_get(vector, "singular"), t), lr,
                                real == 64 ? 1e-9 : 1e-3);
            }
            rig_free(r);
        }
    json_decref(vectors);
}
END_TEST

START_TEST(equal_items_come_as_one_batch)
{
    const int64_t qkv[] = {3 * 4 * 8, 20}, other[] = {8, 20}, odd[] = {5, 20};
    int64_t heads[12];
    world *w = world_new(64, 1);
    for (int i = 0; i < 12; i++)
        heads[i] = 8;
    world_slice(w, 2, qkv, 0, -1);
    world_slice(w, 2, odd, 0, -1);
    world_slice(w, 2, other, 0, -1);
    w->list[0].part_count = 12;
    w->list[0].part_rows = heads;
    world_arenas(w);
    world_fill(w, w->parameters.p, 1);
    world_fill(w, w->parameters.g, 2);
    rig *r = rig_new(w, "muon", NULL);
    rig_open(r, NULL);
    apply_calls = apply_items = 0;
    rig_step(r);
    ck_assert_int_eq(apply_calls, 2);
    ck_assert_int_eq(apply_items, 14);
    /* A head's step depends on the head alone: the third is the lone matrix with the same gradient. */
    world *lone = world_new(64, 1);
    world_slice(lone, 2, other, 0, -1);
    world_arenas(lone);
    world_fill(lone, lone->parameters.p, 1);
    for (int64_t j = 0; j < 160; j++)
        world_put(lone, lone->parameters.g, 0, j, world_get(w, w->parameters.g, 0, 320 + j));
    rig *single = rig_new(lone, "muon", NULL);
    rig_open(single, NULL);
    rig_step(single);
    ck_assert_int_eq(memcmp((char *)r->d + 320 * 8, single->d, 160 * 8), 0);
    rig_free(single);
    rig_free(r);
}
END_TEST

START_TEST(steady_steps_allocate_nothing)
{
    const int64_t shape[] = {9, 7};
    world *w = world_new(32, 1);
    for (int i = 0; i < 5; i++)
        world_slice(w, 2, shape, 0, -1);
    world_arenas(w);
    world_fill(w, w->parameters.p, 1);
    world_fill(w, w->parameters.g, 2);
    rig *r = rig_new(w, "muon", NULL);
    rig_open(r, NULL);
    rig_step(r);
    int64_t before = malloc_count(); /* Check's own assertions allocate */
    int32_t status = rig_try_step(r);
    int64_t after = malloc_count();
    ck_ok(status, r->err);
    ck_assert_int_eq(after, before);
    rig_free(r);
}
END_TEST

START_TEST(an_absent_parameter_is_left_alone)
{
    const int64_t shape[] = {6, 4};
    rig *both = NULL, *one = NULL;
    for (int absent = 0; absent < 2; absent++) {
        world *w = world_new(64, 1);
        for (int i = 0; i < 3; i++)
            world_slice(w, 2, shape, 0, -1);
        world_arenas(w);
        world_fill(w, w->parameters.p, 1);
        world_fill(w, w->parameters.g, 2);
        w->present[1] = !absent;
        rig *r = rig_new(w, "muon", NULL);
        rig_open(r, NULL);
        apply_calls = apply_items = 0;
        rig_step(r);
        ck_assert_int_eq(apply_calls, absent ? 2 : 1);
        ck_assert_int_eq(apply_items, absent ? 2 : 3);
        *(absent ? &one : &both) = r;
    }
    for (int64_t j = 0; j < 24; j++) {
        ck_assert(world_p(one->w, 0, j) == world_p(both->w, 0, j));
        ck_assert(world_p(one->w, 1, j) == world_noise(1, j, 1));
        ck_assert(world_p(one->w, 2, j) == world_p(both->w, 2, j));
        ck_assert(world_p(both->w, 1, j) != world_noise(1, j, 1));
    }
    rig_free(both);
    rig_free(one);
}
END_TEST

/* ---- refusals ---- */

static rig *one_rig(const char *rule, int32_t ndim, const int64_t *shape)
{
    world *w = world_new(32, 1);
    world_slice(w, ndim, shape, 0, -1);
    world_arenas(w);
    return rig_new(w, rule, NULL);
}

START_TEST(what_is_no_matrix_is_refused)
{
    const int64_t shape[] = {6, 4, 3};
    rig *r = one_rig("muon", 1, shape);
    ck_assert_refused(rig_try_open(r, NULL), TN_E_INVALID, r->err, "update.rule: parameter 'p0' has one axis",
                      "route it to another rule with `on:`");
    rig_free(r);
    r = one_rig("kfac", 3, shape);
    ck_assert_refused(rig_try_open(r, NULL), TN_E_INVALID, r->err, "update.rule: parameter 'p0' is neither", "`on:`");
    rig_free(r);
    r = one_rig("kfac", 1, shape);
    r->w->list[0].role = TN_ROLE_BIAS;
    ck_assert_refused(rig_try_open(r, NULL), TN_E_INVALID, r->err, "update.rule: parameter 'p0' is a bias whose layer",
                      "`on:`");
    rig_free(r);
    r = one_rig("kfac", 2, shape);
    world_slice(r->w, 2, shape, 0, -1);
    r->w->list[1].layer = r->w->list[0].layer;
    ck_assert_refused(rig_try_open(r, NULL), TN_E_INVALID, r->err, "update.rule: parameter 'p0' shares its layer",
                      "`on:`");
    rig_free(r);
    r = one_rig("muon", 2, shape);
    const tn_items_options options = {
        .path = "update.rule", .table = r->table.matrix, .hyper = r->rule->hyper, .parameters = &r->w->parameters};
    ck_assert_refused(tn_items_create(&options, &r->items, &r->err), TN_E_UNSUPPORTED, r->err,
                      "update.rule: ", "backend");
    rig_free(r);
}
END_TEST

static int32_t try_boxes(const tn_box *boxes, const int32_t *counts, int32_t items, tn_error *err)
{
    const int64_t shape[] = {6, 2, 2};
    rig *r = one_rig("muon", 3, shape);
    const tn_items_options options = rig_options(r, NULL);
    int32_t status = tn_items_create(&options, &r->items, err);
    for (int32_t i = 0, at = 0; i < items && !status; at += counts[i++])
        status = tn_items_add(r->items, 0, boxes + at, counts[i], err);
    if (!status)
        status = tn_items_settle(r->items, err);
    rig_free(r);
    return status;
}

START_TEST(boxes_must_cover_the_view_once)
{
    tn_error err = {0};
    const tn_box good[] = {{0, 2, 0, 3}, {4, 2, 1, 3}, {2, 2, 0, 4}, {0, 2, 3, 1}, {4, 2, 0, 1}};
    ck_ok(try_boxes(good, (int32_t[]){2, 1, 2}, 3, &err), err);
    ck_assert_refused(try_boxes(good, (int32_t[]){2, 1}, 2, &err), TN_E_PLUGIN, err,
                      "update.rule: the items of parameter 'p0'", "hold 20 elements of the 24");
    const tn_box twice[] = {{0, 3, 0, 4}, {2, 3, 0, 4}};
    ck_assert_refused(try_boxes(twice, (int32_t[]){1, 1}, 2, &err), TN_E_PLUGIN, err,
                      "update.rule: items 0 and 1 of parameter 'p0' overlap", "correct");
    ck_assert_refused(try_boxes(twice, (int32_t[]){2}, 1, &err), TN_E_PLUGIN, err,
                      "update.rule: items 0 and 0 of parameter 'p0' overlap", "correct");
    const tn_box beyond[] = {{4, 3, 0, 4}};
    ck_assert_refused(try_boxes(beyond, (int32_t[]){1}, 1, &err), TN_E_PLUGIN, err, "a box of rows 4 + 3", "6 x 4");
    const tn_box unequal[] = {{0, 3, 0, 4}, {3, 3, 0, 3}};
    ck_assert_refused(try_boxes(unequal, (int32_t[]){2}, 1, &err), TN_E_PLUGIN, err, "an item has boxes of 4 and 3",
                      "equal");
    ck_assert_refused(try_boxes(beyond, (int32_t[]){0}, 1, &err), TN_E_PLUGIN, err, "it plans an item without",
                      "boxes");
}
END_TEST

START_TEST(a_second_plan_is_compared_with_the_first)
{
    const int64_t shape[] = {6, 4};
    const int64_t parts[] = {2, 4}, others[] = {4, 2};
    rig *a = one_rig("muon", 2, shape), *b = one_rig("muon", 2, shape), *c = one_rig("muon", 2, shape);
    a->w->list[0].part_count = b->w->list[0].part_count = 2;
    a->w->list[0].part_rows = parts;
    b->w->list[0].part_rows = others;
    rig_open(a, NULL);
    rig_open(b, NULL);
    rig_open(c, NULL);
    ck_assert(tn_items_same(a->items, a->items));
    ck_assert(!tn_items_same(a->items, b->items));
    ck_assert(!tn_items_same(a->items, c->items));
    ck_assert(tn_items_same(c->items, c->items));
    rig_free(a);
    rig_free(b);
    rig_free(c);
}
END_TEST

/* ---- state of items ---- */

static double seen[8]; /* of each call: slot u of its first item, or -1 without slot w */

static void own_apply(const tn_matrix_call *call)
{
    double *u = call->slot[1];
    ck_assert_ptr_null(call->slot[0]);
    seen[apply_calls++] = call->slot[3] ? u[0] : -1;
    apply_items += call->count;
    for (int64_t i = 0; i < call->count * call->rows * call->columns; i++)
        u[i] += (double)call->rows;
    for (int64_t i = 0; i < call->count * call->rows * call->rows; i++)
        ck_assert(((double *)call->slot[2])[i] == 0);
}

static tn_chain_slot slot_named(const tn_items *items, const char *name, int64_t parameter)
{
    tn_chain_slot found = {0}, at;
    for (size_t i = 0; i < tn_items_slot_count(items); i++) {
        tn_items_slot_at(items, i, &at);
        if (strcmp(at.slot, name) == 0 && at.parameter == parameter)
            found = at;
    }
    ck_assert_msg(found.data != NULL, "no slot %s of parameter %d", name, (int)parameter);
    return found;
}

static void plan_state(tn_items *items, int64_t parameter, int with_w, tn_error *err)
{
    const tn_slot u = {sizeof u, 0, "u", "item", "one", "", NULL}, v = {sizeof v, 0, "v", "left", "zero", "", NULL};
    const tn_slot w = {sizeof w, 0, "w", "right", "zero", "signed, transient", NULL};
    ck_ok(tn_items_slot(items, parameter, 1, &u, err), *err);
    ck_ok(tn_items_slot(items, parameter, 2, &v, err), *err);
    if (with_w)
        ck_ok(tn_items_slot(items, parameter, 3, &w, err), *err);
}

START_TEST(items_have_state_of_their_own)
{
    const int64_t shape[] = {6, 4};
    const tn_box halves[] = {{0, 3, 0, 4}, {3, 3, 0, 4}};
    const tn_matrix table = {sizeof table, 0, NULL, own_apply, NULL, NULL};
    world *w = world_new(64, 1);
    tn_error err = {0};
    for (int i = 0; i < 3; i++)
        world_slice(w, 2, shape, 0, -1);
    world_arenas(w);
    world_fill(w, w->parameters.g, 2);
    rig *r = rig_new(w, "muon", NULL);
    tn_items_options options = rig_options(r, NULL);
    options.table = &table;
    ck_ok(tn_items_create(&options, &r->items, &err), err);
    for (int64_t i = 0; i < 3; i++)
        plan_state(r->items, i, i != 1, &err);
    for (int i = 0; i < 2; i++)
        ck_ok(tn_items_add(r->items, 2, &halves[i], 1, &err), err);
    const tn_slot odd = {sizeof odd, 0, "x", "item", "parameter", "", NULL};
    ck_assert_refused(tn_items_slot(r->items, 0, 4, &odd, &err), TN_E_UNSUPPORTED, err, "slot 'x'", "zero or one");
    const tn_slot flag = {sizeof flag, 0, "x", "item", "zero", "fancy", NULL};
    ck_assert_refused(tn_items_slot(r->items, 0, 4, &flag, &err), TN_E_UNSUPPORTED, err, "slot flags", "fancy");
    const tn_slot tap = {sizeof tap, 0, "x", "item", "zero", "tapped", NULL};
    ck_assert_refused(tn_items_slot(r->items, 0, 4, &tap, &err), TN_E_PLUGIN, err, "slot 'x' is tapped", "no tap");
    ck_ok(tn_items_settle(r->items, &err), err);
    ck_assert_uint_eq(tn_items_slot_count(r->items), 3 + 2 + 6);
    ck_assert_int_eq(tn_items_bytes(r->items), 8 * (3 * 24 + 2 * 36 + 2 * 9 + 16 + 2 * 16));
    apply_calls = apply_items = 0;
    r->table.plan = NULL;
    for (int step = 0; step < 2; step++) {
        r->clock = (tn_clock){sizeof r->clock, 0, step + 1, step, step, NULL};
        ck_ok(tn_items_apply(r->items, &(tn_items_step){r->d, r, rig_clock, rig_k}, &err), err);
    }
    /* Batches: two halves; p0; p1, which has one slot less. */
    ck_assert_int_eq(apply_calls, 6);
    ck_assert_int_eq(apply_items, 8);
    for (int i = 0; i < 6; i++)
        ck_assert(seen[i] == (i % 3 == 2 ? -1 : i < 3 ? 1 : i % 3 ? 7 : 4));
    tn_chain_slot second = slot_named(r->items, "u.1", 2), whole = slot_named(r->items, "u", 0);
    ck_assert_int_eq(second.elements, 12);
    ck_assert_int_eq(second.bytes, 96);
    ck_assert_int_eq(second.bits, 64);
    ck_assert_str_eq(second.shape, "item");
    ck_assert(((double *)second.data)[11] == 7 && ((double *)whole.data)[23] == 13);
    ck_assert_int_eq(slot_named(r->items, "v.0", 2).elements, 9);
    ck_assert_int_eq(slot_named(r->items, "w", 0).elements, 16);
    ck_assert_int_eq(slot_named(r->items, "w", 0).persistent, 0);
    ck_assert_int_eq(slot_named(r->items, "v", 1).persistent, 1);
    rig_free(r);
}
END_TEST

static int64_t endless_workspace(const void *hyper, int64_t rows, int64_t columns)
{
    (void)hyper;
    return -rows * columns;
}

START_TEST(sizes_beyond_counting_are_refused)
{
    const int64_t shape[] = {6, 4};
    const tn_slot left = {sizeof left, 0, "v", "left", "zero", "", NULL};
    tn_error err = {0};
    for (int k = 0; k < 2; k++) {
        const tn_matrix table = {sizeof table, 0, k ? NULL : endless_workspace, own_apply, NULL, NULL};
        world *w = world_new(64, 1);
        world_slice(w, 2, shape, 0, -1);
        world_arenas(w);
        rig *r = rig_new(w, "muon", NULL);
        tn_items_options options = rig_options(r, NULL);
        options.table = &table;
        w->list[0].shape[0] = k ? (int64_t)1 << 33 : 6; /* 2^66 elements */
        w->list[0].n = 4 * w->list[0].shape[0];
        ck_ok(tn_items_create(&options, &r->items, &err), err);
        ck_ok(tn_items_slot(r->items, 0, 1, &left, &err), err);
        ck_assert_refused(tn_items_settle(r->items, &err), k ? TN_E_MEMORY : TN_E_PLUGIN, err,
                          "update.rule: ", k ? "no memory" : "-24 bytes of scratch for 6 x 4");
        rig_free(r);
    }
}
END_TEST

/* ---- kfac ---- */

static void into_items(void *user, int64_t weight, const tn_tensor *x, const tn_tensor *dy, double seed)
{
    tn_items_tap(user, weight, x, dy, seed);
}

static void tap_rows(rig *r, int64_t weight, const json_t *taps, int64_t lo, int64_t n, double seed)
{
    golden_tap(r->w, weight, taps, lo, n, seed, into_items, r->items);
}

static rig *kfac_rig(const json_t *golden, uint32_t real)
{
    world *w = world_new(real, 1);
    const char *row;
    json_t *value;
    add_linear(w, "one", 4, 3);
    add_linear(w, "two", 3, 4);
    world_arenas(w);
    for (size_t l = 0; l < 2; l++)
        put_pair(w, w->parameters.p, 2 * (int64_t)l, json_array_get(json_object_get(golden, "p0"), l));
    rig *r = rig_new(w, "kfac", NULL);
    json_object_foreach(json_object_get(golden, "settings"), row, value)
        component_set(r->rule, row, json_string_value(value));
    return r;
}

/* The window's gradients, and rows lo to lo + n of its taps in micro-batches of 2. */
static void kfac_window(rig *r, const json_t *window, int64_t lo, int64_t n, int64_t t)
{
    int32_t wants = rig_tapping(r);
    ck_assert_int_eq(wants, t % 2 ? TN_TAP_NONE : TN_TAP_SAMPLED);
    for (int64_t l = 0; l < 2; l++) {
        const json_t *layer = json_array_get(json_object_get(window, "layers"), (size_t)l);
        put_pair(r->w, r->w->parameters.g, 2 * l, layer);
        for (int64_t at = lo; at < lo + n && (wants || t == 1); at += 2) /* taps that nobody asked for change nothing */
            tap_rows(r, 2 * l, layer, at, at + 2 > lo + n ? 1 : 2, at % 4 ? 0.125 : 1.0 / 3);
    }
}

static void kfac_golden(uint32_t real, double allowed)
{
    json_t *golden = test_golden("matrix.json", "kfac");
    const json_t *windows = json_object_get(golden, "windows");
    rig *r = kfac_rig(golden, real);
    rig_open(r, NULL);
    for (size_t t = 0; t < json_array_size(windows); t++) {
        const json_t *window = json_array_get(windows, t);
        kfac_window(r, window, 0, 7, (int64_t)t);
        rig_step(r);
        for (size_t l = 0; l < 2; l++)
            expect_pair(r->w, 2 * (int64_t)l, json_array_get(json_object_get(window, "p"), l), allowed);
    }
    ck_assert_int_eq(r->warnings, 0);
    rig_free(r);
    json_decref(golden);
}

START_TEST(kfac_follows_its_golden_trajectory)
{
    kfac_golden(64, 1e-10);
    kfac_golden(32, 2e-3);
}
END_TEST

START_TEST(kfac_solves_least_squares_in_one_step)
{
    json_t *golden = test_golden("matrix.json", "least_squares");
    world *w = world_new(64, 1);
    add_linear(w, "one", 2, 3);
    world_arenas(w);
    put_pair(w, w->parameters.p, 0, json_object_get(golden, "p0"));
    put_pair(w, w->parameters.g, 0, json_object_get(golden, "g"));
    rig *r = rig_new(w, "kfac", "lr", "1", "damping", "0", NULL);
    rig_open(r, NULL);
    rig_tapping(r);
    tap_rows(r, 0, golden, 0, 5, 1);
    tap_rows(r, 0, golden, 5, 3, 0.01);
    rig_step(r);
    expect_pair(w, 0, json_object_get(golden, "right"), 1e-10);
    rig_free(r);
    json_decref(golden);
}
END_TEST

START_TEST(kfac_keeps_its_inverses_where_damping_is_too_small)
{
    json_t *golden = test_golden("matrix.json", "least_squares");
    world *w = world_new(64, 1);
    add_linear(w, "one", 2, 3);
    world_arenas(w);
    put_pair(w, w->parameters.p, 0, json_object_get(golden, "p0"));
    put_pair(w, w->parameters.g, 0, json_object_get(golden, "g"));
    rig *r = rig_new(w, "kfac", "damping", "0", NULL);
    rig_open(r, NULL);
    rig_tapping(r);
    tap_rows(r, 0, golden, 0, 1, 1); /* one sample: both factors have rank 1 */
    double before[6];
    for (int64_t j = 0; j < 6; j++)
        before[j] = world_p(w, 0, j);
    rig_step(r);
    ck_assert_int_eq(r->warnings, 2);
    for (int64_t j = 0; j < 6; j++) /* there is no inverse yet: multiples of the identity move them */
        ck_assert(isfinite(world_p(w, 0, j)) && world_p(w, 0, j) != before[j]);
    rig_free(r);
    json_decref(golden);
}
END_TEST

START_TEST(a_layer_without_taps_is_named)
{
    json_t *golden = test_golden("matrix.json", "kfac");
    rig *r = kfac_rig(golden, 64);
    rig_open(r, NULL);
    world_fill(r->w, r->w->parameters.g, 2);
    rig_tapping(r);
    tap_rows(r, 0, json_array_get(json_object_get(json_array_get(json_object_get(golden, "windows"), 0), "layers"), 0),
             0, 7, 1);
    ck_assert_refused(rig_try_step(r), TN_E_INVALID, r->err, "update.rule: layer 'two' handed out no inputs", "`on:`");
    r->clock.t = 0;
    memset(r->clocks, 0, sizeof r->clocks);
    ck_assert_int_eq(rig_tapping(r), TN_TAP_SAMPLED);
    tap_rows(r, 0, json_array_get(json_object_get(json_array_get(json_object_get(golden, "windows"), 0), "layers"), 0),
             0, 7, 1);
    r->w->present[2] = r->w->present[3] = 0; /* not this time: no gradient either */
    rig_step(r);
    rig_free(r);
    json_decref(golden);
}
END_TEST

/* Layers of one shape, of which the second is tapped by half as many samples, each twice: the same means. */
START_TEST(samples_are_counted_by_layer)
{
    json_t *golden = test_golden("matrix.json", "least_squares");
    world *w = world_new(64, 1);
    add_linear(w, "one", 2, 3);
    add_linear(w, "two", 2, 3);
    world_arenas(w);
    for (int64_t l = 0; l < 2; l++) {
        put_pair(w, w->parameters.p, 2 * l, json_object_get(golden, "p0"));
        put_pair(w, w->parameters.g, 2 * l, json_object_get(golden, "g"));
    }
    rig *r = rig_new(w, "kfac", "lr", "1", "damping", "0", NULL);
    rig_open(r, NULL);
    rig_tapping(r);
    tap_rows(r, 0, golden, 0, 8, 1);
    tap_rows(r, 2, golden, 0, 8, 1);
    tap_rows(r, 2, golden, 0, 8, 1);
    rig_step(r);
    expect_pair(w, 0, json_object_get(golden, "right"), 1e-10);
    expect_pair(w, 2, json_object_get(golden, "right"), 1e-10);
    rig_free(r);
    json_decref(golden);
}
END_TEST

START_TEST(an_absent_bias_is_a_column_of_zeros)
{
    json_t *golden = test_golden("matrix.json", "least_squares");
    world *w[2];
    rig *r[2];
    for (int k = 0; k < 2; k++) { /* absent; present and 0 */
        w[k] = world_new(64, 1);
        add_linear(w[k], "one", 2, 3);
        world_arenas(w[k]);
        world_fill(w[k], w[k]->parameters.p, 1);
        r[k] = rig_new(w[k], "kfac", NULL);
        rig_open(r[k], NULL);
        for (int t = 0; t < 2; t++) {
            rig_tapping(r[k]);
            if (t == 0)
                tap_rows(r[k], 0, golden, 0, 8, 1);
            world_fill(w[k], w[k]->parameters.g, 2);
            if (t)
                world_set_g(w[k], 1, 0);
            w[k]->present[1] = k || !t;
            rig_step(r[k]);
        }
    }
    for (int64_t j = 0; j < 6; j++)
        ck_assert(world_p(w[0], 0, j) == world_p(w[1], 0, j));
    ck_assert(world_p(w[0], 1, 0) != world_p(w[1], 1, 0));
    rig_free(r[0]);
    rig_free(r[1]);
    json_decref(golden);
}
END_TEST

START_TEST(taps_of_the_wrong_shape_fail_the_step)
{
    json_t *golden = test_golden("matrix.json", "kfac");
    rig *r = kfac_rig(golden, 64);
    int64_t shape[] = {2, 3}, strides[] = {3, 1};
    _Alignas(64) double data[16] = {0};
    const tn_tensor x = {data, {TN_CPU, 0}, 2, {TN_FLOAT, 64, 1}, shape, strides, 0};
    rig_open(r, NULL);
    world_fill(r->w, r->w->parameters.g, 2);
    rig_tapping(r);
    tn_items_tap(r->items, 0, &x, &x, 1);
    ck_assert_refused(rig_try_step(r), TN_E_INTERNAL, r->err, "update.rule: taps of 'p0'", "[n, 4]");
    rig_free(r);
    json_decref(golden);
}
END_TEST

START_TEST(each_allocation_may_fail)
{
    json_t *golden = test_golden("matrix.json", "kfac");
    int64_t parts[8];
    int32_t status = TN_E_MEMORY;
    for (int muon = 0; muon < 2; muon++, status = TN_E_MEMORY)
        for (int64_t nth = 0; status; nth++) {
            json_t *vectors = test_golden("matrix.json", "muon");
            rig *r = muon ? muon_rig(json_array_get(vectors, 3), 64, parts) : kfac_rig(golden, 64);
            tn_items_free(r->items);
            r->items = NULL;
            tn_memory_fail_at(nth);
            status = rig_try_open(r, NULL);
            tn_memory_fail_at(-1);
            expect(status == TN_OK || status == TN_E_MEMORY, "allocation %d: %d", (int)nth, status);
            expect(status == TN_OK ? nth > 10 : nth < 100, "allocation %d: %d", (int)nth, status);
            rig_free(r);
            json_decref(vectors);
        }
    json_decref(golden);
}
END_TEST

/* ---- inverses larger than a block ---- */

START_TEST(inverses_are_exact_across_blocks)
{
    for (int64_t n = 1; n <= 150; n += n < 60 ? 13 : 1 + (n > 66) * 40) {
        world *w = world_new(64, 2);
        world_vector(w, 1);
        world_arenas(w);
        rig *r = rig_new(w, "muon", NULL);
        double *a = calloc((size_t)(n * n), sizeof *a), *b = calloc((size_t)(n * n), sizeof *b);
        double *work = malloc((size_t)tn_dense_inverse_bytes(n));
        for (int64_t i = 0; i < n; i++) /* diagonally dominant: well conditioned */
            for (int64_t j = 0; j <= i; j++)
                a[i * n + j] = b[i * n + j] = b[j * n + i] = i == j ? 2 + (double)n : world_noise(i, j, 9);
        ck_assert_int_eq(tn_dense_inverse(&r->products.compute, a, n, work), 1);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < n; j++) {
                double sum = 0;
                for (int64_t k = 0; k < n; k++)
                    sum += a[i * n + k] * b[k * n + j];
                expect(fabs(sum - (i == j)) < 1e-12, "n %d: (%d, %d) is %g", (int)n, (int)i, (int)j, sum);
                expect(a[i * n + j] == a[j * n + i], "n %d: not symmetric", (int)n);
            }
        b[n * n - 1] = -1;
        ck_assert_int_eq(tn_dense_inverse(&r->products.compute, b, n, work), 0);
        b[n * n - 1] = NAN;
        ck_assert_int_eq(tn_dense_inverse(&r->products.compute, b, n, work), 0);
        free(a);
        free(b);
        free(work);
        rig_free(r);
    }
}
END_TEST

/* ---- several processes ---- */

#define BIG_ROWS    130
#define BIG_COLUMNS 97 /* 12610 elements: three whole chunks and a ragged one */
#define HEADS       5

static const int64_t big[] = {BIG_ROWS, BIG_COLUMNS}, small[] = {12, 50}, conv[] = {8, 3, 5};
static const int64_t head_rows[HEADS] = {26, 26, 26, 26, 26};

/* Chunk cuts of the big one: where process `rank` of `size` begins. */
static int64_t cut_at(int32_t rank, int32_t size)
{
    int64_t chunks = (BIG_ROWS * BIG_COLUMNS + TN_CHUNK - 1) / TN_CHUNK, at = (chunks * rank + size - 1) / size;
    int64_t n = at * TN_CHUNK;
    return n < BIG_ROWS * BIG_COLUMNS ? n : BIG_ROWS * BIG_COLUMNS;
}

/* `flat`: the big ones in slices of chunks, the others whole with one process each; 2: so in each of two groups; 0:
 * replicas. */
static rig *shard_rig(int32_t rank, int32_t size, int flat, uint32_t real)
{
    world *w = world_new(real, 1);
    for (int i = 0; i < 4; i++) {
        int64_t lo = flat ? cut_at(rank, size) : 0, end = flat ? cut_at(rank + 1, size) : big[0] * big[1];
        int mine = !flat || i % size == rank;
        if (flat == 2) { /* two groups, each with all of it */
            lo = cut_at(rank % 2, 2);
            end = cut_at(rank % 2 + 1, 2);
            mine = i % 2 == rank % 2;
        }
        world_slice(w, 2, big, lo, end - lo);
        w->list[w->parameters.count - 1].part_count = i == 1 ? HEADS : 0;
        w->list[w->parameters.count - 1].part_rows = head_rows;
        world_slice(w, i % 2 ? 3 : 2, i % 2 ? conv : small, 0, mine ? -1 : 0);
    }
    for (int64_t i = 0; i < w->parameters.count && !flat; i++)
        w->list[i].replicas = size;
    world_arenas(w);
    world_fill(w, w->parameters.p, 1);
    return rig_new(w, "muon", "lr", "0.05", NULL);
}

static void shard_steps(rig *r)
{
    for (uint64_t t = 0; t < 3; t++) {
        world_fill(r->w, r->w->parameters.g, 2 + t);
        r->w->present[3] = t != 1;
        rig_step(r);
    }
}

typedef struct shard_test {
    int32_t size, flat;
    uint32_t real;
    rig *one; /* the same in one process */
} shard_test;

static void shard_body(tn_comm *world, void *arg)
{
    const shard_test *test = arg;
    rig *r = shard_rig(tn_comm_rank(world), test->size, test->flat, test->real);
    size_t real = test->real / 8;
    rig_open(r, world);
    shard_steps(r);
    for (int64_t i = 0; i < r->w->parameters.count; i++) {
        const tn_parameter *mine = &r->w->list[i];
        const char *right = (const char *)test->one->w->parameters.p + (size_t)(test->one->w->at[i] + mine->lo) * real;
        ck_assert_msg(
            memcmp((const char *)r->w->parameters.p + (size_t)r->w->at[i] * real, right, (size_t)mine->n * real) == 0,
            "rank %d of %d, flat %d, parameter %d: other bits than one process's", tn_comm_rank(world), test->size,
            test->flat, (int)i);
    }
    rig_free(r);
}

START_TEST(owners_and_shards_do_not_change_bits)
{
    for (uint32_t real = 32; real <= 64; real += 32)
        for (int32_t size = 2; size <= 3; size++)
            for (int32_t flat = 0; flat < 2; flat++) {
                shard_test test = {size, flat, real, shard_rig(0, 1, 0, real)};
                rig_open(test.one, NULL);
                shard_steps(test.one);
                processes_run(size, shard_body, &test);
                rig_free(test.one);
            }
    shard_test groups = {4, 2, 64, shard_rig(0, 1, 0, 64)};
    rig_open(groups.one, NULL);
    shard_steps(groups.one);
    processes_run(4, shard_body, &groups);
    rig_free(groups.one);
}
END_TEST

static void hole_body(tn_comm *world, void *arg)
{
    rig *r = shard_rig(tn_comm_rank(world), 2, 1, 32);
    (void)arg;
    if (tn_comm_rank(world) == 1)
        r->w->list[0].lo += TN_CHUNK; /* a chunk that nobody holds */
    ck_assert_refused(rig_try_open(r, world), TN_E_INVALID, r->err, "update.rule: of parameter 'p0'", "cover it once");
    rig_free(r);
}

START_TEST(slices_must_cover_a_parameter) { processes_run(2, hole_body, NULL); }
END_TEST

/* Each process taps a part of the samples; the gradients are those of the whole window. */
static void kfac_body(tn_comm *world, void *arg)
{
    const json_t *golden = arg, *windows = json_object_get(golden, "windows");
    int64_t lo = tn_comm_rank(world) ? 3 : 0, n = tn_comm_rank(world) ? 4 : 3;
    rig *r = kfac_rig(golden, 64);
    for (int64_t i = 0; i < r->w->parameters.count; i++)
        r->w->list[i].replicas = 2;
    rig_open(r, world);
    for (size_t t = 0; t < json_array_size(windows); t++) {
        const json_t *window = json_array_get(windows, t);
        kfac_window(r, window, lo, n, (int64_t)t);
        rig_step(r);
        for (size_t l = 0; l < 2; l++)
            expect_pair(r->w, 2 * (int64_t)l, json_array_get(json_object_get(window, "p"), l), 1e-10);
    }
    size_t state = tn_items_slot_count(r->items); /* one layer each */
    ck_assert_uint_eq(state, 6);
    rig_free(r);
}

START_TEST(kfac_on_two_processes_is_that_of_the_joint_samples)
{
    json_t *golden = test_golden("matrix.json", "kfac");
    processes_run(2, kfac_body, golden);
    json_decref(golden);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("matrix");
    TCase *items = tcase_create("items"), *kfac = tcase_create("kfac"), *processes = tcase_create("processes");
    tcase_add_test(items, muon_follows_its_golden_trajectories);
    tcase_add_test(items, equal_items_come_as_one_batch);
    tcase_add_test(items, steady_steps_allocate_nothing);
    tcase_add_test(items, an_absent_parameter_is_left_alone);
    tcase_add_test(items, what_is_no_matrix_is_refused);
    tcase_add_test(items, boxes_must_cover_the_view_once);
    tcase_add_test(items, a_second_plan_is_compared_with_the_first);
    tcase_add_test(items, inverses_are_exact_across_blocks);
    tcase_add_test(kfac, kfac_follows_its_golden_trajectory);
    tcase_add_test(kfac, kfac_solves_least_squares_in_one_step);
    tcase_add_test(kfac, kfac_keeps_its_inverses_where_damping_is_too_small);
    tcase_add_test(kfac, a_layer_without_taps_is_named);
    tcase_add_test(items, items_have_state_of_their_own);
    tcase_add_test(items, sizes_beyond_counting_are_refused);
    tcase_add_test(items, each_allocation_may_fail);
    tcase_add_test(kfac, samples_are_counted_by_layer);
    tcase_add_test(kfac, an_absent_bias_is_a_column_of_zeros);
    tcase_add_test(kfac, taps_of_the_wrong_shape_fail_the_step);
    tcase_add_test(processes, owners_and_shards_do_not_change_bits);
    tcase_add_test(processes, slices_must_cover_a_parameter);
    tcase_add_test(processes, kfac_on_two_processes_is_that_of_the_joint_samples);
    tcase_set_timeout(processes, 60);
    suite_add_tcase(suite, items);
    suite_add_tcase(suite, kfac);
    suite_add_tcase(suite, processes);
    return test_main(suite);
}
