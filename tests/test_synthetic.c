/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/data/synthetic: what each task's formula promises, and that a sample depends on seed, split and number only.
 */
#include <math.h>
#include <stdio.h>

#include <tenon/data.h>

#include "host/base/memory.h"
#include "tests/component.h"

#define TAU 6.283185307179586

typedef struct set {
    tn_instance *c;
    tn_data table;
    tn_data_split split;
    void *memory;
    int64_t features, outputs; /* numbers of a sample, of a target */
} set;

#define ROWS(...)                                                                                                      \
    (const char *const[]) { __VA_ARGS__, NULL }

static void set_open(set *s, uint32_t real, const char *split, const char *const *rows)
{
    tn_error err = {0};
    memset(s, 0, sizeof *s);
    s->c = component_open("data", "synthetic", real, &s->table, sizeof s->table);
    for (; *rows; rows += 2)
        component_set(s->c, rows[0], rows[1]);
    s->split.struct_size = sizeof s->split;
    ck_ok(s->table.describe(s->c->hyper, split, &s->split, &err), err);
    s->memory = tn_alloc_aligned((size_t)s->split.bytes);
    ck_ok(s->table.load(s->c->hyper, split, &s->split, NULL, s->memory, &err), err);
    s->features = s->outputs = 1;
    for (int32_t i = 0; i < s->split.ndim; i++)
        s->features *= s->split.shape[i];
    for (int32_t i = 0; i < s->split.target_ndim; i++)
        s->outputs *= s->split.target_shape[i];
}

static void set_close(set *s)
{
    tn_instance_free(s->c);
    tn_free(s->memory);
}

/* Samples [0, n) of an f64 set; targets as they are. */
static double *gather(const set *s, int64_t n, void *target)
{
    double *x = tn_alloc((size_t)(n * s->features), sizeof *x);
    for (int64_t i = 0; i < n; i++)
        s->table.gather(s->c->hyper, s->memory, NULL, &i, 1, 0, x + i * s->features,
                        (char *)target + i * s->outputs * (s->split.classes ? 4 : 8));
    return x;
}

/* ---- what every task promises ---- */

static const char *const tasks[] = {"blobs", "spirals", "regression", "images"};

/* Four samples in any order and company, of a train seed or another, are the same bits; and all of them differ from
 * those of another split and another seed. */
START_TEST(a_sample_depends_on_its_number)
{
    static const int64_t order[] = {2, 0, 4000, 1}, one[] = {4000};
    for (uint32_t real = 32; real <= 64; real += 32) {
        char x[4][64 * 8], y[4][64 * 8], alone[64 * 8], target[4 * 24], other[24];
        size_t size = real / 8;
        const char *const *rows =
            ROWS("task", tasks[_i], "size", "8", "outputs", "3", "features", "5", "train", "4001", "test", "4001");
        tn_context a = {.struct_size = sizeof a, .key = 1}, b = {.struct_size = sizeof b, .key = 2, .attempt = 9};
        set s;
        set_open(&s, real, "train", rows);
        size_t row = (size_t)s.features * size, goal = (size_t)s.outputs * (s.split.classes ? 4 : size);
        s.table.gather(s.c->hyper, s.memory, &a, order, 4, 1, x, target);
        s.table.gather(s.c->hyper, s.memory, &b, one, 1, 0, alone, other);
        ck_assert_mem_eq((char *)x + 2 * row, alone, row);
        ck_assert_mem_eq(target + 2 * goal, other, goal);
        ck_assert_mem_ne((char *)x, (char *)x + row, row);
        set_close(&s);
        set_open(&s, real, "test", rows);
        s.table.gather(s.c->hyper, s.memory, NULL, order, 4, 1, y, target);
        for (size_t i = 0; i < 4; i++)
            ck_assert_mem_ne((char *)x + i * row, (char *)y + i * row, row);
        set_close(&s);
        set_open(&s, real, "train",
                 ROWS("task", tasks[_i], "size", "8", "outputs", "3", "features", "5", "train", "4001", "seed", "1"));
        s.table.gather(s.c->hyper, s.memory, NULL, order, 4, 1, y, target);
        for (size_t i = 0; i < 4; i++)
            ck_assert_mem_ne((char *)x + i * row, (char *)y + i * row, row);
        set_close(&s);
    }
}
END_TEST

