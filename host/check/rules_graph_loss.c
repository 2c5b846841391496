/* SPDX-License-Identifier: Apache-2.0
 *
 * rules_graph_loss.c: losses and metrics.
 */
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <tenon/loss.h>

#include "host/base/memory.h"
#include "host/check/count.h"
#include "host/check/lone.h"
#include "host/check/rules_graph.h"

#define SUMS_MOST 16
#define THREADS   4

/* A loss and a batch. */
typedef struct {
    const tn_check_subject *subject;
    tn_check_finding *finding;
    tn_loss table;
    tn_instance *instance;
    bool is_class; /* targets are class ids */
    tn_lone_use use;
    int64_t rows, columns, sum_count;
    tn_lone_tensor x, target, dx, sums, tangent, drawn;
    tn_context context;
    double seed;
} lossy;

typedef void visit_loss(lossy *l);

bool tn_check_is_loss(const tn_check_subject *subject)
{
    const tn_entry_info *entry = subject->entry;
    return entry && strcmp(entry->interface, TN_LOSS) == 0 && strcmp(entry->device, "cpu") == 0;
}

static tn_dtype real_type(const lossy *l) { return (tn_dtype){TN_FLOAT, (uint8_t)l->instance->info->real, 1}; }

static void fail(lossy *l, const char *format, ...) TN_PRINTF(2, 3);
static void fail(lossy *l, const char *format, ...)
{
    char words[900];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    tn_check_fail(l->finding, "of a prediction of [%lld, %lld]: %s", (long long)l->rows, (long long)l->columns, words);
}

static bool is_done(const lossy *l) { return l->finding->verdict != TN_CHECK_PASSED; }

/* ---- a batch ---- */

static void fill_target(lossy *l)
{
    if (!l->is_class) {
        tn_lone_random(&l->target, 12, -2, 2);
        return;
    }
    for (int64_t i = 0; i < l->rows; i++)
        ((int32_t *)l->target.view.data)[i] = (int32_t)(i * 7 % l->columns);
}

static bool make_batch(lossy *l, int64_t rows, int64_t columns)
{
    const int64_t shape[] = {rows, columns}, sums[] = {l->sum_count};
    const tn_dtype id = {TN_INT, 32, 1}, wide = {TN_FLOAT, 64, 1}, real = real_type(l);
    const tn_dtype target = l->is_class ? id : real;
    int32_t axes = l->is_class ? 1 : 2;
    l->rows = rows;
    l->columns = columns;
    bool made = tn_lone_make(&l->x, "x", real, 2, shape, &l->use, NULL) == TN_OK &&
                tn_lone_make(&l->dx, "dx", real, 2, shape, &l->use, NULL) == TN_OK &&
                tn_lone_make(&l->tangent, "the direction", real, 2, shape, &l->use, NULL) == TN_OK &&
                tn_lone_make(&l->target, "the target", target, axes, shape, &l->use, NULL) == TN_OK &&
                tn_lone_make(&l->drawn, "drawn targets", target, axes, shape, &l->use, NULL) == TN_OK &&
                tn_lone_make(&l->sums, "the sums", wide, 1, sums, &l->use, NULL) == TN_OK;
    if (!made) {
        tn_check_skip(l->finding, "no memory for a batch");
        return false;
    }
    tn_lone_random(&l->x, 11, -4, 4);
    tn_lone_random(&l->tangent, 13, -1, 1);
    fill_target(l);
    return true;
}

static void close_batch(lossy *l)
{
    tn_lone_tensor *all[] = {&l->x, &l->target, &l->dx, &l->sums, &l->tangent, &l->drawn};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tn_guard_close(&all[i]->guard);
}

static tn_loss_call call_of(lossy *l, int64_t lo, int64_t n, bool with_dx)
{
    return (tn_loss_call){.struct_size = sizeof(tn_loss_call),
                          .hyper = l->instance->hyper,
                          .context = &l->context,
                          .lo = lo,
                          .n = n,
                          .x = &l->x.view,
                          .target = &l->target.view,
                          .dx = with_dx ? &l->dx.view : NULL,
                          .seed = l->seed,
                          .sums = l->sums.view.data};
}

