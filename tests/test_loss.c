/* SPDX-License-Identifier: Apache-2.0
 *
 * Losses of the built plugins: what the contract promises of all, in loops over the registry; then cross-entropy and
 * mse against golden/layers.json, the known faults by name and drawn targets.
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <tenon/loss.h>

#include "tests/component.h"
#include "tests/layer_drive.h"

#define SUMS_MAX 16

/* A loss with a batch: prediction, targets, gradient. */
typedef struct {
    tn_instance *instance;
    tn_loss loss;
    drive_tensor x, target, dx;
    tn_context context;
    double seed;
    int64_t sum_count;
} subject;

static tn_dtype real_type(const subject *s) { return (tn_dtype){TN_FLOAT, (uint8_t)s->instance->info->real, 1}; }

static const char *targets_of(const tn_instance *loss)
{
    const char *targets = json_string_value(json_object_get(loss->info->facts, "targets"));
    return targets ? targets : "none";
}

/* Real targets have the shape of the prediction. */
static void open_loss(subject *s, const char *name, uint32_t real, int64_t rows, int64_t classes)
{
    int64_t shape[] = {rows, classes};
    *s = (subject){.loss = {.struct_size = sizeof s->loss},
                   .seed = 1,
                   .context = {.struct_size = sizeof s->context, .attempt = 4, .key = 0xFEDCBA9876543210}};
    s->instance = component_open("loss", name, real, &s->loss, sizeof s->loss);
    s->sum_count = TN_SUM_FIRST + (int64_t)json_array_size(json_object_get(s->instance->info->facts, "metrics"));
    ck_assert_int_le(s->sum_count, SUMS_MAX);
    drive_make(&s->x, real_type(s), 2, shape);
    drive_make(&s->dx, real_type(s), 2, shape);
    int class = !strcmp(targets_of(s->instance), "class");
    drive_make(&s->target, class ? (tn_dtype){TN_INT, 32, 1} : real_type(s), class ? 1 : 2, shape);
    drive_randomise(&s->x, 11, -4, 4);
    if (!class)
        drive_randomise(&s->target, 12, -2, 2);
    for (int64_t i = 0; class && i < rows; i++)
        drive_set(&s->target, i, (double)(i * 7 % classes));
}

static void close_loss(subject *s)
{
    drive_check_guard(&s->x, "x");
    drive_check_guard(&s->dx, "dx");
    drive_check_guard(&s->target, "target");
    drive_unmake(&s->x);
    drive_unmake(&s->dx);
    drive_unmake(&s->target);
    tn_instance_free(s->instance);
}

/* Evaluates in pieces of `extent` rows (0: one), from the last to the first, and adds up their sums. */
static void evaluate(subject *s, int64_t extent, int with_gradient, double sums[SUMS_MAX])
{
    int64_t rows = s->x.shape[0], pieces = extent ? (rows + extent - 1) / extent : 1;
    extent = extent ? extent : rows;
    memset(s->dx.view.data, 0xFF, s->dx.bytes);
    for (int64_t i = 0; i < s->sum_count; i++)
        sums[i] = 0;
    for (int64_t piece = pieces - 1; piece >= 0; piece--) {
        double part[SUMS_MAX + 1];
        for (int i = 0; i <= SUMS_MAX; i++)
            part[i] = i < s->sum_count ? NAN : 12345;
        int64_t lo = piece * extent, n = rows - lo < extent ? rows - lo : extent;
        tn_loss_call call = {sizeof call,
                             0,
                             s->instance->hyper,
                             &s->context,
                             lo,
                             n,
                             &s->x.view,
                             &s->target.view,
                             with_gradient ? &s->dx.view : NULL,
                             s->seed,
                             part};
        s->loss.evaluate(&call);
        ck_assert_double_eq(part[s->sum_count], 12345);
        for (int64_t i = 0; i < s->sum_count; i++)
            sums[i] += part[i];
    }
}

/* ---- every loss ---- */

/* Those with targets of that kind. */
static void each_loss(const char *targets, uint32_t real, void (*examine)(const char *name, uint32_t real))
{
    int losses = 0;
    for (size_t i = 0; i < tn_registry_count(test_plugins()); i++) {
        const tn_entry_info *entry = tn_registry_at(test_plugins(), i);
        if (entry->state != TN_FOUND || strcmp(entry->interface, TN_LOSS) != 0 || strcmp(entry->kind, "loss") != 0 ||
            entry->real != real || strcmp(entry->device, "cpu") != 0)
            continue;
        tn_loss table = {.struct_size = sizeof table};
        tn_instance *instance = component_open("loss", entry->name, real, &table, sizeof table);
        if (!strcmp(targets_of(instance), targets)) {
            examine(entry->name, real);
            losses++;
        }
        tn_instance_free(instance);
    }
    ck_assert_int_ge(losses, 1);
}

