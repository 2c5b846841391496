/* SPDX-License-Identifier: Apache-2.0
 *
 * Taps: what a layer reads and what arrives at its output, once in each backward pass; backward without gradients;
 * targets drawn from the model itself.
 */
#include "tests/graph.h"

#include "tests/malloc_count.h"

#define TAPS_MOST 16

typedef struct {
    int64_t weight, n, in, out;
    double seed;
    double x[65 * 64], dy[65 * 64];
} tapped;

typedef struct {
    const graph_fixture *f;
    int32_t count;
    tapped at[TAPS_MOST];
} listener;

static void listen(void *user, int64_t weight, const tn_tensor *x, const tn_tensor *dy, double seed)
{
    listener *l = user;
    tapped *t = &l->at[l->count++];
    ck_assert_int_le(l->count, TAPS_MOST);
    ck_assert_int_eq(x->ndim, 2);
    ck_assert_int_eq(dy->ndim, 2);
    ck_assert_int_eq(x->shape[0], dy->shape[0]);
    *t = (tapped){.weight = weight, .n = x->shape[0], .in = x->shape[1], .out = dy->shape[1], .seed = seed};
    ck_assert_int_le(t->n * t->in, 65 * 64);
    ck_assert_int_le(t->n * t->out, 65 * 64);
    for (int64_t i = 0; i < t->n * t->in; i++)
        t->x[i] = graph_number(l->f, x->data, i);
    for (int64_t i = 0; i < t->n * t->out; i++)
        t->dy[i] = graph_number(l->f, dy->data, i);
}

static listener *new_listener(const graph_fixture *f)
{
    listener *l = tn_alloc(1, sizeof *l);
    ck_assert_ptr_nonnull(l);
    l->f = f;
    return l;
}

static tn_graph_run tapping(listener *l, int64_t n)
{
    return (tn_graph_run){.n = n, .flags = TN_TRAIN, .seed = 0.25, .tap = listen, .user = l};
}

/* The weight's gradient, computed from the tap as dy^T x, is what backward left. */
static void check_gradient(const graph_fixture *f, const tapped *t)
{
    const tn_parameter *p = &f->all->list[t->weight];
    const double *g = (const double *)f->all->g + f->all->at[t->weight];
    ck_assert_int_eq(p->shape[0], t->out);
    ck_assert_int_eq(p->shape[1], t->in);
    for (int64_t o = 0; o < t->out; o++)
        for (int64_t i = 0; i < t->in; i++) {
            double sum = 0;
            for (int64_t r = 0; r < t->n; r++)
                sum += t->dy[r * t->out + o] * t->x[r * t->in + i];
            expect(fabs(sum - g[o * t->in + i]) < 1e-13, "%s[%lld, %lld]: %g by the tap, %g", p->name, (long long)o,
                   (long long)i, sum, g[o * t->in + i]);
        }
}

START_TEST(taps_show_what_makes_the_gradient)
{
    static const char *const order[] = {"head.weight", "b.weight", "a.weight"}; /* of backward */
    graph_fixture f;
    graph_open(&f, &(graph_choice){.model = "dag"}); /* dy of `a` is a sum over two readers */
    listener *l = new_listener(&f);
    graph_fill(&f, 40);
    const tn_graph_run run = tapping(l, 40);
    graph_run(&f, &run);
    ck_assert_int_eq(l->count, 3);
    for (int i = 0; i < 3; i++) {
        ck_assert_str_eq(f.all->list[l->at[i].weight].name, order[i]);
        ck_assert_int_eq(l->at[i].n, 40);
        ck_assert(l->at[i].seed == 0.25);
        check_gradient(&f, &l->at[i]);
    }
    for (int64_t i = 0; i < 40 * SAMPLE; i++)
        ck_assert(l->at[2].x[i] == ((double *)tn_graph_input(f.graph))[i]);
    const tn_graph_run evaluation = {.n = 40, .seed = 1, .tap = listen, .user = l};
    graph_run(&f, &evaluation);
    ck_assert_int_eq(l->count, 3); /* none without backward */
    tn_free(l);
    graph_close(&f);
}
END_TEST