static void evaluate(lossy *l, int64_t lo, int64_t n, bool with_dx)
{
    const tn_loss_call call = call_of(l, lo, n, with_dx);
    tn_check_stage(l->subject, "evaluate of rows %lld to %lld", (long long)lo, (long long)(lo + n));
    l->table.evaluate(&call);
    tn_check_stage(l->subject, NULL);
}

static double sum_of(const lossy *l, int64_t i) { return ((const double *)l->sums.view.data)[i]; }
static void spoil(lossy *l, tn_lone_tensor *t, int byte)
{
    (void)l;
    memset(t->view.data, byte, t->bytes);
}

/* ---- opening ---- */

static bool open_loss(const tn_check_subject *subject, tn_check_finding *finding, lossy *l)
{
    tn_error err = {0};
    const tn_entry_info *entry = subject->entry;
    *l = (lossy){.subject = subject,
                 .finding = finding,
                 .table = {.struct_size = sizeof l->table},
                 .seed = 1,
                 .context = {.struct_size = sizeof l->context, .attempt = 4, .key = 0xFEDCBA9876543210}};
    if (!tn_check_load(subject, &l->table, sizeof l->table, finding))
        return false;
    if (tn_instance_create(subject->registry, entry->kind, entry->name, entry->real ? entry->real : 32, entry->name,
                           NULL, 0, &l->instance, &err) != TN_OK) {
        tn_check_skip(finding, "no instance with its defaults: %s", err.msg);
        return false;
    }
    const json_t *facts = l->instance->info->facts;
    l->is_class = strcmp(tn_fact_text(facts, "targets", "class"), "class") == 0;
    l->sum_count = TN_SUM_FIRST + (int64_t)json_array_size(json_object_get(facts, "metrics"));
    if (!l->table.check || !l->table.evaluate)
        tn_check_fail(finding, "its table lacks check or evaluate");
    else if (l->sum_count > SUMS_MOST)
        tn_check_fail(finding, "it has %lld sums; at most %d are allowed", (long long)l->sum_count, SUMS_MOST);
    return !is_done(l);
}

static bool accepts(lossy *l)
{
    tn_error err = {0};
    tn_tensor x = l->x.view, target = l->target.view;
    x.data = target.data = NULL;
    if (l->table.check(l->instance->hyper, &x, &target, &err) == TN_OK)
        return true;
    tn_check_skip(l->finding, "it does not take a prediction of [%lld, %lld] with targets \"%s\": %s",
                  (long long)l->rows, (long long)l->columns, l->is_class ? "class" : "real", err.msg);
    return false;
}

static void tour(const tn_check_subject *subject, tn_check_finding *finding, const tn_lone_use *use, visit_loss *visit)
{
    static const int64_t shapes[][2] = {{3, 7}, {1, 2}, {17, 10}, {5, 64}, {4, 300}, {16, 16}};
    static lossy l;
    if (!open_loss(subject, finding, &l))
        return;
    l.use = *use;
    tn_guard_watch(subject->stage, 256);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes && !is_done(&l); i++) {
        if (make_batch(&l, shapes[i][0], shapes[i][1]) && accepts(&l))
            visit(&l);
        close_batch(&l);
    }
    tn_instance_free(l.instance);
}

static void plain(const tn_check_subject *subject, tn_check_finding *finding, visit_loss *visit)
{
    tour(subject, finding, &(tn_lone_use){0}, visit);
}

/* ---- shapes ---- */

typedef struct {
    int32_t axes[2];
    int64_t x[3], target[3];
} wrong_shape;

