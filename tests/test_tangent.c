/* SPDX-License-Identifier: Apache-2.0
 *
 * Derivatives along a direction: every layer and loss of the built plugins that offers them, in loops over the
 * registry, against differences of what it does without; then products with the Hessian through whole graphs, against
 * golden/tangent.json and differences of gradients.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "host/base/memory.h"
#include "host/base/philox.h"
#include "host/graph/graph.h"
#include "tests/component.h"
#include "tests/layer_drive.h"

#define BACKWARD (TN_TRAIN | TN_FREEZE | TN_WANT_DX | TN_WANT_DW)

/* ---- the loop over layers ---- */

static const struct {
    int32_t ndim;
    int64_t shape[3];
} shapes[] = {{2, {1, 1}},  {2, {1, 7}},   {2, {1, 64}},  {2, {3, 7}},    {2, {17, 1}},
              {2, {17, 7}}, {2, {17, 64}}, {2, {5, 193}}, {3, {3, 2, 7}}, {3, {2, 5, 64}}};
#define SHAPES (sizeof shapes / sizeof *shapes)

static int may_run(const drive *d)
{
    tn_error err = {0};
    return !d->layer->check || d->layer->check(d->hyper, &d->x[0].view, TN_TRAIN, &err) == TN_OK;
}

static int take_shape(const tn_layer *layer, const tn_instance *instance, size_t k, drive *ret)
{
    int32_t status = TN_E_INVALID;
    tn_error err = {0};
    for (int32_t inputs = 1; status == TN_E_INVALID && inputs <= DRIVE_PORTS; inputs++)
        status =
            drive_create(layer, instance->info, instance->hyper, inputs, shapes[k].ndim, shapes[k].shape, ret, &err);
    return status == TN_OK;
}

/* Each layer with tangents, in `real`, at its defaults but for `row`, with each shape it takes; their number. */
static int each_layer(uint32_t real, const char *row, const char *text, void (*examine)(drive *d))
{
    int layers = 0;
    for (size_t i = 0; i < tn_registry_count(test_plugins()); i++) {
        const tn_entry_info *entry = tn_registry_at(test_plugins(), i);
        tn_layer layer = {.struct_size = sizeof layer};
        if (entry->state != TN_FOUND || strcmp(entry->interface, TN_LAYER) != 0 || entry->real != real ||
            strcmp(entry->device, "cpu") != 0)
            continue;
        tn_instance *instance = component_open(entry->kind, entry->name, real, &layer, sizeof layer);
        if (tn_instance_row(instance, "out"))
            component_set(instance, "out", "5");
        int wanted = layer.tangents && (!row || tn_instance_row(instance, row));
        if (wanted && row)
            component_set(instance, row, text);
        for (size_t k = 0; wanted && k < SHAPES; k++) {
            drive d;
            if (!take_shape(&layer, instance, k, &d))
                continue;
            if (may_run(&d))
                examine(&d);
            drive_free(&d);
        }
        layers += wanted;
        tn_instance_free(instance);
    }
    return layers;
}

/* ---- differences ---- */

/* y, dx and gradients after a step along the direction, with those before put back. */
static void look(drive *d, const drive_along *a, double step, uint32_t flags, drive *ret)
{
    drive_tensor *to[2 * DRIVE_PORTS + 1] = {&d->dy};
    const drive_tensor *along[2 * DRIVE_PORTS + 1] = {&a->dy};
    void *before[2 * DRIVE_PORTS + 1];
    int count = 1;
    for (int32_t i = 0; i < d->inputs; i++, count++)
        to[count] = &d->x[i], along[count] = &a->x[i];
    for (int32_t i = 0; i < d->parameters; i++, count++)
        to[count] = &d->parameter[i], along[count] = &a->parameter[i];
    for (int k = 0; k < count; k++) {
        before[k] = malloc(to[k]->bytes + 1);
        memcpy(before[k], to[k]->view.data, to[k]->bytes);
        for (int64_t j = 0; j < drive_elements(to[k]); j++)
            drive_set(to[k], j, drive_get(to[k], j) + step * drive_get(along[k], j));
    }
    drive_forward(d, flags & (TN_TRAIN | TN_FREEZE), 0, 0);
    drive_backward(d, flags, 0, 0);
    *ret = *d; /* shares its memory, which is read before the next call */
    for (int k = 0; k < count; k++) {
        memcpy(to[k]->view.data, before[k], to[k]->bytes);
        free(before[k]);
    }
}