static const int64_t shapes[][2] = {{1, 2}, {1, 10}, {3, 7}, {17, 10}, {5, 64}, {4, 300}};
#define SHAPES (sizeof shapes / sizeof *shapes)

static double difference(subject *s, int64_t i)
{
    static const double step[] = {-2, -1, 1, 2}, h = 1e-4;
    double at = drive_get(&s->x, i), value[4], sums[SUMS_MAX];
    for (int k = 0; k < 4; k++) {
        drive_set(&s->x, i, at + step[k] * h);
        evaluate(s, 0, 0, sums);
        value[k] = sums[TN_SUM_LOSS];
    }
    drive_set(&s->x, i, at);
    return s->seed * (8 * (value[2] - value[1]) - (value[3] - value[0])) / (12 * h);
}

static void examine_slopes(const char *name, uint32_t real)
{
    for (size_t k = 0; k < SHAPES; k++) {
        subject s;
        double sums[SUMS_MAX];
        open_loss(&s, name, real, shapes[k][0], shapes[k][1]);
        s.seed = 0.25;
        if (shapes[k][0] > 2)
            drive_set(&s.target, 2, -1);
        int64_t n = drive_elements(&s.x), every = n / 60 + 1;
        for (int64_t i = 0; i < n; i += every) {
            double right = difference(&s, i);
            evaluate(&s, 0, 1, sums);
            ck_assert_double_eq_tol(drive_get(&s.dx, i), right, 1e-8);
        }
        close_loss(&s);
    }
}

START_TEST(dx_is_the_slope_of_the_sum)
{
    each_loss("class", 64, examine_slopes);
    each_loss("real", 64, examine_slopes);
}
END_TEST

static void examine_pieces(const char *name, uint32_t real)
{
    for (size_t k = 0; k < SHAPES; k++)
        for (int64_t extent = 1; extent <= 6; extent += 5) {
            subject s;
            double whole[SUMS_MAX], cut[SUMS_MAX], alone[SUMS_MAX];
            open_loss(&s, name, real, shapes[k][0], shapes[k][1]);
            evaluate(&s, 0, 1, whole);
            void *dx = malloc(s.dx.bytes);
            ck_assert_ptr_nonnull(dx);
            memcpy(dx, s.dx.view.data, s.dx.bytes);
            evaluate(&s, extent, 1, cut);
            ck_assert_msg(memcmp(dx, s.dx.view.data, s.dx.bytes) == 0, "%s: dx depends on the cut", name);
            free(dx);
            evaluate(&s, 0, 0, alone);
            for (int64_t i = 0; i < s.sum_count; i++) {
                ck_assert_double_eq_tol(cut[i], whole[i], 1e-12 * fmax(1, fabs(whole[i])));
                ck_assert_double_eq(alone[i], whole[i]);
            }
            close_loss(&s);
        }
}

START_TEST(pieces_and_wishes_change_no_bit)
{
    for (uint32_t real = 32; real <= 64; real += 32) {
        each_loss("class", real, examine_pieces);
        each_loss("real", real, examine_pieces);
    }
}
END_TEST

/* LOS-01: nothing counted. */
static void examine_ignored(const char *name, uint32_t real)
{
    subject s;
    double sums[SUMS_MAX];
    open_loss(&s, name, real, 3, 3);
    drive_set(&s.x, 4, NAN); /* padding may hold anything */
    drive_set(&s.x, 8, INFINITY);
    for (int i = 0; i < 3; i++)
        drive_set(&s.target, i, -1 - 99 * i);
    evaluate(&s, 0, 1, sums);
    for (int64_t i = 0; i < s.sum_count; i++)
        ck_assert_double_eq(sums[i], 0);
    for (int64_t i = 0; i < 9; i++) {
        ck_assert_double_eq(drive_get(&s.dx, i), 0);
        ck_assert(!signbit(drive_get(&s.dx, i)));
    }
    close_loss(&s);
}

START_TEST(los_01_ignored_targets)
{
    each_loss("class", 64, examine_ignored);
    each_loss("class", 32, examine_ignored);
}
END_TEST