static void refuse_one(lossy *l, const wrong_shape *wrong)
{
    tn_error err = {0};
    tn_tensor x = l->x.view, target = l->target.view;
    int64_t shapes[2][3];
    memcpy(shapes[0], wrong->x, sizeof shapes[0]);
    memcpy(shapes[1], wrong->target, sizeof shapes[1]);
    x.data = target.data = NULL;
    x.ndim = wrong->axes[0];
    target.ndim = wrong->axes[1];
    x.shape = shapes[0];
    target.shape = shapes[1];
    if (l->table.check(l->instance->hyper, &x, &target, &err) == TN_OK)
        fail(l,
             "check takes a prediction of %d axes with extents %lld, %lld and a target of %d axes with %lld, %lld; "
             "shapes that differ are refused, not broadcast",
             x.ndim, (long long)wrong->x[0], (long long)wrong->x[1], target.ndim, (long long)wrong->target[0],
             (long long)wrong->target[1]);
    else if (!*err.msg)
        fail(l, "check refuses shapes and gives no reason; name both");
    if (l->table.check(l->instance->hyper, &x, &target, NULL) == TN_OK)
        fail(l, "check takes with err NULL what it refuses else");
}

static void visit_shapes(lossy *l)
{
    static const wrong_shape of_classes[] = {{{2, 2}, {3, 4}, {3, 1}},
                                             {{2, 1}, {3, 4}, {1}},
                                             {{2, 1}, {1, 4}, {3}},
                                             {{2, 1}, {3, 4}, {4}}},
                             of_reals[] = {{{2, 1}, {3, 1}, {3}},
                                           {{2, 2}, {3, 4}, {3, 1}},
                                           {{2, 2}, {1, 4}, {3, 4}},
                                           {{2, 3}, {3, 4}, {3, 4, 1}},
                                           {{2, 2}, {3, 4}, {4, 3}}};
    const wrong_shape *list = l->is_class ? of_classes : of_reals;
    size_t count = l->is_class ? sizeof of_classes / sizeof *of_classes : sizeof of_reals / sizeof *of_reals;
    for (size_t i = 0; i < count && !is_done(l); i++)
        refuse_one(l, &list[i]);
    tn_tensor target = l->target.view;
    tn_error err = {0};
    target.data = NULL;
    target.dtype = l->is_class ? real_type(l) : (tn_dtype){TN_INT, 32, 1};
    if (!is_done(l) && l->table.check(l->instance->hyper, &l->x.view, &target, &err) == TN_OK)
        fail(l, "check takes targets of type code %d with %d bits, though its note says targets \"%s\"",
             target.dtype.code, target.dtype.bits, l->is_class ? "class" : "real");
}

void tn_check_loss_shapes(const tn_check_subject *subject, tn_check_finding *finding)
{
    plain(subject, finding, visit_shapes);
}

/* ---- memory ---- */

static void look_at(lossy *l, const tn_lone_tensor *t, const char *name)
{
    size_t damage = tn_guard_damage(&t->guard);
    if (damage)
        fail(l, "%zu bytes beside '%s' were written, which is lent %zu bytes", damage, name, t->bytes);
}

static void lock(lossy *l, int32_t locked)
{
    tn_guard_read_only(&l->x.guard, locked);
    tn_guard_read_only(&l->target.guard, locked);
    tn_guard_read_only(&l->tangent.guard, locked);
}

static void visit_memory(lossy *l)
{
    const tn_loss_call call = call_of(l, 0, l->rows, true);
    lock(l, 1);
    evaluate(l, 0, l->rows, true);
    evaluate(l, l->rows - 1, 1, false);
    evaluate(l, 0, 1, true);
    tn_check_stage(l->subject, "curvature");
    if (l->table.curvature)
        l->table.curvature(&call, &l->tangent.view);
    tn_check_stage(l->subject, "sample_targets");
    if (l->table.sample_targets)
        l->table.sample_targets(&call, &l->drawn.view);
    tn_check_stage(l->subject, NULL);
    lock(l, 0);
    look_at(l, &l->x, "x");
    look_at(l, &l->target, "the target");
    look_at(l, &l->dx, "dx");
    look_at(l, &l->sums, "the sums");
    look_at(l, &l->drawn, "drawn targets");
}