/* Adds factor times all that a call computes to `sum`; the count of numbers is returned. */
static int64_t gather(const drive *d, double factor, double *sum)
{
    int64_t n = 0;
    const drive_tensor *list[2 * DRIVE_PORTS + 1] = {&d->y};
    int count = 1;
    for (int32_t i = 0; i < d->inputs; i++)
        list[count++] = &d->dx[i];
    for (int32_t i = 0; i < d->parameters; i++)
        list[count++] = &d->gradient[i];
    for (int k = 0; k < count; k++)
        for (int64_t j = 0; j < drive_elements(list[k]); j++, n++)
            sum[n] += factor * drive_get(list[k], j);
    return n;
}

/* The derivatives as tangents give them, in the order of gather. */
static int64_t gather_along(const drive *d, const drive_along *a, double *sum)
{
    drive view = *d;
    view.y = a->y;
    for (int i = 0; i < DRIVE_PORTS; i++) {
        view.dx[i] = a->dx[i];
        view.gradient[i] = a->gradient[i];
    }
    return gather(&view, 1, sum);
}

static int64_t numbers(const drive *d)
{
    int64_t n = drive_elements(&d->y);
    for (int32_t i = 0; i < d->inputs; i++)
        n += drive_elements(&d->x[i]);
    for (int32_t i = 0; i < d->parameters; i++)
        n += drive_elements(&d->parameter[i]);
    return n;
}

static double *zeros(int64_t n)
{
    double *ret = calloc((size_t)n + 1, sizeof *ret);
    ck_assert_ptr_nonnull(ret);
    return ret;
}

static void compute(drive *d, drive_along *a, uint32_t flags, int64_t extent, int zero_x, double *ret)
{
    drive_forward(d, flags & (TN_TRAIN | TN_FREEZE), 0, 0);
    drive_tangent_forward(d, a, flags & (TN_TRAIN | TN_FREEZE), extent, zero_x);
    drive_tangent_backward(d, a, flags, extent, zero_x);
    gather_along(d, a, ret);
}

static int compared;

static void check_differences(drive *d, uint32_t flags)
{
    static const double step[] = {-2, -1, 1, 2}, factor[] = {1, -8, 8, -1};
    const double h = 1e-3;
    drive_along a;
    drive_along_create(d, &a);
    int64_t n = numbers(d);
    double *numeric = zeros(n), *exact = zeros(n), largest = 1;
    for (int k = 0; k < 4; k++) {
        drive seen;
        look(d, &a, step[k] * h, flags, &seen);
        gather(&seen, factor[k] / (12 * h), numeric);
    }
    compute(d, &a, flags, 0, 0, exact);
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(exact[i]));
    for (int64_t i = 0; i < n; i++, compared++)
        if (!(fabs(numeric[i] - exact[i]) < 1e-8 * largest))
            ck_abort_msg("%s [%lld, %lld] flags %x: number %lld of y~, dx~, gradients~ is %.12g, by differences %.12g",
                         d->info->name, (long long)d->x[0].shape[0], (long long)d->x[0].shape[1], flags, (long long)i,
                         exact[i], numeric[i]);
    free(numeric);
    free(exact);
    drive_along_free(&a);
}

static void examine_differences(drive *d)
{
    for (int32_t k = 0; k < d->inputs; k++)
        for (int64_t i = 0; i < drive_elements(&d->x[k]); i++)
            if (fabs(drive_get(&d->x[k], i)) < 2e-2)
                drive_set(&d->x[k], i, 0.5); /* off the kink of relu */
    check_differences(d, BACKWARD);
    check_differences(d, BACKWARD & ~TN_TRAIN);
}