/* f32 is f64, rounded at the end or nearly so. */
START_TEST(both_types_agree)
{
    set s, d;
    const char *const *rows = ROWS("task", tasks[_i], "size", "8", "features", "7", "outputs", "2");
    set_open(&s, 32, "train", rows);
    set_open(&d, 64, "train", rows);
    for (int64_t i = 0; i < 100; i++) {
        float x[64], y[2];
        double wide[64], wide_y[2];
        s.table.gather(s.c->hyper, s.memory, NULL, &i, 1, 1, x, y);
        d.table.gather(d.c->hyper, d.memory, NULL, &i, 1, 1, wide, wide_y);
        for (int64_t j = 0; j < s.features; j++)
            ck_assert_double_eq_tol((double)x[j], wide[j], 1e-6 * fmax(1, fabs(wide[j])));
        if (!s.split.classes)
            ck_assert_double_eq_tol((double)y[1], wide_y[1], 1e-6 * fmax(1, fabs(wide_y[1])));
    }
    set_close(&s);
    set_close(&d);
}
END_TEST

START_TEST(shapes_and_splits)
{
    tn_error err = {0};
    set s;
    set_open(&s, 32, "train", ROWS("task", "images", "size", "12", "flatten", "false", "classes", "5"));
    ck_assert_int_eq(s.split.ndim, 3);
    ck_assert_int_eq(s.split.shape[0], 1);
    ck_assert_int_eq(s.split.shape[1], 12);
    ck_assert_int_eq(s.split.shape[2], 12);
    ck_assert_int_eq(s.split.classes, 5);
    ck_assert_int_eq(s.split.samples, 4096);
    ck_assert_int_eq(s.table.describe(s.c->hyper, "validation", &s.split, &err), TN_E_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(err.msg, "no split \"validation\""));
    ck_assert_int_eq(s.table.load(s.c->hyper, "exam", &s.split, NULL, s.memory, &err), TN_E_NOT_FOUND);
    set_close(&s);
    set_open(&s, 32, "validation", ROWS("task", "regression", "validation", "33", "features", "4", "outputs", "3"));
    ck_assert_int_eq(s.split.samples, 33);
    ck_assert_int_eq(s.split.classes, 0);
    ck_assert_int_eq(s.split.ndim, 1);
    ck_assert_int_eq(s.split.shape[0], 4);
    ck_assert_int_eq(s.split.target_ndim, 1);
    ck_assert_int_eq(s.split.target_shape[0], 3);
    set_close(&s);
}
END_TEST

/* ---- each task ---- */

/* Within a class: the center's neighbourhood, each number of deviation `noise`; the test split has the same centers. */
START_TEST(blobs)
{
    enum { N = 30000, CLASSES = 3, FEATURES = 5 };
    static int32_t target[N];
    double mean[2][CLASSES][FEATURES] = {{{0}}};
    for (int split = 0; split < 2; split++) {
        set s;
        double squares = 0, pairs = 0;
        set_open(&s, 64, split ? "test" : "train",
                 ROWS("features", "5", "noise", "0.25", "train", "30000", "test", "30000"));
        double *x = gather(&s, N, target);
        for (int i = 0; i < N; i++) {
            ck_assert_int_eq(target[i], i % CLASSES);
            for (int j = 0; j < FEATURES; j++)
                mean[split][i % CLASSES][j] += x[i * FEATURES + j] / (N / CLASSES);
        }
        for (int i = 0; i < N; i++)
            for (int j = 0; j < FEATURES; j++) {
                double d = x[i * FEATURES + j] - mean[split][i % CLASSES][j];
                squares += d * d;
                pairs += j ? d * (x[i * FEATURES + j - 1] - mean[split][i % CLASSES][j - 1]) : 0;
            }
        ck_assert_double_eq_tol(sqrt(squares / (N * FEATURES)), 0.25, 0.25 * 4 / sqrt(2.0 * N * FEATURES));
        ck_assert_double_eq_tol(pairs / (N * (FEATURES - 1)), 0, 0.0625 * 4 / sqrt(N * (FEATURES - 1)));
        tn_free(x);
        set_close(&s);
    }
    double between = 0;
    for (int c = 0; c < CLASSES; c++)
        for (int j = 0; j < FEATURES; j++) {
            ck_assert_double_eq_tol(mean[0][c][j], mean[1][c][j], 0.25 * 6 / sqrt(N / CLASSES));
            between += mean[0][c][j] * mean[0][c][j] / (CLASSES * FEATURES);
        }
    ck_assert_msg(between > 0.2 && between < 3, "centers of mean square %g", between);
}
END_TEST