void tn_check_loss_memory(const tn_check_subject *subject, tn_check_finding *finding)
{
    for (int32_t place = TN_GUARD_START; place <= TN_GUARD_END && finding->verdict == TN_CHECK_PASSED; place++)
        tour(subject, finding, &(tn_lone_use){.is_strict = true, .place = place}, visit_memory);
}

/* ---- what a call gives ---- */

typedef struct {
    double sums[SUMS_MOST];
    unsigned char *dx;
} outcome;

static outcome take(const lossy *l)
{
    outcome o = {.dx = tn_alloc(l->dx.bytes + 1, 1)};
    memcpy(o.sums, l->sums.view.data, (size_t)l->sum_count * sizeof *o.sums);
    if (o.dx)
        memcpy(o.dx, l->dx.view.data, l->dx.bytes);
    return o;
}

static void same_sums(lossy *l, const outcome *o, const char *why)
{
    for (int64_t i = 0; i < l->sum_count && !is_done(l); i++)
        if (memcmp(&o->sums[i], (const double *)l->sums.view.data + i, sizeof *o->sums) != 0)
            fail(l, "sum %lld is %.9g, was %.9g: %s", (long long)i, sum_of(l, i), o->sums[i], why);
}

static void same_dx(lossy *l, const outcome *o, const char *why)
{
    size_t at = 0, width = l->dx.view.dtype.bits / 8u;
    if (is_done(l) || !o->dx || memcmp(o->dx, l->dx.view.data, l->dx.bytes) == 0)
        return;
    while (memcmp(o->dx + at, (const char *)l->dx.view.data + at, width) == 0)
        at += width;
    tn_lone_tensor before = l->dx;
    before.view.data = o->dx;
    fail(l, "dx[%zu] is %.9g, was %.9g: %s", at / width, tn_lone_get(&l->dx, (int64_t)(at / width)),
         tn_lone_get(&before, (int64_t)(at / width)), why);
}

static void visit_outputs(lossy *l)
{
    static const char *const why = "it depends on what the memory to be set held before, or is not set";
    spoil(l, &l->dx, TN_LONE_NAN);
    spoil(l, &l->sums, TN_LONE_NAN);
    evaluate(l, 0, l->rows, true);
    outcome o = take(l);
    spoil(l, &l->dx, TN_LONE_LARGE);
    spoil(l, &l->sums, TN_LONE_LARGE);
    evaluate(l, 0, l->rows, true);
    same_sums(l, &o, why);
    same_dx(l, &o, why);
    evaluate(l, 0, l->rows, false);
    same_sums(l, &o, "it depends on whether dx is wanted");
    if (!is_done(l) && sum_of(l, TN_SUM_COUNT) != (double)l->rows)
        fail(l, "the count of targets is %.9g", sum_of(l, TN_SUM_COUNT));
    tn_free(o.dx);
}

void tn_check_loss_outputs(const tn_check_subject *subject, tn_check_finding *finding)
{
    plain(subject, finding, visit_outputs);
}

static void visit_repeat(lossy *l)
{
    evaluate(l, 0, l->rows, true);
    outcome o = take(l);
    tn_lone_random(&l->x, 14, 5, 9);
    l->context.attempt++;
    evaluate(l, 0, l->rows, true);
    l->context.attempt--;
    tn_lone_random(&l->x, 11, -4, 4);
    evaluate(l, 0, l->rows, true);
    same_sums(l, &o, "the same call once more gives something else; a plugin keeps no memory between calls");
    same_dx(l, &o, "the same call once more gives something else; a plugin keeps no memory between calls");
    tn_free(o.dx);
}

void tn_check_loss_repeat(const tn_check_subject *subject, tn_check_finding *finding)
{
    plain(subject, finding, visit_repeat);
}

/* ---- pieces ---- */