START_TEST(tangents_are_slopes)
{
    ck_assert_int_ge(each_layer(64, NULL, NULL, examine_differences), 6);
    ck_assert_int_ge(compared, 10000);
    ck_assert_int_ge(each_layer(64, "affine", "false", examine_differences), 1);
    ck_assert_int_ge(each_layer(64, "bias", "false", examine_differences), 1);
}
END_TEST

static void examine_cuts(drive *d)
{
    static const int64_t element_cuts[] = {64, 128}, other_cuts[] = {1, 16};
    const int64_t *cuts = strcmp(drive_axis(d), "elements") ? other_cuts : element_cuts;
    int rows = !strcmp(drive_axis(d), "rows");
    drive_along a;
    drive_along_create(d, &a);
    int64_t n = numbers(d), fixed = n;
    for (int32_t i = 0; rows && i < d->parameters; i++)
        fixed -= drive_elements(&d->parameter[i]); /* sums of partials: close, not equal */
    double *once = zeros(n);
    compute(d, &a, BACKWARD, 0, 0, once);
    for (int k = 0; k < 2; k++) {
        double *again = zeros(n);
        compute(d, &a, BACKWARD, cuts[k], 0, again);
        ck_assert_msg(memcmp(once, again, (size_t)fixed * sizeof *once) == 0, "%s: the cut changes a bit",
                      d->info->name);
        for (int64_t i = fixed; i < n; i++)
            ck_assert_double_eq_tol(once[i], again[i], (d->real == 64 ? 1e-12 : 1e-5) * fmax(1, fabs(once[i])));
        free(again);
    }
    free(once);
    drive_along_free(&a);
}

START_TEST(pieces_change_no_bit)
{
    ck_assert_int_ge(each_layer(64, NULL, NULL, examine_cuts), 6);
    ck_assert_int_ge(each_layer(32, NULL, NULL, examine_cuts), 6);
}
END_TEST

/* An input that does not move may be lent as NULL; dx~ may be unwanted; gradients are set or added to. */
static void examine_wishes(drive *d)
{
    drive_along a;
    drive_along_create(d, &a);
    int64_t n = numbers(d), gradients = n;
    double *null = zeros(n), *zero = zeros(n), *twice = zeros(n), *without = zeros(n);
    for (int32_t i = 0; i < d->parameters; i++)
        gradients -= drive_elements(&d->parameter[i]);
    compute(d, &a, BACKWARD, 0, 1, null);
    for (int32_t i = 0; i < d->inputs; i++)
        for (int64_t j = 0; j < drive_elements(&a.x[i]); j++)
            drive_set(&a.x[i], j, 0);
    compute(d, &a, BACKWARD, 0, 0, zero);
    compute(d, &a, BACKWARD | TN_ACCUMULATE, 0, 0, twice);
    compute(d, &a, BACKWARD & ~TN_WANT_DX, 0, 0, without);
    for (int64_t i = 0; i < n; i++) {
        ck_assert_double_eq(null[i], zero[i]);
        if (i >= gradients) {
            ck_assert_double_eq(twice[i], 2 * zero[i]);
            ck_assert_double_eq(without[i], zero[i]);
        }
    }
    free(null);
    free(zero);
    free(twice);
    free(without);
    drive_along_free(&a);
}

START_TEST(what_is_missing_is_zero)
{
    ck_assert_int_ge(each_layer(64, NULL, NULL, examine_wishes), 6);
    ck_assert_int_ge(each_layer(32, NULL, NULL, examine_wishes), 6);
}
END_TEST

/* ---- the loop over losses ---- */

enum { ROWS = 7, CLASSES = 37 };

typedef struct {
    tn_loss loss;
    tn_instance *instance;
    drive_tensor x, target, dx, v;
} loss_drive;