/* LOS-04: the message names both shapes. */
static void examine_shapes(const char *name, uint32_t real)
{
    static const struct {
        int32_t ndim[2];
        int64_t x[3], target[2];
        const char *x_text, *target_text;
    } cases[] = {{{1, 1}, {3}, {3}, "[3]", "[3]"},
                 {{2, 2}, {3, 4}, {3, 1}, "[3, 4]", "[3, 1]"},
                 {{2, 1}, {3, 4}, {1}, "[3, 4]", "[1]"},
                 {{2, 1}, {1, 4}, {3}, "[1, 4]", "[3]"},
                 {{2, 0}, {1, 4}, {0}, "[1, 4]", "[]"}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        subject s;
        tn_error err = {0};
        open_loss(&s, name, real, 3, 4);
        ck_assert_int_eq(s.loss.check(s.instance->hyper, &s.x.view, &s.target.view, &err), TN_OK);
        tn_tensor x = s.x.view, target = s.target.view;
        int64_t x_shape[3], target_shape[2];
        memcpy(x_shape, cases[k].x, sizeof x_shape);
        memcpy(target_shape, cases[k].target, sizeof target_shape);
        x.ndim = cases[k].ndim[0];
        target.ndim = cases[k].ndim[1];
        x.shape = x_shape;
        target.shape = target_shape;
        ck_assert_int_eq(s.loss.check(s.instance->hyper, &x, &target, &err), TN_E_INVALID);
        ck_assert_msg(strstr(err.msg, cases[k].x_text) && strstr(err.msg, cases[k].target_text), "%s", err.msg);
        close_loss(&s);
    }
}

/* Of real targets: the pair of [n] and [n, 1] would be [n, n]. */
static void examine_real_shapes(const char *name, uint32_t real)
{
    static const struct {
        int32_t ndim[2];
        int64_t x[3], target[3];
        const char *x_text, *target_text;
    } cases[] = {{{2, 1}, {3, 1}, {3}, "[3, 1]", "[3]"},
                 {{2, 2}, {3, 4}, {3, 1}, "[3, 4]", "[3, 1]"},
                 {{2, 2}, {1, 4}, {3, 4}, "[1, 4]", "[3, 4]"},
                 {{2, 3}, {3, 4}, {3, 4, 1}, "[3, 4]", "[3, 4, 1]"},
                 {{0, 0}, {1}, {1}, "[]", "[]"}};
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        subject s;
        tn_error err = {0};
        open_loss(&s, name, real, 3, 4);
        ck_assert_int_eq(s.loss.check(s.instance->hyper, &s.x.view, &s.target.view, &err), TN_OK);
        tn_tensor x = s.x.view, target = s.target.view;
        x.ndim = cases[k].ndim[0];
        target.ndim = cases[k].ndim[1];
        x.shape = (int64_t *)cases[k].x;
        target.shape = (int64_t *)cases[k].target;
        ck_assert_int_eq(s.loss.check(s.instance->hyper, &x, &target, &err), TN_E_INVALID);
        ck_assert_msg(strstr(err.msg, cases[k].x_text) && strstr(err.msg, cases[k].target_text), "%s", err.msg);
        target = s.target.view;
        target.dtype = (tn_dtype){TN_INT, 32, 1};
        ck_assert_int_eq(s.loss.check(s.instance->hyper, &s.x.view, &target, &err), TN_E_INVALID);
        close_loss(&s);
    }
}

START_TEST(los_04_shapes_are_not_broadcast)
{
    each_loss("class", 64, examine_shapes);
    each_loss("real", 64, examine_real_shapes);
}
END_TEST

/* ---- cross-entropy ---- */

static double number(json_t *one, const char *key, int64_t i)
{
    json_t *value = json_object_get(one, key);
    return json_number_value(i < 0 ? value : json_array_get(value, (size_t)i));
}