static void check_cut(lossy *l, int64_t extent, const outcome *whole)
{
    double sums[SUMS_MOST] = {0};
    spoil(l, &l->dx, TN_LONE_NAN);
    for (int64_t lo = (l->rows - 1) / extent * extent; lo >= 0; lo -= extent) {
        evaluate(l, lo, l->rows - lo < extent ? l->rows - lo : extent, true);
        for (int64_t i = 0; i < l->sum_count; i++)
            sums[i] += sum_of(l, i);
    }
    same_dx(l, whole, "results must not depend on how the rows are cut into pieces");
    for (int64_t i = 0; i < l->sum_count && !is_done(l); i++)
        if (!(fabs(sums[i] - whole->sums[i]) <= 1e-9 * fmax(1, fabs(whole->sums[i]))))
            fail(l, "sum %lld is %.12g in pieces of %lld rows and %.12g in one; sums are of the piece's rows",
                 (long long)i, sums[i], (long long)extent, whole->sums[i]);
}

static void check_empty(lossy *l)
{
    spoil(l, &l->sums, TN_LONE_NAN);
    evaluate(l, 0, 0, true);
    for (int64_t i = 0; i < l->sum_count && !is_done(l); i++)
        if (sum_of(l, i) != 0)
            fail(l, "of no rows sum %lld is %.9g, needed 0", (long long)i, sum_of(l, i));
}

static void visit_pieces(lossy *l)
{
    evaluate(l, 0, l->rows, true);
    outcome whole = take(l);
    check_cut(l, 1, &whole);
    if (!is_done(l))
        check_cut(l, 6, &whole);
    if (!is_done(l))
        check_empty(l);
    tn_free(whole.dx);
}

void tn_check_loss_pieces(const tn_check_subject *subject, tn_check_finding *finding)
{
    plain(subject, finding, visit_pieces);
}

/* ---- derivatives ---- */

typedef struct {
    double step, tolerance;
} method;

static method method_of(const lossy *l)
{
    return l->instance->info->real == 64 ? (method){1e-4, 1e-7} : (method){0x1p-6, 2e-3};
}

static double loss_at(lossy *l, int64_t i, double value)
{
    tn_lone_set(&l->x, i, value);
    evaluate(l, 0, l->rows, false);
    return sum_of(l, TN_SUM_LOSS);
}

static double difference(lossy *l, int64_t i, double h)
{
    double at = tn_lone_get(&l->x, i), near[2] = {loss_at(l, i, at - h), loss_at(l, i, at + h)},
           far[2] = {loss_at(l, i, at - 2 * h), loss_at(l, i, at + 2 * h)};
    tn_lone_set(&l->x, i, at);
    return (8 * (near[1] - near[0]) - (far[1] - far[0])) / (12 * h);
}

static void check_slope(lossy *l, int64_t i)
{
    method m = method_of(l);
    double wide = difference(l, i, m.step), narrow = difference(l, i, m.step / 2);
    evaluate(l, 0, l->rows, true);
    double got = tn_lone_get(&l->dx, i), unit = m.tolerance * fmax(1, fabs(narrow));
    if (fabs(wide - narrow) <= unit / 2 && !(fabs(got - l->seed * narrow) <= unit))
        fail(l, "with seed %g dx[%lld] is %.9g, by central differences of the sum %.9g", l->seed, (long long)i, got,
             l->seed * narrow);
}

static void visit_slopes(lossy *l)
{
    int64_t n = tn_lone_count(&l->x), stride = n / 24 + 1;
    l->seed = 0.25;
    for (int64_t i = 0; i < n && !is_done(l); i += stride)
        check_slope(l, i);
}

void tn_check_loss_slopes(const tn_check_subject *subject, tn_check_finding *finding)
{
    plain(subject, finding, visit_slopes);
}

/* dx where x has moved by h along the direction. */
static double *gradient_at(lossy *l, const double *at, double h)
{
    for (int64_t i = 0; i < tn_lone_count(&l->x); i++)
        tn_lone_set(&l->x, i, at[i] + h * tn_lone_get(&l->tangent, i));
    evaluate(l, 0, l->rows, true);
    return tn_lone_values(&l->dx);
}