/* A normalizer with partials, one with columns, and linear layers: none may touch its gradient, dy is the same. */
START_TEST(without_gradients_every_bit_stays)
{
    static const char *const normalizers[] = {"layernorm", "batchnorm"};
    for (int k = 0; k < 2; k++) {
        const tn_setting settings[] = {{"widths", "[5, 4]"}, {"normalizer", normalizers[k]}};
        graph_fixture f;
        graph_open(&f, &(graph_choice){.model = "mlp", .settings = settings, .count = 2});
        listener *with = new_listener(&f), *without = new_listener(&f);
        graph_fill(&f, 40);
        tn_graph_run run = tapping(with, 40);
        graph_run(&f, &run);
        memset(f.all->g, 0x5A, f.bytes);
        void *before = graph_copy(&f, f.all->g);
        run = tapping(without, 40);
        run.no_gradient = 1;
        graph_run(&f, &run);
        ck_assert_mem_eq(f.all->g, before, f.bytes);
        run.flags |= TN_ACCUMULATE;
        run.tap = NULL;
        graph_run(&f, &run);
        ck_assert_mem_eq(f.all->g, before, f.bytes);
        ck_assert_int_eq(without->count, 3);
        ck_assert_mem_eq(with->at, without->at, sizeof with->at);
        tn_free(before);
        tn_free(with);
        tn_free(without);
        graph_close(&f);
    }
}
END_TEST

/* ---- sampled targets ---- */

/* The class that makes row `dy` of the head's output the gradient of the loss: seed (softmax - q); -1: none does. */
static int32_t class_of(const double *logits, const double *dy, double seed)
{
    double sum = 0;
    for (int c = 0; c < CLASSES; c++)
        sum += exp(logits[c]);
    for (int32_t target = 0; target < CLASSES; target++) {
        int fits = 1;
        for (int c = 0; c < CLASSES; c++) {
            double q = 0.1 / CLASSES + (c == target ? 0.9 : 0); /* smoothing 0.1 */
            fits &= fabs(dy[c] - seed * (exp(logits[c]) / sum - q)) < 1e-13;
        }
        if (fits)
            return target;
    }
    return -1;
}

typedef struct {
    int32_t of[65];
} classes;

/* The targets that a sampled run drew, told from the gradient at the head. */
static classes drawn(graph_fixture *f, listener *l, int64_t n, int64_t attempt, int64_t micro)
{
    classes ret = {{0}};
    tn_error err = {0};
    l->count = 0;
    tn_graph_run run = tapping(l, n);
    run.attempt = attempt;
    run.micro = micro;
    run.sampled = run.no_gradient = 1;
    ck_ok(tn_graph_run_batch(f->graph, &run, NULL, &err), err); /* sums are not touched, so there need be none */
    const double *logits = tn_graph_output(f->graph)->data;
    for (int64_t i = 0; i < n; i++) {
        ret.of[i] = class_of(logits + i * CLASSES, l->at[0].dy + i * CLASSES, run.seed);
        ck_assert_int_ge(ret.of[i], 0);
    }
    return ret;
}

static int equal(const classes *a, const classes *b) { return memcmp(a, b, sizeof *a) == 0; }

/* A sharp model, so that the classes are far from equally likely. */
static void open_sharp(graph_fixture *f)
{
    static const tn_setting settings[] = {{"widths", "[]"}};
    graph_open(f, &(graph_choice){.model = "mlp", .settings = settings, .count = 1});
    for (int64_t i = 0; i < f->all->elements; i++)
        ((double *)f->all->p)[i] *= 4;
}

START_TEST(sampled_targets_follow_the_model)
{
    enum { N = 60, ATTEMPTS = 400 };
    static double frequency[N][CLASSES];
    graph_fixture f;
    open_sharp(&f);
    listener *l = new_listener(&f);
    graph_fill(&f, N);
    for (int64_t attempt = 0; attempt < ATTEMPTS; attempt++) {
        classes c = drawn(&f, l, N, attempt, 0);
        for (int i = 0; i < N; i++)
            frequency[i][c.of[i]] += 1.0 / ATTEMPTS;
    }
    const double *logits = tn_graph_output(f.graph)->data;
    for (int i = 0; i < N; i++)
        for (int c = 0; c < CLASSES; c++) {
            double sum = exp(logits[3 * i]) + exp(logits[3 * i + 1]) + exp(logits[3 * i + 2]);
            double p = exp(logits[3 * i + c]) / sum, deviation = sqrt(p * (1 - p) / ATTEMPTS);
            expect(fabs(frequency[i][c] - p) < 4.5 * deviation + 1e-3, "row %d, class %d: drawn %g, probability %g", i,
                   c, frequency[i][c], p);
        }
    tn_free(l);
    graph_close(&f);
}
END_TEST