static void loss_make(const tn_entry_info *entry, loss_drive *l)
{
    const int64_t shape[] = {ROWS, CLASSES};
    tn_dtype dtype = {TN_FLOAT, (uint8_t)entry->real, 1};
    memset(l, 0, sizeof *l);
    l->loss.struct_size = sizeof l->loss;
    l->instance = component_open("loss", entry->name, entry->real, &l->loss, sizeof l->loss);
    const char *targets = json_string_value(json_object_get(l->instance->info->facts, "targets"));
    int classes = !targets || strcmp(targets, "class") == 0;
    drive_make(&l->x, dtype, 2, shape);
    drive_make(&l->dx, dtype, 2, shape);
    drive_make(&l->v, dtype, 2, shape);
    drive_make(&l->target, classes ? (tn_dtype){TN_INT, 32, 1} : dtype, classes ? 1 : 2, shape);
    drive_randomise(&l->x, 1, -3, 3);
    drive_randomise(&l->v, 2, -1, 1);
    drive_randomise(&l->target, 3, -1, 1);
    for (int64_t i = 0; classes && i < ROWS; i++)
        drive_set(&l->target, i, i == 2 ? -1 : (double)(i * 5));
}

static void loss_free(loss_drive *l)
{
    drive_unmake(&l->x);
    drive_unmake(&l->dx);
    drive_unmake(&l->v);
    drive_unmake(&l->target);
    tn_instance_free(l->instance);
}

/* dx, or dx~ where `v` is given, of rows [lo, lo + n). */
static void loss_call(loss_drive *l, int64_t lo, int64_t n, const drive_tensor *v)
{
    double sums[16];
    const tn_context context = {.struct_size = sizeof context, .attempt = 3, .key = 77};
    const tn_loss_call call = {.struct_size = sizeof call,
                               .hyper = l->instance->hyper,
                               .context = &context,
                               .lo = lo,
                               .n = n,
                               .x = &l->x.view,
                               .target = &l->target.view,
                               .dx = &l->dx.view,
                               .seed = 0.25,
                               .sums = sums};
    if (v)
        l->loss.curvature(&call, &v->view);
    else
        l->loss.evaluate(&call);
    drive_check_guard(&l->dx, "dx");
}

static void check_curvature(loss_drive *l)
{
    static const double step[] = {-2, -1, 1, 2}, factor[] = {1, -8, 8, -1};
    double numeric[ROWS * CLASSES] = {0}, largest = 0, h = 1e-3;
    for (int k = 0; k < 4; k++) {
        for (int64_t i = 0; i < ROWS * CLASSES; i++)
            drive_set(&l->x, i, drive_get(&l->x, i) + step[k] * h * drive_get(&l->v, i));
        loss_call(l, 0, ROWS, NULL);
        for (int64_t i = 0; i < ROWS * CLASSES; i++) {
            numeric[i] += factor[k] / (12 * h) * drive_get(&l->dx, i);
            drive_set(&l->x, i, drive_get(&l->x, i) - step[k] * h * drive_get(&l->v, i));
        }
    }
    memset(l->dx.view.data, 0xFF, l->dx.bytes);
    loss_call(l, 0, ROWS, &l->v);
    for (int64_t i = 0; i < ROWS * CLASSES; i++)
        largest = fmax(largest, fabs(numeric[i]));
    ck_assert_double_gt(largest, 1e-3);
    for (int64_t i = 0; i < ROWS * CLASSES; i++)
        ck_assert_double_eq_tol(drive_get(&l->dx, i), numeric[i], 1e-9 * largest);
}

static void check_curvature_pieces(loss_drive *l)
{
    size_t bytes = ROWS * CLASSES * (l->x.view.dtype.bits / 8u);
    loss_call(l, 0, ROWS, &l->v);
    void *once = malloc(bytes);
    memcpy(once, l->dx.view.data, bytes);
    memset(l->dx.view.data, 0xFF, bytes);
    for (int64_t lo = 0; lo < ROWS; lo += 3)
        loss_call(l, lo, ROWS - lo < 3 ? ROWS - lo : 3, &l->v);
    ck_assert_mem_eq(once, l->dx.view.data, bytes);
    free(once);
}

