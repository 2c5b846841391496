/* SPDX-License-Identifier: Apache-2.0
 *
 * Activations and gradients rounded to what a narrow type holds: every output, every gradient, and nothing else.
 */
#include "tests/graph.h"

#include "tests/malloc_count.h"

/* ---- the types, independently ---- */

typedef struct {
    const char *codec;
    int fraction, least; /* bits behind the point; exponent of the smallest normal number */
    double largest;
} narrow_type;

static const narrow_type types[] = {{"bf16", 7, -126, 0x1.FEp127}, {"fp16", 10, -14, 65504}};
#define TYPES 2

/* The nearest number of the type, of two the even one. */
static double narrow(const narrow_type *t, double x)
{
    int exponent;
    if (x == 0 || !isfinite(x))
        return x;
    frexp(x, &exponent); /* x = m 2^exponent, m in [0.5, 1) */
    exponent = exponent - 1 < t->least ? t->least : exponent - 1;
    double ulp = ldexp(1, exponent - t->fraction), y = nearbyint(x / ulp) * ulp;
    return fabs(y) > t->largest ? copysign(INFINITY, x) : y;
}

static void check_narrow(const graph_fixture *f, const narrow_type *t, const void *data, int64_t n, const char *what)
{
    int64_t other = 0;
    for (int64_t i = 0; i < n; i++) {
        double x = graph_number(f, data, i);
        expect(x == narrow(t, x), "%s: %s[%lld] is %.17g, which the type does not hold", t->codec, what, (long long)i,
               x);
        other += x != 0;
    }
    ck_assert_int_gt(other, 0);
}

/* ---- one layer, number by number ---- */

static void open_head(graph_fixture *f, const char *codec, uint32_t real)
{
    static const tn_setting settings[] = {{"widths", "[]"}};
    graph_open(f, &(graph_choice){.model = "mlp", .settings = settings, .count = 1, .real = real, .codec = codec});
    graph_fill(f, 65);
}

/* seed (softmax - q) of row `i`, from logits as they are. */
static void loss_gradient(const graph_fixture *f, const void *logits, int64_t i, double seed, double *dy)
{
    double sum = 0;
    for (int c = 0; c < CLASSES; c++)
        sum += exp(graph_number(f, logits, i * CLASSES + c));
    for (int c = 0; c < CLASSES; c++) {
        double q = 0.1 / CLASSES + (c == i % CLASSES ? 0.9 : 0); /* smoothing 0.1 */
        dy[c] = seed * (exp(graph_number(f, logits, i * CLASSES + c)) / sum - q);
    }
}

/* In f64, so that what is rounded is known to the last bit but for ties, which do not occur. */
START_TEST(outputs_and_gradients_are_the_nearest_numbers)
{
    for (int k = 0; k < TYPES; k++) {
        const narrow_type *t = &types[k];
        graph_fixture wide, f;
        double g[CLASSES][SAMPLE] = {{0}}, dy[CLASSES];
        open_head(&wide, NULL, 64);
        open_head(&f, t->codec, 64);
        const tn_graph_run run = {.n = 65, .flags = TN_TRAIN, .seed = 0.125};
        graph_run(&wide, &run);
        graph_run(&f, &run);
        const double *exact = tn_graph_output(wide.graph)->data, *y = tn_graph_output(f.graph)->data;
        const double *x = tn_graph_input(f.graph);
        for (int64_t i = 0; i < 65 * CLASSES; i++)
            ck_assert(y[i] == narrow(t, exact[i]));
        for (int64_t i = 0; i < 65; i++) {
            loss_gradient(&f, y, i, 0.125, dy);
            for (int c = 0; c < CLASSES; c++)
                for (int s = 0; s < SAMPLE; s++)
                    g[c][s] += narrow(t, dy[c]) * x[i * SAMPLE + s];
        }
        for (int64_t c = 0; c < CLASSES; c++)
            for (int64_t s = 0; s < SAMPLE; s++)
                ck_assert(((double *)f.all->g + f.all->at[0])[c * SAMPLE + s] == narrow(t, g[c][s]));
        ck_assert_mem_eq(tn_graph_input(f.graph), tn_graph_input(wide.graph), 65 * SAMPLE * sizeof(double));
        ck_assert_mem_eq(f.all->p, wide.all->p, f.bytes); /* parameters are the update's business */
        graph_close(&wide);
        graph_close(&f);
    }
}
END_TEST

/* What is added to a stored gradient is stored again. */
START_TEST(accumulated_gradients_are_rounded_again)
{
    const narrow_type *t = &types[0];
    graph_fixture f;
    open_head(&f, t->codec, 64);
    tn_graph_run run = {.n = 65, .flags = TN_TRAIN, .seed = 1};
    graph_run(&f, &run);
    double *once = graph_copy(&f, f.all->g);
    graph_fill_from(&f, 12, 0, 65);
    graph_run(&f, &run);
    double *other = graph_copy(&f, f.all->g);
    graph_fill(&f, 65);
    graph_run(&f, &run);
    run.flags |= TN_ACCUMULATE;
    graph_fill_from(&f, 12, 0, 65);
    graph_run(&f, &run);
    for (int64_t i = 0; i < f.all->list[0].n; i++) {
        double sum = once[i] + other[i], got = ((double *)f.all->g)[i];
        ck_assert(got == narrow(t, got));
        ck_assert_double_le(fabs(got - sum), ldexp(fabs(once[i]) + fabs(other[i]), -t->fraction));
    }
    tn_free(once);
    tn_free(other);
    graph_close(&f);
}
END_TEST