static void golden_case(json_t *one, uint32_t real)
{
    subject s;
    double sums[SUMS_MAX], tolerance = real == 64 ? 1e-12 : 2e-6;
    int64_t classes = (int64_t)number(one, "classes", -1),
            rows = (int64_t)json_array_size(json_object_get(one, "target"));
    const char *name = json_string_value(json_object_get(one, "name"));
    open_loss(&s, "cross-entropy", real, rows, classes);
    *tn_instance_real(s.instance, tn_instance_row(s.instance, "smoothing")) = number(one, "smoothing", -1);
    s.seed = number(one, "seed", -1);
    for (int64_t i = 0; i < rows * classes; i++)
        drive_set(&s.x, i, number(one, "x", i));
    for (int64_t i = 0; i < rows; i++)
        drive_set(&s.target, i, number(one, "target", i));
    evaluate(&s, 0, 1, sums);
    for (int64_t i = 0; i < 3; i++)
        ck_assert_msg(fabs(sums[i] - number(one, "sums", i)) <= tolerance * fmax(1, number(one, "sums", i)),
                      "%s: sum %lld is %.15g, needs %.15g", name, (long long)i, sums[i], number(one, "sums", i));
    for (int64_t i = 0; i < rows * classes; i++)
        ck_assert_msg(fabs(drive_get(&s.dx, i) - number(one, "dx", i)) <= tolerance,
                      "%s: dx[%lld] is %.15g, needs %.15g", name, (long long)i, drive_get(&s.dx, i),
                      number(one, "dx", i));
    close_loss(&s);
}

START_TEST(golden_values)
{
    json_t *cases = test_golden("layers.json", "losses"), *one;
    size_t i;
    ck_assert_uint_eq(json_array_size(cases), 4);
    json_array_foreach(cases, i, one) {
        golden_case(one, 64);
        golden_case(one, 32);
    }
    json_decref(cases);
}
END_TEST

/* One row of logits against one target. */
static double loss_of(uint32_t real, const double *x, int64_t classes, int32_t target, const char *smoothing,
                      double *ret_dx, double *ret_correct)
{
    subject s;
    double sums[SUMS_MAX];
    open_loss(&s, "cross-entropy", real, 1, classes);
    component_set(s.instance, "smoothing", smoothing);
    for (int64_t i = 0; i < classes; i++)
        drive_set(&s.x, i, x[i]);
    drive_set(&s.target, 0, target);
    evaluate(&s, 0, 1, sums);
    ck_assert_double_eq(sums[TN_SUM_COUNT], 1);
    for (int64_t i = 0; ret_dx && i < classes; i++)
        ret_dx[i] = drive_get(&s.dx, i);
    if (ret_correct)
        *ret_correct = sums[TN_SUM_FIRST];
    close_loss(&s);
    return sums[TN_SUM_LOSS];
}

/* LOS-05's numbers for two classes: the logit is x[1] - x[0]. */
START_TEST(los_05_saturated_logits)
{
    static const struct {
        double logit;
        int32_t target;
        double loss, slope;
    } cases[] = {
        {1000, 0, 1000, 1}, {1000, 1, 0, 0}, {2, 1, 0.126928011, -0.1192029220}, {2, 0, 2.126928011, 0.8807970780}};
    for (uint32_t real = 32; real <= 64; real += 32)
        for (size_t k = 0; k < 4; k++) {
            double x[] = {0, cases[k].logit}, dx[2], tolerance = real == 64 ? 1e-9 : 1e-6;
            ck_assert_double_eq_tol(loss_of(real, x, 2, cases[k].target, "0", dx, NULL), cases[k].loss, tolerance);
            ck_assert_double_eq_tol(dx[1], cases[k].slope, tolerance);
            ck_assert_double_eq_tol(dx[0], -cases[k].slope, tolerance);
        }
}
END_TEST

START_TEST(smoothing_has_a_floor)
{
    double x[10] = {0}, dx[10];
    x[3] = log(91);
    ck_assert_double_eq_tol(loss_of(64, x, 10, 3, "0.1", dx, NULL), 0.5002880350577578, 1e-14);
    for (int i = 0; i < 10; i++)
        ck_assert_double_eq_tol(dx[i], 0, 1e-15);
}
END_TEST

START_TEST(infinite_logits)
{
    double x[] = {0, -INFINITY, 0, -INFINITY}, y[] = {-INFINITY, -INFINITY}, dx[4];
    for (uint32_t real = 32; real <= 64; real += 32) {
        ck_assert_double_eq_tol(loss_of(real, x, 4, 2, "0", dx, NULL), log(2), 1e-7);
        ck_assert_double_eq(dx[1], 0);
        ck_assert(isinf(loss_of(real, x, 4, 1, "0", NULL, NULL)));
        ck_assert_double_nan(loss_of(real, y, 2, 1, "0", NULL, NULL));
    }
}
END_TEST

START_TEST(the_first_maximum_wins)
{
    double x[40] = {0}, correct;
    x[20] = x[33] = 2;
    for (int32_t target = 0; target < 40; target++) {
        loss_of(32, x, 40, target, "0", NULL, &correct);
        ck_assert_double_eq(correct, target == 20);
    }
    x[20] = x[33] = 0;
    loss_of(64, x, 40, 0, "0", NULL, &correct);
    ck_assert_double_eq(correct, 1);
}
END_TEST