START_TEST(curvature_is_the_slope_of_the_gradient)
{
    int losses = 0;
    for (size_t i = 0; i < tn_registry_count(test_plugins()); i++) {
        const tn_entry_info *entry = tn_registry_at(test_plugins(), i);
        loss_drive l;
        if (entry->state != TN_FOUND || strcmp(entry->kind, "loss") != 0 || strcmp(entry->device, "cpu") != 0)
            continue;
        loss_make(entry, &l);
        if (l.loss.curvature && entry->real == 64) {
            check_curvature(&l);
            if (tn_instance_row(l.instance, "smoothing"))
                component_set(l.instance, "smoothing", "0.2");
            check_curvature(&l);
        }
        if (l.loss.curvature)
            check_curvature_pieces(&l);
        losses += l.loss.curvature != NULL;
        loss_free(&l);
    }
    ck_assert_int_ge(losses, 2);
}
END_TEST

/* ---- graphs ---- */

typedef struct {
    tn_registry *registry;
    tn_pool *pool;
    tn_backend backend;
    tn_instance *model, *loss;
    tn_graph *graph;
    tn_parameters *all;
    uint32_t real;
} fixture;

#define BATCH 40

/* Samples of 7 numbers in 3 classes. */
static void open_graph(fixture *f, const char *model, uint32_t real, int32_t threads, const tn_setting *settings,
                       size_t count)
{
    static const int64_t shape[] = {7};
    tn_error err = {0};
    const tn_entry_info *entry;
    tn_setting smoothing = {"smoothing", "0.1"};
    *f = (fixture){.registry = test_registry("TENON_TEST_PLUGINS"), .real = real};
    ck_ok(tn_pool_create(threads, &f->pool, &err), err);
    ck_ok(tn_registry_find(f->registry, "backend", "reference", NULL, 0, &entry, &err), err);
    ck_ok(tn_registry_load(f->registry, entry, &f->backend, sizeof f->backend, &err), err);
    ck_ok(tn_instance_create(f->registry, "model", model, real, "model", settings, count, &f->model, &err), err);
    ck_ok(tn_instance_create(f->registry, "loss", "cross-entropy", real, "loss", &smoothing, 1, &f->loss, &err), err);
    tn_graph_options options = {.registry = f->registry,
                                .model = f->model,
                                .loss = f->loss,
                                .real = real,
                                .batch = BATCH,
                                .ndim = 1,
                                .shape = shape,
                                .classes = 3,
                                .backend = &f->backend,
                                .pool = f->pool,
                                .seed = 3};
    ck_ok(tn_graph_create(&options, &f->graph, &err), err);
    f->all = tn_graph_parameters(f->graph);
    tn_random_normal(11, 0, 0, BATCH * 7, 0, 1, real, tn_graph_input(f->graph));
    for (int64_t i = 0; i < BATCH; i++)
        ((int32_t *)tn_graph_target(f->graph))[i] = i == 4 ? -1 : (int32_t)(i % 3);
}

static void close_graph(fixture *f)
{
    tn_graph_destroy(f->graph);
    tn_instance_free(f->model);
    tn_instance_free(f->loss);
    tn_pool_destroy(f->pool);
    tn_registry_close(f->registry);
}

static void *arena(const fixture *f)
{
    void *ret = tn_alloc_aligned((size_t)f->all->elements * (f->real / 8));
    ck_assert_ptr_nonnull(ret);
    return ret;
}

static void *direction(const fixture *f, uint64_t key)
{
    void *ret = arena(f);
    tn_random_normal(key, 0, 0, f->all->elements, 0, 1, f->real, ret);
    return ret;
}

static const tn_graph_run plain = {.n = BATCH, .flags = TN_TRAIN, .attempt = 5, .seed = 0.25};

static void gradient(fixture *f, const tn_graph_run *run)
{
    tn_exact sums[TN_SUMS_MAX] = {0};
    tn_error err = {0};
    ck_ok(tn_graph_run_batch(f->graph, run, sums, &err), err);
}

static void product(fixture *f, const tn_graph_run *run, const void *v, void *ret)
{
    tn_error err = {0};
    ck_ok(tn_graph_product(f->graph, run, v, ret, &err), err);
}