static void visit_curvature(lossy *l)
{
    method m = method_of(l);
    double *at = tn_lone_values(&l->x), *values[4];
    if (!l->table.curvature) {
        tn_check_skip(l->finding, "it offers no curvature");
        return;
    }
    for (int k = 0; k < 4; k++)
        values[k] = gradient_at(l, at, m.step * (double[]){-2, -1, 1, 2}[k]);
    tn_free(gradient_at(l, at, 0));
    const tn_loss_call call = call_of(l, 0, l->rows, true);
    spoil(l, &l->dx, TN_LONE_NAN);
    tn_check_stage(l->subject, "curvature");
    l->table.curvature(&call, &l->tangent.view);
    for (int64_t i = 0; i < tn_lone_count(&l->dx) && !is_done(l); i++) {
        double right = (8 * (values[2][i] - values[1][i]) - (values[3][i] - values[0][i])) / (12 * m.step);
        if (!(fabs(tn_lone_get(&l->dx, i) - right) <= m.tolerance * fmax(1, fabs(right))))
            fail(l, "curvature gives dx[%lld] %.9g, by central differences of the gradient along the direction %.9g",
                 (long long)i, tn_lone_get(&l->dx, i), right);
    }
    tn_free(at);
    for (int k = 0; k < 4; k++)
        tn_free(values[k]);
}

void tn_check_loss_curvature(const tn_check_subject *subject, tn_check_finding *finding)
{
    plain(subject, finding, visit_curvature);
}

/* ---- class ids that are none ---- */

static void visit_ignored(lossy *l)
{
    if (!l->is_class || l->rows < 3)
        return;
    for (int64_t i = 0; i < l->rows; i++)
        ((int32_t *)l->target.view.data)[i] = i == 1 ? 0 : (int32_t)(-1 - 99 * i);
    for (int64_t j = 0; j < l->columns; j++) {
        tn_lone_set(&l->x, j, NAN); /* rows that do not count may hold anything */
        tn_lone_set(&l->x, 2 * l->columns + j, INFINITY);
    }
    evaluate(l, 0, l->rows, true);
    if (sum_of(l, TN_SUM_COUNT) != 1)
        fail(l, "with all targets but one negative the count is %.9g, needed 1: they are ignored",
             sum_of(l, TN_SUM_COUNT));
    for (int64_t i = 0; i < l->sum_count && !is_done(l); i++)
        if (!isfinite(sum_of(l, i)))
            fail(l, "sum %lld is %.9g: rows with a negative target add to it", (long long)i, sum_of(l, i));
    for (int64_t i = 0; i < tn_lone_count(&l->dx) && !is_done(l); i++)
        if (i / l->columns != 1 && tn_lone_get(&l->dx, i) != 0)
            fail(l, "dx[%lld] is %.9g in a row whose target is negative; needed 0", (long long)i,
                 tn_lone_get(&l->dx, i));
}

void tn_check_loss_ignored(const tn_check_subject *subject, tn_check_finding *finding)
{
    plain(subject, finding, visit_ignored);
}

/* x ends where the pages do: who reads at a class that is none ends the process. */
static void visit_label(lossy *l)
{
    const int32_t labels[] = {(int32_t)l->columns, 1000000, INT32_MAX};
    for (int k = 0; l->is_class && k < 3 && !is_done(l); k++) {
        fill_target(l);
        ((int32_t *)l->target.view.data)[l->rows - 1] = labels[k];
        evaluate(l, 0, l->rows, true);
        if (isfinite(sum_of(l, TN_SUM_LOSS)))
            fail(l, "target %d of %lld classes gives a finite loss, %.9g; make it NaN, so that the step is not taken",
                 labels[k], (long long)l->columns, sum_of(l, TN_SUM_LOSS));
    }
}

void tn_check_loss_label(const tn_check_subject *subject, tn_check_finding *finding)
{
    tour(subject, finding, &(tn_lone_use){.is_strict = true, .place = TN_GUARD_END}, visit_label);
}

/* ---- numbers that are none ---- */