/* Without noise the angle is turns of the radius plus the class's; half the points lie within r^2 < 1/2. */
START_TEST(spirals)
{
    enum { N = 20000 };
    static int32_t target[N];
    int64_t inner = 0;
    set s;
    set_open(&s, 64, "train", ROWS("task", "spirals", "noise", "0", "turns", "1.5", "classes", "4", "train", "20000"));
    double *x = gather(&s, N, target);
    for (int i = 0; i < N; i++) {
        double u = x[2 * i], v = x[2 * i + 1], r = hypot(u, v), angle = TAU * (1.5 * r + target[i] / 4.0);
        ck_assert_msg(r < 1 && fabs(u - r * cos(angle)) < 1e-12 && fabs(v - r * sin(angle)) < 1e-12,
                      "sample %d: (%g, %g) of class %d", i, u, v, target[i]);
        inner += r * r < 0.5;
    }
    ck_assert_double_eq_tol((double)inner / N, 0.5, 4 * 0.5 / sqrt(N));
    tn_free(x);
    set_close(&s);
}
END_TEST

/* Normal in both coordinates, which know nothing of each other, nor of the radius. */
START_TEST(noise_of_spirals)
{
    enum { N = 20000 };
    static int32_t target[N];
    double mean[2] = {0}, squares[2] = {0}, across = 0, inner = 0, inner_count = 0;
    set clean, noisy;
    const char *const *plain = ROWS("task", "spirals", "noise", "0", "train", "20000");
    set_open(&clean, 64, "train", plain);
    set_open(&noisy, 64, "train", ROWS("task", "spirals", "noise", "0.2", "train", "20000"));
    double *x = gather(&clean, N, target), *y = gather(&noisy, N, target);
    for (int i = 0; i < N; i++) {
        double d[2] = {y[2 * i] - x[2 * i], y[2 * i + 1] - x[2 * i + 1]};
        int within = x[2 * i] * x[2 * i] + x[2 * i + 1] * x[2 * i + 1] < 0.5;
        for (int k = 0; k < 2; k++) {
            mean[k] += d[k] / N;
            squares[k] += d[k] * d[k] / N;
            inner += within ? d[k] * d[k] / 2 : 0;
        }
        across += d[0] * d[1] / N;
        inner_count += within;
    }
    for (int k = 0; k < 2; k++) {
        ck_assert_double_eq_tol(mean[k], 0, 4 * 0.2 / sqrt(N));
        ck_assert_double_eq_tol(squares[k], 0.04, 4 * 0.04 * sqrt(2.0 / N));
    }
    ck_assert_double_eq_tol(across, 0, 4 * 0.04 / sqrt(N));
    ck_assert_double_eq_tol(inner / inner_count, 0.04, 4 * 0.04 * sqrt(1.0 / inner_count));
    tn_free(x);
    tn_free(y);
    set_close(&clean);
    set_close(&noisy);
}
END_TEST

/* y - b - x w is noise that x says nothing of; more outputs than are computed at once. */
START_TEST(regression)
{
    enum { N = 2000, FEATURES = 3, OUTPUTS = 131 };
    static double y[N][OUTPUTS];
    double squares = 0, x_squares = 0, mean = 0, across = 0, pairs = 0, blocks = 0;
    set s;
    set_open(&s, 64, "train", ROWS("task", "regression", "noise", "0.5", "features", "3", "outputs", "131"));
    double *x = gather(&s, N, y);
    for (int i = 0; i < N; i++) {
        double last = 0, first[OUTPUTS];
        for (int j = 0; j < FEATURES; j++)
            x_squares += x[i * FEATURES + j] * x[i * FEATURES + j] / (N * FEATURES);
        for (int k = 0; k < OUTPUTS; k++) {
            double rest = y[i][k] - cos(1 + k);
            for (int j = 0; j < FEATURES; j++)
                rest -= x[i * FEATURES + j] * sin(1 + j + FEATURES * k);
            mean += rest / (N * OUTPUTS);
            squares += rest * rest / (N * OUTPUTS);
            across += rest * x[i * FEATURES] / (N * OUTPUTS);
            pairs += rest * last / (N * OUTPUTS);
            last = first[k] = rest;
            blocks += k >= 128 ? rest * first[k - 128] / (N * (OUTPUTS - 128)) : 0;
        }
    }
    ck_assert_double_eq_tol(x_squares, 1, 4 * sqrt(2.0 / (N * FEATURES)));
    ck_assert_double_eq_tol(mean, 0, 4 * 0.5 / sqrt(N * OUTPUTS));
    ck_assert_double_eq_tol(squares, 0.25, 4 * 0.25 * sqrt(2.0 / (N * OUTPUTS)));
    ck_assert_double_eq_tol(across, 0, 4 * 0.5 / sqrt(N * OUTPUTS));
    ck_assert_double_eq_tol(blocks, 0, 4 * 0.25 / sqrt(N * (OUTPUTS - 128)));
    ck_assert_double_eq_tol(pairs, 0, 4 * 0.25 / sqrt(N * OUTPUTS));
    tn_free(x);
    set_close(&s);
}
END_TEST