/* Calls visit(i) for each element that belongs to a parameter. */
#define EACH_ELEMENT(f, i)                                                                                             \
    for (int64_t k_ = 0; k_ < (f)->all->count; k_++)                                                                   \
        for (int64_t i = (f)->all->at[k_]; i < (f)->all->at[k_] + (f)->all->list[k_].n; i++)

static void check_product(fixture *f, const tn_graph_run *run)
{
    static const double step[] = {-2, -1, 1, 2}, factor[] = {1, -8, 8, -1};
    const double h = 1e-6; /* so small that no relu passes its kink */
    double *v = direction(f, 21), *exact = arena(f), *numeric = arena(f), *p = f->all->p, *at = arena(f), largest = 0;
    memcpy(at, p, (size_t)f->all->elements * sizeof *p);
    for (int k = 0; k < 4; k++) {
        EACH_ELEMENT(f, i) p[i] = at[i] + step[k] * h * v[i];
        gradient(f, run);
        EACH_ELEMENT(f, i) numeric[i] += factor[k] / (12 * h) * ((double *)f->all->g)[i];
    }
    memcpy(p, at, (size_t)f->all->elements * sizeof *p);
    product(f, run, v, exact);
    EACH_ELEMENT(f, i) largest = fmax(largest, fabs(exact[i]));
    ck_assert_double_gt(largest, 1e-2);
    EACH_ELEMENT(f, i)
    ck_assert_msg(fabs(exact[i] - numeric[i]) < 1e-8 * largest, "element %lld: %.12g, by differences %.12g",
                  (long long)i, exact[i], numeric[i]);
    tn_free(v);
    tn_free(exact);
    tn_free(numeric);
    tn_free(at);
}

START_TEST(products_are_differences_of_gradients)
{
    static const tn_setting dropped[] = {{"widths", "[9, 6]"},
                                         {"normalizer", "layernorm"},
                                         {"activation", "gelu"},
                                         {"regularizer", "{use: dropout, p: 0.4}"}};
    fixture f;
    tn_graph_run small = plain;
    open_graph(&f, "dag", 64, 1, NULL, 0);
    check_product(&f, &plain);
    small.n = 3;
    check_product(&f, &small);
    close_graph(&f);
    open_graph(&f, "mlp", 64, 2, dropped, 4);
    check_product(&f, &plain);
    small.micro = 2;
    check_product(&f, &small);
    close_graph(&f);
}
END_TEST

static double dot(const fixture *f, const double *a, const double *b)
{
    double sum = 0;
    EACH_ELEMENT(f, i) sum += a[i] * b[i];
    return sum;
}

START_TEST(the_hessian_is_symmetric)
{
    static const tn_setting settings[] = {{"normalizer", "layernorm"}, {"activation", "tanh"}, {"widths", "[9, 6]"}};
    for (int mlp = 0; mlp < 2; mlp++) {
        fixture f;
        open_graph(&f, mlp ? "mlp" : "dag", 64, 1, settings, mlp ? 3 : 0);
        double *u = direction(&f, 1), *v = direction(&f, 2), *hu = arena(&f), *hv = arena(&f);
        product(&f, &plain, u, hu);
        product(&f, &plain, v, hv);
        ck_assert_double_gt(fabs(dot(&f, u, hv)), 1e-2);
        ck_assert_double_eq_tol(dot(&f, u, hv), dot(&f, v, hu), 1e-11 * fabs(dot(&f, u, hv)));
        tn_free(u);
        tn_free(v);
        tn_free(hu);
        tn_free(hv);
        close_graph(&f);
    }
}
END_TEST

static void read_list(const char *key, double *to, size_t count)
{
    json_t *list = test_golden("tangent.json", key);
    ck_assert_uint_eq(json_array_size(list), count);
    for (size_t i = 0; i < count; i++)
        to[i] = json_number_value(json_array_get(list, i));
    json_decref(list);
}

/* `flat` holds the parameters one behind the other. */
static void spread(const fixture *f, const double *flat, double *to)
{
    int64_t n = 0;
    EACH_ELEMENT(f, i) to[i] = flat[n++];
}