static void visit_nonfinite(lossy *l)
{
    static const double values[] = {INFINITY, -INFINITY, 1e300, -1e300, 5e-324};
    int64_t n = tn_lone_count(&l->x), stride = n / 12 + 1;
    for (int64_t i = 0; i < n && !is_done(l); i += stride) {
        double at = tn_lone_get(&l->x, i), before = loss_at(l, i, at), moved = loss_at(l, i, at + 1),
               spoilt = loss_at(l, i, NAN);
        if (moved != before && isfinite(spoilt)) /* the loss depends on it */
            fail(l, "x[%lld] is NaN, and the loss is %.9g: a NaN that is swallowed hides a run that went wrong",
                 (long long)i, spoilt);
        tn_lone_set(&l->x, i, at);
    }
    for (size_t k = 0; k < sizeof values / sizeof *values; k++) {
        for (int64_t i = 0; i < n; i++)
            tn_lone_set(&l->x, i, values[k]);
        evaluate(l, 0, l->rows, true);
    }
}

void tn_check_loss_nonfinite(const tn_check_subject *subject, tn_check_finding *finding)
{
    plain(subject, finding, visit_nonfinite);
}

/* ---- drawn targets ---- */

static void draw(lossy *l, int64_t lo, int64_t n)
{
    const tn_loss_call call = call_of(l, lo, n, false);
    tn_check_stage(l->subject, "sample_targets");
    l->table.sample_targets(&call, &l->drawn.view);
    tn_check_stage(l->subject, NULL);
}

static void check_ids(lossy *l)
{
    const int32_t *given = l->target.view.data, *drawn = l->drawn.view.data;
    for (int64_t i = 0; l->is_class && i < l->rows && !is_done(l); i++)
        if (given[i] < 0 ? drawn[i] >= 0 : drawn[i] < 0 || drawn[i] >= l->columns)
            fail(l, "sample_targets draws %d for row %lld, whose target is %d, of %lld classes", drawn[i], (long long)i,
                 given[i], (long long)l->columns);
}

static void check_draw_cut(lossy *l)
{
    spoil(l, &l->drawn, 0x11);
    draw(l, 0, l->rows);
    unsigned char *whole = tn_alloc(l->drawn.bytes, 1);
    if (!whole)
        return;
    memcpy(whole, l->drawn.view.data, l->drawn.bytes);
    spoil(l, &l->drawn, 0x22);
    for (int64_t i = l->rows - 1; i >= 0; i--)
        draw(l, i, 1);
    if (memcmp(whole, l->drawn.view.data, l->drawn.bytes) != 0)
        fail(l, "drawn targets depend on how the rows are cut into pieces, or on the calls before; a draw depends on "
                "the key, the attempt and the row");
    tn_free(whole);
}

#define DRAWS 2000

/* Under targets of the model's own distribution the gradient is 0 in the mean, in each direction. */
static void check_score(lossy *l)
{
    double sum = 0, squares = 0;
    tn_lone_tensor given = l->target;
    for (int k = 0; k < DRAWS; k++) {
        double along = 0;
        l->context.attempt = 100 + k;
        draw(l, 0, l->rows);
        l->target = l->drawn;
        evaluate(l, 0, l->rows, true);
        l->target = given;
        for (int64_t i = 0; i < tn_lone_count(&l->dx); i++)
            along += tn_lone_get(&l->dx, i) * tn_lone_get(&l->tangent, i);
        sum += along;
        squares += along * along;
    }
    double mean = sum / DRAWS, error = sqrt(fmax(0, squares / DRAWS - mean * mean) / DRAWS);
    if (!(fabs(mean) <= 6 * error + 1e-6))
        fail(l,
             "over %d draws of sample_targets the gradient along a direction is %.6g in the mean, %.1f standard errors "
             "from 0; targets of the model's own distribution leave no slope",
             DRAWS, mean, error > 0 ? fabs(mean) / error : INFINITY);
}

static void visit_samples(lossy *l)
{
    if (!l->table.sample_targets) {
        tn_check_skip(l->finding, "it offers no drawn targets");
        return;
    }
    if (l->is_class && l->rows > 2)
        ((int32_t *)l->target.view.data)[2] = -1;
    spoil(l, &l->drawn, 0x7F);
    draw(l, 0, l->rows);
    check_ids(l);
    if (!is_done(l))
        check_draw_cut(l);
    if (!is_done(l))
        check_score(l);
}