/* cos(u + v) + cos(u - v) = 2 cos u cos v, along rows and along columns, with the class's two frequencies. */
START_TEST(images_without_noise)
{
    enum { N = 60, SIZE = 9, CLASSES = 6 };
    static int32_t target[N];
    double first = 0;
    set s;
    set_open(&s, 64, "train", ROWS("task", "images", "noise", "0", "size", "9", "classes", "6", "waves", "1.25"));
    double *all = gather(&s, N, target);
    for (int i = 0; i < N; i++) {
        double a = TAU / 2 * target[i] / CLASSES, f = TAU * 1.25 / SIZE, *x = all + i * SIZE * SIZE;
        ck_assert_int_eq(target[i], i % CLASSES);
        for (int r = 1; r + 1 < SIZE; r++)
            for (int q = 1; q + 1 < SIZE; q++) {
                double at = 2 * x[r * SIZE + q];
                double down = x[(r + 1) * SIZE + q] + x[(r - 1) * SIZE + q],
                       right = x[r * SIZE + q + 1] + x[r * SIZE + q - 1];
                expect(fabs(down - at * cos(f * cos(a))) < 1e-12 && fabs(right - at * cos(f * sin(a))) < 1e-12,
                       "image %d, pixel %d, %d", i, r, q);
            }
        first += x[0] * x[0] / N;
    }
    ck_assert_double_eq_tol(first, 0.5, 0.25); /* of a cosine at any phase */
    tn_free(all);
    set_close(&s);
}
END_TEST

START_TEST(noise_of_images)
{
    enum { N = 1500, SIZE = 10 };
    static int32_t target[N];
    double mean = 0, squares = 0, largest = 0, phase = 0, f = TAU * 2 / SIZE;
    set clean, noisy;
    set_open(&clean, 64, "train", ROWS("task", "images", "noise", "0", "size", "10"));
    set_open(&noisy, 64, "train", ROWS("task", "images", "noise", "0.3", "size", "10"));
    double *x = gather(&clean, N, target), *y = gather(&noisy, N, target);
    for (int i = 0; i < N * SIZE * SIZE; i++) {
        double d = y[i] - x[i];
        mean += d / (N * SIZE * SIZE);
        squares += d * d / (N * SIZE * SIZE);
        largest = fmax(largest, fabs(d));
    }
    for (int i = 0; i < N; i += 3) { /* class 0 varies along rows alone: the sine of its phase */
        double *image = x + i * SIZE * SIZE, sine = (cos(f) * image[0] - image[SIZE]) / sin(f);
        phase += sine * (y[i * SIZE * SIZE] - image[0]) / (N / 3);
    }
    ck_assert_double_eq_tol(phase, 0, 4 * 0.3 * sqrt(0.5 / (N / 3)));
    ck_assert_double_eq_tol(mean, 0, 4 * 0.3 / sqrt(N * SIZE * SIZE));
    ck_assert_double_eq_tol(squares, 0.09, 0.002);
    ck_assert(largest <= 0.3 * sqrt(3) + 1e-9 && largest > 0.3 * sqrt(3) * 0.99);
    tn_free(x);
    tn_free(y);
    set_close(&clean);
    set_close(&noisy);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("synthetic");
    TCase *tcase = tcase_create("synthetic");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, a_sample_depends_on_its_number, 0, 4);
    tcase_add_loop_test(tcase, both_types_agree, 0, 4);
    tcase_add_test(tcase, shapes_and_splits);
    tcase_add_test(tcase, blobs);
    tcase_add_test(tcase, spirals);
    tcase_add_test(tcase, noise_of_spirals);
    tcase_add_test(tcase, regression);
    tcase_add_test(tcase, images_without_noise);
    tcase_add_test(tcase, noise_of_images);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