START_TEST(products_as_in_an_independent_script)
{
    static const tn_setting settings[] = {{"widths", "[5, 4]"}, {"normalizer", "layernorm"}, {"activation", "tanh"}};
    enum { SAMPLES = 6, PARAMETERS = 97 };
    double flat[PARAMETERS], target[SAMPLES];
    json_t *seed = test_golden("tangent.json", "seed");
    tn_graph_run run = {.n = SAMPLES, .flags = TN_TRAIN, .seed = json_number_value(seed)};
    fixture f;
    open_graph(&f, "mlp", 64, 1, settings, 3);
    double *v = arena(&f), *found = arena(&f), *needed = arena(&f);
    read_list("x", tn_graph_input(f.graph), SAMPLES * 7);
    read_list("target", target, SAMPLES);
    for (int i = 0; i < SAMPLES; i++)
        ((int32_t *)tn_graph_target(f.graph))[i] = (int32_t)target[i];
    read_list("p", flat, PARAMETERS);
    spread(&f, flat, f.all->p);
    read_list("gradient", flat, PARAMETERS);
    spread(&f, flat, needed);
    gradient(&f, &run);
    EACH_ELEMENT(&f, i) ck_assert_double_eq_tol(((double *)f.all->g)[i], needed[i], 1e-13);
    read_list("v", flat, PARAMETERS);
    spread(&f, flat, v);
    read_list("product", flat, PARAMETERS);
    spread(&f, flat, needed);
    product(&f, &run, v, found);
    EACH_ELEMENT(&f, i) ck_assert_double_eq_tol(found[i], needed[i], 1e-12);
    json_decref(seed);
    tn_free(v);
    tn_free(found);
    tn_free(needed);
    close_graph(&f);
}
END_TEST

START_TEST(micro_batches_add_up)
{
    fixture f;
    tn_graph_run more = plain;
    more.flags |= TN_ACCUMULATE;
    open_graph(&f, "dag", 64, 1, NULL, 0);
    double *v = direction(&f, 21), *once = arena(&f), *twice = arena(&f);
    EACH_ELEMENT(&f, i) twice[i] = NAN;
    product(&f, &plain, v, once);
    product(&f, &plain, v, twice);
    product(&f, &more, v, twice);
    EACH_ELEMENT(&f, i) ck_assert_double_eq_tol(twice[i], 2 * once[i], 1e-14 * (1 + fabs(once[i])));
    tn_free(v);
    tn_free(once);
    tn_free(twice);
    close_graph(&f);
}
END_TEST

/* A product leaves g, p, the shown output and the buffers alone, and allocates nothing after it was planned. */
START_TEST(a_product_leaves_no_trace)
{
    static const tn_setting settings[] = {{"normalizer", "layernorm"}, {"activation", "tanh"}};
    fixture f;
    tn_error err = {0};
    tn_graph_run small = plain;
    small.n = 2;
    open_graph(&f, "mlp", 32, 2, settings, 2);
    size_t bytes = (size_t)f.all->elements * sizeof(float);
    void *v = direction(&f, 21), *hv = arena(&f), *g = arena(&f), *p = arena(&f);
    gradient(&f, &plain);
    ck_ok(tn_graph_offers_tangents(f.graph, &err), err);
    memcpy(g, f.all->g, bytes);
    memcpy(p, f.all->p, bytes);
    const tn_tensor *y = tn_graph_output(f.graph);
    float last = ((const float *)y->data)[3 * BATCH - 1];
    int64_t before = tn_memory_count();
    product(&f, &small, v, hv);
    product(&f, &plain, v, hv);
    ck_assert_int_eq(tn_memory_count(), before);
    ck_assert_mem_eq(g, f.all->g, bytes);
    ck_assert_mem_eq(p, f.all->p, bytes);
    ck_assert_int_eq(y->shape[0], BATCH);
    ck_assert(((const float *)y->data)[3 * BATCH - 1] == last);
    tn_free(v);
    tn_free(hv);
    tn_free(g);
    tn_free(p);
    close_graph(&f);
}
END_TEST