/* No read outside: the tests also run under AddressSanitizer. */
START_TEST(a_target_that_is_no_class)
{
    double x[] = {1, 2, 3}, dx[3];
    static const int32_t targets[] = {3, 1000000, INT32_MAX};
    for (int k = 0; k < 3; k++) {
        ck_assert_double_nan(loss_of(32, x, 3, targets[k], "0.1", dx, NULL));
        for (int i = 0; i < 3; i++)
            ck_assert_double_nan(dx[i]);
    }
}
END_TEST

START_TEST(targets_of_another_type)
{
    subject s;
    tn_error err = {0};
    open_loss(&s, "cross-entropy", 64, 3, 4);
    tn_tensor target = s.target.view;
    target.dtype = (tn_dtype){TN_FLOAT, 64, 1};
    ck_assert_int_eq(s.loss.check(s.instance->hyper, &s.x.view, &target, &err), TN_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.msg, "int32"));
    close_loss(&s);
}
END_TEST

/* ---- drawn targets ---- */

static void draw(subject *s, int64_t lo, int64_t n, drive_tensor *ret)
{
    tn_loss_call call = {sizeof call, 0,   s->instance->hyper, &s->context, lo, n, &s->x.view, &s->target.view, NULL,
                         1,           NULL};
    s->loss.sample_targets(&call, &ret->view);
}

START_TEST(drawn_targets_follow_the_softmax)
{
    enum { ROWS = 40000, CLASSES = 5 };
    static const double p[CLASSES] = {0.5, 0, 0.25, 0.2, 0.05};
    for (uint32_t real = 32; real <= 64; real += 32) {
        subject s;
        drive_tensor drawn;
        int64_t count[CLASSES] = {0}, rows = ROWS;
        open_loss(&s, "cross-entropy", real, ROWS, CLASSES);
        drive_make(&drawn, (tn_dtype){TN_INT, 32, 1}, 1, &rows);
        for (int64_t i = 0; i < ROWS * CLASSES; i++)
            drive_set(&s.x, i, 3 + log(p[i % CLASSES]));
        draw(&s, 0, ROWS, &drawn);
        for (int64_t i = 0; i < ROWS; i++)
            count[(int64_t)drive_get(&drawn, i)]++;
        for (int k = 0; k < CLASSES; k++)
            ck_assert_double_eq_tol((double)count[k] / ROWS, p[k], 4 * sqrt(p[k] * (1 - p[k]) / ROWS) + 1e-9);
        drive_check_guard(&drawn, "drawn targets");
        drive_unmake(&drawn);
        close_loss(&s);
    }
}
END_TEST

START_TEST(drawn_targets_depend_on_attempt_and_row)
{
    enum { ROWS = 50 };
    subject s;
    drive_tensor once, cut;
    int64_t rows = ROWS;
    open_loss(&s, "cross-entropy", 32, ROWS, 300);
    drive_make(&once, (tn_dtype){TN_INT, 32, 1}, 1, &rows);
    drive_make(&cut, (tn_dtype){TN_INT, 32, 1}, 1, &rows);
    drive_set(&s.target, 9, -1);
    draw(&s, 0, ROWS, &once);
    draw(&s, 33, ROWS - 33, &cut);
    draw(&s, 0, 33, &cut);
    ck_assert_mem_eq(once.view.data, cut.view.data, once.bytes);
    ck_assert_double_eq(drive_get(&once, 9), -1);
    s.context.attempt++;
    draw(&s, 0, ROWS, &cut);
    ck_assert_mem_ne(once.view.data, cut.view.data, once.bytes);
    drive_unmake(&once);
    drive_unmake(&cut);
    close_loss(&s);
}
END_TEST

/* ---- mse ---- */