START_TEST(overflow_becomes_infinite)
{
    graph_fixture f;
    open_head(&f, "fp16", 32);
    const tn_graph_run run = {.n = 65, .flags = TN_TRAIN, .seed = 0x1p20};
    graph_run(&f, &run);
    int64_t infinite = 0;
    for (int64_t i = 0; i < f.all->list[1].n; i++)
        infinite += !isfinite(((float *)f.all->g + f.all->at[1])[i]);
    ck_assert_int_gt(infinite, 0);
    graph_close(&f);
}
END_TEST

/* ---- everywhere ---- */

static const tn_setting deep[] = {{"widths", "[90, 70]"},
                                  {"normalizer", "batchnorm"},
                                  {"activation", "gelu"},
                                  {"regularizer", "{use: dropout, p: 0.25}"}};
static const graph_choice models[] = {{.model = "mlp", .settings = deep, .count = 4, .real = 32},
                                      {.model = "dag", .real = 32}};

typedef struct {
    const graph_fixture *f;
    const narrow_type *t;
    int32_t count;
} listener;

static void listen(void *user, int64_t weight, const tn_tensor *x, const tn_tensor *dy, double seed)
{
    listener *l = user;
    const char *name = l->f->all->list[weight].name;
    (void)seed;
    if (x->data != tn_graph_input(l->f->graph))
        check_narrow(l->f, l->t, x->data, x->shape[0] * x->shape[1], name);
    check_narrow(l->f, l->t, dy->data, dy->shape[0] * dy->shape[1], name);
    l->count++;
}

START_TEST(no_tensor_holds_more_than_the_type)
{
    for (int m = 0; m < 2; m++)
        for (int k = 0; k < TYPES; k++) {
            graph_choice choice = models[m];
            graph_fixture f;
            choice.codec = types[k].codec;
            graph_open(&f, &choice);
            listener l = {&f, &types[k], 0};
            graph_fill(&f, 65);
            const tn_graph_run run = {.n = 65, .flags = TN_TRAIN, .seed = 1, .tap = listen, .user = &l};
            graph_run(&f, &run);
            ck_assert_int_eq(l.count, 3);
            check_narrow(&f, &types[k], tn_graph_output(f.graph)->data, 65 * CLASSES, "output");
            for (int64_t i = 0; i < f.all->count; i++)
                if (!strstr(f.all->list[i].name, "linear.bias")) /* before batch-norm: 0 but for rounding */
                    check_narrow(&f, &types[k], (float *)f.all->g + f.all->at[i], f.all->list[i].n,
                                 f.all->list[i].name);
            graph_close(&f);
        }
}
END_TEST

START_TEST(threads_and_replays_change_no_bit)
{
    static const char *const codecs[] = {"bf16", "fp16", "blockwise8"};
    for (int m = 0; m < 2; m++)
        for (int k = 0; k < 3; k++) {
            graph_fixture first, f;
            graph_choice choice = models[m];
            choice.codec = codecs[k];
            graph_open(&first, &choice);
            graph_fill(&first, 65);
            const tn_graph_run run = {.n = 65, .flags = TN_TRAIN, .seed = 1};
            graph_run(&first, &run);
            choice.threads = 3;
            choice.recompute = "every";
            graph_open(&f, &choice);
            graph_fill(&f, 65);
            graph_run(&f, &run);
            for (int64_t i = 0; i < f.all->count; i++)
                ck_assert_mem_eq((float *)f.all->g + f.all->at[i], (float *)first.all->g + f.all->at[i],
                                 (size_t)f.all->list[i].n * sizeof(float));
            graph_close(&first);
            graph_close(&f);
        }
}
END_TEST

START_TEST(rounding_allocates_nothing)
{
    graph_choice choice = models[0];
    graph_fixture f;
    tn_exact sums[TN_SUMS_MAX];
    tn_error err = {0};
    choice.codec = "bf16";
    choice.threads = 2;
    graph_open(&f, &choice);
    graph_fill(&f, 65);
    const tn_graph_run run = {.n = 65, .flags = TN_TRAIN, .seed = 1};
    graph_run(&f, &run);
    for (size_t i = 0; i < TN_SUMS_MAX; i++)
        tn_exact_clear(&sums[i]);
    int64_t before = malloc_count();
    int32_t status = tn_graph_run_batch(f.graph, &run, sums, &err);
    ck_assert_int_eq(malloc_count(), before);
    ck_ok(status, err);
    graph_close(&f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("graph_storage");
    TCase *tests = tcase_create("graph_storage");
    tcase_add_test(tests, outputs_and_gradients_are_the_nearest_numbers);
    tcase_add_test(tests, accumulated_gradients_are_rounded_again);
    tcase_add_test(tests, overflow_becomes_infinite);
    tcase_add_test(tests, no_tensor_holds_more_than_the_type);
    tcase_add_test(tests, threads_and_replays_change_no_bit);
    tcase_add_test(tests, rounding_allocates_nothing);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