START_TEST(threads_change_no_bit)
{
    void *first = NULL;
    for (int32_t threads = 1; threads <= 3; threads++) {
        fixture f;
        tn_setting width = {"width", "700"}; /* wide enough for several pieces and tiles */
        open_graph(&f, "dag", 32, threads, &width, 1);
        void *v = direction(&f, 21), *hv = arena(&f);
        product(&f, &plain, v, hv);
        if (!first)
            first = hv;
        ck_assert_mem_eq(first, hv, (size_t)f.all->elements * sizeof(float));
        if (hv != first)
            tn_free(hv);
        tn_free(v);
        close_graph(&f);
    }
    tn_free(first);
}
END_TEST

/* Another arena of parameters, as evaluation views are. */
START_TEST(parameters_may_lie_elsewhere)
{
    fixture f;
    tn_graph_run run = plain;
    open_graph(&f, "dag", 64, 1, NULL, 0);
    double *v = direction(&f, 21), *there = arena(&f), *here = arena(&f), *p = direction(&f, 22);
    run.p = p;
    product(&f, &run, v, there);
    memcpy(f.all->p, p, (size_t)f.all->elements * sizeof *p);
    product(&f, &plain, v, here);
    EACH_ELEMENT(&f, i) ck_assert_double_eq(here[i], there[i]);
    tn_free(v);
    tn_free(there);
    tn_free(here);
    tn_free(p);
    close_graph(&f);
}
END_TEST

START_TEST(a_layer_without_tangents_is_named)
{
    static const tn_setting settings[] = {{"widths", "[5]"}, {"activation", "{use: wrong}"}};
    fixture f;
    tn_error err = {0};
    open_graph(&f, "mlp", 32, 1, settings, 2);
    ck_assert_int_eq(tn_graph_offers_tangents(f.graph, &err), TN_E_UNSUPPORTED);
    ck_assert_msg(strstr(err.msg, "hidden.0.activation (wrong)") && strstr(err.msg, "tangents"), "%s", err.msg);
    void *v = direction(&f, 1);
    ck_assert_int_eq(tn_graph_product(f.graph, &plain, v, v, &err), TN_E_UNSUPPORTED);
    tn_free(v);
    close_graph(&f);
}
END_TEST

START_TEST(every_failed_allocation_is_an_error)
{
    fixture f;
    tn_error err = {0};
    int64_t failures = 0;
    open_graph(&f, "dag", 32, 1, NULL, 0);
    for (int32_t status = TN_E_MEMORY; status != TN_OK; failures += status != TN_OK) {
        tn_memory_fail_at(failures);
        status = tn_graph_offers_tangents(f.graph, &err);
        tn_memory_fail_at(-1);
        ck_assert(status == TN_OK || status == TN_E_MEMORY);
    }
    ck_assert_int_ge(failures, 3);
    close_graph(&f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("tangent");
    TCase *all = tcase_create("every layer and loss"), *graphs = tcase_create("graphs");
    tcase_set_timeout(all, 60);
    tcase_set_timeout(graphs, 60);
    tcase_add_test(all, tangents_are_slopes);
    tcase_add_test(all, pieces_change_no_bit);
    tcase_add_test(all, what_is_missing_is_zero);
    tcase_add_test(all, curvature_is_the_slope_of_the_gradient);
    tcase_add_test(graphs, products_as_in_an_independent_script);
    tcase_add_test(graphs, products_are_differences_of_gradients);
    tcase_add_test(graphs, the_hessian_is_symmetric);
    tcase_add_test(graphs, micro_batches_add_up);
    tcase_add_test(graphs, a_product_leaves_no_trace);
    tcase_add_test(graphs, threads_change_no_bit);
    tcase_add_test(graphs, parameters_may_lie_elsewhere);
    tcase_add_test(graphs, a_layer_without_tangents_is_named);
    tcase_add_test(graphs, every_failed_allocation_is_an_error);
    suite_add_tcase(suite, all);
    suite_add_tcase(suite, graphs);
    return test_main(suite);
}