void tn_check_loss_samples(const tn_check_subject *subject, tn_check_finding *finding)
{
    plain(subject, finding, visit_samples);
}

/* ---- threads ---- */

#define REPEATS 50

static lossy beside[THREADS];
static outcome rights[THREADS];
static tn_check_finding findings[THREADS];

static void run_beside(void *arg, int64_t index, int32_t thread)
{
    lossy *l = &beside[index];
    const tn_loss_call call = call_of(l, 0, l->rows, true);
    (void)arg, (void)thread;
    for (int k = 0; k < REPEATS && !is_done(l); k++) {
        l->table.evaluate(&call);
        same_sums(l, &rights[index],
                  "calls of 4 threads at a time change each other's results; keep nothing in "
                  "static memory");
        same_dx(l, &rights[index],
                "calls of 4 threads at a time change each other's results; keep nothing in static "
                "memory");
    }
}

static void visit_threads(lossy *l)
{
    tn_error err = {0};
    tn_pool *pool = NULL;
    if (tn_pool_create(THREADS, &pool, &err) != TN_OK) {
        tn_check_skip(l->finding, "%s", err.msg);
        return;
    }
    for (int i = 0; i < THREADS; i++) {
        findings[i] = *l->finding;
        beside[i] = *l;
        beside[i].finding = &findings[i];
        beside[i].x = beside[i].dx = beside[i].target = beside[i].sums = (tn_lone_tensor){0};
        beside[i].tangent = beside[i].drawn = (tn_lone_tensor){0};
        make_batch(&beside[i], l->rows, l->columns);
        tn_lone_random(&beside[i].x, 500 + (uint64_t)i, -4, 4);
        evaluate(&beside[i], 0, l->rows, true);
        rights[i] = take(&beside[i]);
    }
    tn_check_stage(l->subject, "evaluate on %d threads", THREADS);
    tn_pool_run(pool, run_beside, NULL, THREADS);
    for (int i = 0; i < THREADS; i++) {
        if (findings[i].verdict != TN_CHECK_PASSED)
            *l->finding = findings[i];
        tn_free(rights[i].dx);
        close_batch(&beside[i]);
    }
    tn_pool_destroy(pool);
}

void tn_check_loss_threads(const tn_check_subject *subject, tn_check_finding *finding)
{
    plain(subject, finding, visit_threads);
}

/* ---- the heap ---- */

#define CALLS 10000
#define MOST  ((int64_t)1 << 20) /* bytes that a process may grow by meanwhile, for reasons of its own */

static void all_calls(lossy *l)
{
    const tn_loss_call call = call_of(l, 0, l->rows, true);
    l->table.evaluate(&call);
    if (l->table.curvature)
        l->table.curvature(&call, &l->tangent.view);
    if (l->table.sample_targets)
        l->table.sample_targets(&call, &l->drawn.view);
}

static void visit_heap(lossy *l)
{
    tn_error err = {0};
    all_calls(l);
    if (tn_count_open(&err) != TN_OK) {
        tn_check_skip(l->finding, "%s", err.msg);
        return;
    }
    int64_t mapped = tn_count_mapped(), files = tn_count_files(), before = tn_count_allocations();
    int calls = l->rows == 3 ? CALLS : 10;
    for (int k = 0; k < calls; k++)
        all_calls(l);
    int64_t made = tn_count_allocations() - before;
    if (made > 0)
        fail(l, "%d calls allocate %lld times (%s); a step of training must not wait for the heap", calls,
             (long long)made, tn_count_last());
    else if (tn_count_files() > files)
        fail(l, "%lld files are left open after %d calls", (long long)(tn_count_files() - files), calls);
    else if (tn_count_mapped() > mapped + MOST)
        fail(l, "the process has grown by %lld bytes after %d calls", (long long)(tn_count_mapped() - mapped), calls);
}

void tn_check_loss_heap(const tn_check_subject *subject, tn_check_finding *finding)
{
    plain(subject, finding, visit_heap);
}