START_TEST(sampled_targets_are_a_function_of_the_attempt)
{
    graph_fixture f;
    open_sharp(&f);
    listener *l = new_listener(&f);
    graph_fill(&f, 60);
    ((int32_t *)tn_graph_target(f.graph))[7] = -1;
    void *targets = tn_alloc(60, sizeof(int32_t));
    memcpy(targets, tn_graph_target(f.graph), 60 * sizeof(int32_t));
    tn_graph_run run = {.n = 60, .flags = TN_TRAIN, .seed = 1};
    double loss = graph_run(&f, &run);
    void *g = graph_copy(&f, f.all->g);
    l->count = 0;
    run = tapping(l, 60);
    run.sampled = run.no_gradient = 1;
    tn_error err = {0};
    ck_ok(tn_graph_run_batch(f.graph, &run, NULL, &err), err);
    for (int c = 0; c < CLASSES; c++)
        ck_assert(l->at[0].dy[7 * CLASSES + c] == 0); /* ignored rows stay ignored */
    ((int32_t *)tn_graph_target(f.graph))[7] = 0;
    classes first = drawn(&f, l, 60, 5, 0), again = drawn(&f, l, 60, 5, 0), later = drawn(&f, l, 60, 6, 0),
            other = drawn(&f, l, 60, 5, 1);
    ck_assert(equal(&first, &again));
    ck_assert(!equal(&first, &later));
    ck_assert(!equal(&first, &other));
    ((int32_t *)tn_graph_target(f.graph))[7] = -1;
    ck_assert_mem_eq(targets, tn_graph_target(f.graph), 60 * sizeof(int32_t));
    run = (tn_graph_run){.n = 60, .flags = TN_TRAIN, .seed = 1};
    double loss_again = graph_run(&f, &run);
    ck_assert_mem_eq(&loss, &loss_again, sizeof loss);
    ck_assert_mem_eq(f.all->g, g, f.bytes);
    tn_free(targets);
    tn_free(g);
    tn_free(l);
    graph_close(&f);
}
END_TEST

START_TEST(a_loss_that_draws_nothing_is_named)
{
    graph_fixture f;
    tn_error err = {0};
    graph_open(&f, &(graph_choice){.model = "dag"});
    ck_ok(tn_graph_offers_samples(f.graph, &err), err);
    graph_close(&f);
    graph_open(&f, &(graph_choice){.model = "dag", .real = 32, .loss = "first-class"});
    ck_assert_int_eq(tn_graph_offers_samples(f.graph, &err), TN_E_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(err.msg, "first-class"));
    const tn_graph_run run = {.n = 4, .flags = TN_TRAIN, .seed = 1, .sampled = 1};
    ck_assert_int_eq(tn_graph_run_batch(f.graph, &run, NULL, &err), TN_E_UNSUPPORTED);
    graph_close(&f);
}
END_TEST

static void ignore(void *user, int64_t weight, const tn_tensor *x, const tn_tensor *dy, double seed)
{
    (void)weight;
    *(double *)user += seed * (double)(x->shape[0] + dy->shape[0]);
}

START_TEST(tapping_allocates_nothing)
{
    graph_fixture f;
    double seen = 0;
    tn_error err = {0};
    graph_open(&f, &(graph_choice){.model = "dag", .real = 32, .threads = 2});
    graph_fill(&f, 40);
    const tn_graph_run run = {
        .n = 40, .flags = TN_TRAIN, .seed = 1, .sampled = 1, .no_gradient = 1, .tap = ignore, .user = &seen};
    ck_ok(tn_graph_run_batch(f.graph, &run, NULL, &err), err);
    int64_t before = malloc_count();
    int32_t status = tn_graph_run_batch(f.graph, &run, NULL, &err);
    ck_assert_int_eq(malloc_count(), before);
    ck_ok(status, err);
    ck_assert_double_gt(seen, 0);
    graph_close(&f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("graph_taps");
    TCase *tests = tcase_create("graph_taps");
    tcase_add_test(tests, taps_show_what_makes_the_gradient);
    tcase_add_test(tests, without_gradients_every_bit_stays);
    tcase_add_test(tests, sampled_targets_follow_the_model);
    tcase_add_test(tests, sampled_targets_are_a_function_of_the_attempt);
    tcase_add_test(tests, a_loss_that_draws_nothing_is_named);
    tcase_add_test(tests, tapping_allocates_nothing);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