static void real_golden_case(json_t *one, uint32_t real)
{
    subject s;
    double sums[SUMS_MAX], tolerance = real == 64 ? 1e-12 : 2e-6;
    int64_t numbers = (int64_t)number(one, "numbers", -1), n = (int64_t)json_array_size(json_object_get(one, "target"));
    const char *name = json_string_value(json_object_get(one, "name"));
    open_loss(&s, "mse", real, n / numbers, numbers);
    component_set(s.instance, "over", json_string_value(json_object_get(one, "over")));
    s.seed = number(one, "seed", -1);
    for (int64_t i = 0; i < n; i++) {
        drive_set(&s.x, i, number(one, "x", i));
        drive_set(&s.target, i, number(one, "target", i));
    }
    evaluate(&s, 0, 1, sums);
    for (int64_t i = 0; i < 3; i++)
        ck_assert_msg(fabs(sums[i] - number(one, "sums", i)) <= tolerance * fmax(1, number(one, "sums", i)),
                      "%s: sum %lld is %.15g, needs %.15g", name, (long long)i, sums[i], number(one, "sums", i));
    for (int64_t i = 0; i < n; i++)
        ck_assert_msg(
            fabs(drive_get(&s.dx, i) - number(one, "dx", i)) <= tolerance * fmax(1, fabs(number(one, "dx", i))),
            "%s: dx[%lld] is %.15g, needs %.15g", name, (long long)i, drive_get(&s.dx, i), number(one, "dx", i));
    close_loss(&s);
}

START_TEST(golden_values_of_mse)
{
    json_t *cases = test_golden("layers.json", "real_losses"), *one;
    size_t i;
    ck_assert_uint_eq(json_array_size(cases), 3);
    json_array_foreach(cases, i, one) {
        real_golden_case(one, 64);
        real_golden_case(one, 32);
    }
    json_decref(cases);
}
END_TEST

/* Normal around the prediction, of variance 1 / (2 c): then the curvature is that of -log p. */
START_TEST(drawn_targets_of_mse_are_normal)
{
    enum { ROWS = 20000, NUMBERS = 3 };
    static const double variance[] = {0.5, 0.5 * NUMBERS};
    for (int over = 0; over < 2; over++) {
        subject s;
        drive_tensor drawn, cut;
        double mean = 0, squares = 0, fourth = 0;
        open_loss(&s, "mse", 64, ROWS, NUMBERS);
        component_set(s.instance, "over", over ? "mean" : "sum");
        drive_make(&drawn, real_type(&s), 2, s.x.shape);
        drive_make(&cut, real_type(&s), 2, s.x.shape);
        draw(&s, 0, ROWS, &drawn);
        draw(&s, 7, ROWS - 7, &cut);
        draw(&s, 0, 7, &cut);
        ck_assert_mem_eq(drawn.view.data, cut.view.data, drawn.bytes);
        drive_unmake(&cut);
        for (int64_t i = 0; i < ROWS * NUMBERS; i++) {
            double d = drive_get(&drawn, i) - drive_get(&s.x, i);
            mean += d / (ROWS * NUMBERS);
            squares += d * d / (ROWS * NUMBERS);
            fourth += d * d * d * d / (ROWS * NUMBERS);
        }
        ck_assert_double_eq_tol(mean, 0, 4 * sqrt(variance[over] / (ROWS * NUMBERS)));
        ck_assert_double_eq_tol(squares / variance[over], 1, 4 * sqrt(2.0 / (ROWS * NUMBERS)));
        ck_assert_double_eq_tol(fourth / (squares * squares), 3, 0.2);
        drive_check_guard(&drawn, "drawn targets");
        drive_unmake(&drawn);
        close_loss(&s);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loss");
    TCase *all = tcase_create("every loss"), *each = tcase_create("cross-entropy"), *mse = tcase_create("mse");
    tcase_set_timeout(all, 60);
    tcase_add_test(all, dx_is_the_slope_of_the_sum);
    tcase_add_test(all, pieces_and_wishes_change_no_bit);
    tcase_add_test(all, los_01_ignored_targets);
    tcase_add_test(all, los_04_shapes_are_not_broadcast);
    tcase_set_timeout(each, 60);
    tcase_add_test(each, golden_values);
    tcase_add_test(each, los_05_saturated_logits);
    tcase_add_test(each, smoothing_has_a_floor);
    tcase_add_test(each, infinite_logits);
    tcase_add_test(each, the_first_maximum_wins);
    tcase_add_test(each, a_target_that_is_no_class);
    tcase_add_test(each, targets_of_another_type);
    tcase_add_test(each, drawn_targets_follow_the_softmax);
    tcase_add_test(each, drawn_targets_depend_on_attempt_and_row);
    suite_add_tcase(suite, all);
    suite_add_tcase(suite, each);
    tcase_set_timeout(mse, 60);
    tcase_add_test(mse, golden_values_of_mse);
    tcase_add_test(mse, drawn_targets_of_mse_are_normal);
    suite_add_tcase(suite, mse);
    return test_main(suite);
}
