/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph's buffers, kept for each view: whose a run reads and changes, and what refreshing makes of them, against
 * the statistics' definition.
 */
#include "tests/graph.h"

#include "tests/malloc_count.h"

#define FIRST_WIDTH  5
#define SECOND_WIDTH 4
#define EPS          1e-5

static const tn_setting settings[] = {{"widths", "[5, 4]"}, {"normalizer", "batchnorm"}};

static void open_norms(graph_fixture *f, uint32_t real)
{
    const graph_choice choice = {.model = "mlp", .settings = settings, .count = 2, .real = real};
    graph_open(f, &choice);
}

/* All buffers of one view, as bytes. */
typedef struct {
    size_t used;
    unsigned char bytes[4096];
} snapshot;

static void add_to(snapshot *s, const tn_tensor *t)
{
    size_t bytes = (size_t)t->shape[0] * t->dtype.bits / 8;
    ck_assert_uint_le(s->used + bytes, sizeof s->bytes);
    memcpy(s->bytes + s->used, t->data, bytes);
    s->used += bytes;
}

static snapshot buffers_of(const graph_fixture *f, int32_t view)
{
    const tn_graph_buffer *buffers;
    snapshot s = {0};
    size_t count = tn_graph_buffers(f->graph, &buffers);
    ck_assert_uint_eq(count, 4);
    for (size_t i = 0; i < count; i++)
        add_to(&s, view == TN_VIEW_EVAL ? &buffers[i].eval : &buffers[i].tensor);
    return s;
}

static int same(const snapshot *a, const snapshot *b)
{
    return a->used == b->used && memcmp(a->bytes, b->bytes, a->used) == 0;
}

static void train(graph_fixture *f, uint64_t key, int64_t n, uint32_t flags)
{
    graph_fill_from(f, key, 0, n);
    graph_run(f, &(tn_graph_run){.n = n, .flags = TN_TRAIN | flags, .seed = 1});
}

/* ---- refreshing ---- */

/* The arena with every number moved, as an average of the weights would be. Caller frees. */
static void *moved_parameters(const graph_fixture *f)
{
    void *p = graph_copy(f, f->all->p);
    for (int64_t i = 0; i < f->all->elements; i++)
        if (f->choice.real == 64)
            ((double *)p)[i] = 0.8 * ((double *)p)[i] + 0.03;
        else
            ((float *)p)[i] = 0.8f * ((float *)p)[i] + 0.03f;
    return p;
}

static void refresh(graph_fixture *f, const void *p, int64_t k, int64_t n)
{
    tn_error err = {0};
    graph_fill_from(f, 100 + (uint64_t)k, 0, n);
    const tn_graph_run run = {.n = n, .flags = TN_TRAIN, .p = p, .view = TN_VIEW_EVAL, .forward_only = 1, .refresh = k};
    ck_ok(tn_graph_run_batch(f->graph, &run, NULL, &err), err); /* no loss: no sums */
}

static const double *parameter(const graph_fixture *f, const double *p, const char *name)
{
    for (int64_t i = 0; i < f->all->count; i++)
        if (!strcmp(f->all->list[i].name, name))
            return p + f->all->at[i];
    ck_abort_msg("no parameter %s", name);
}

/* y [n, out] = x W^T + b. */
static void linear(int64_t n, int64_t in, int64_t out, const double *x, const double *w, const double *b, double *y)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < out; j++) {
            y[i * out + j] = b[j];
            for (int64_t k = 0; k < in; k++)
                y[i * out + j] += x[i * in + k] * w[j * in + k];
        }
}

/* Mean and unbiased variance of each column; x becomes relu(gain * normal + shift). */
static void normalise(int64_t n, int64_t columns, double *x, const double *gain, const double *shift, double *mean,
                      double *variance)
{
    for (int64_t j = 0; j < columns; j++) {
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < n; i++)
            sum += x[i * columns + j];
        mean[j] = sum / (double)n;
        for (int64_t i = 0; i < n; i++)
            squares += (x[i * columns + j] - mean[j]) * (x[i * columns + j] - mean[j]);
        variance[j] = squares / (double)(n - 1);
        for (int64_t i = 0; i < n; i++) {
            double *at = &x[i * columns + j];
            *at = gain[j] * (*at - mean[j]) / sqrt(squares / (double)n + EPS) + shift[j];
            *at = *at > 0 ? *at : 0;
        }
    }
}

/* mean and variance of both norms for the batch at hand, in the order of the buffers. */
static void statistics(const graph_fixture *f, const double *p, int64_t n, double *ret)
{
    double a[65 * FIRST_WIDTH], b[65 * SECOND_WIDTH];
    linear(n, SAMPLE, FIRST_WIDTH, tn_graph_input(f->graph), parameter(f, p, "hidden.0.linear.weight"),
           parameter(f, p, "hidden.0.linear.bias"), a);
    normalise(n, FIRST_WIDTH, a, parameter(f, p, "hidden.0.norm.weight"), parameter(f, p, "hidden.0.norm.bias"), ret,
              ret + FIRST_WIDTH);
    linear(n, FIRST_WIDTH, SECOND_WIDTH, a, parameter(f, p, "hidden.1.linear.weight"),
           parameter(f, p, "hidden.1.linear.bias"), b);
    normalise(n, SECOND_WIDTH, b, parameter(f, p, "hidden.1.norm.weight"), parameter(f, p, "hidden.1.norm.bias"),
              ret + 2 * FIRST_WIDTH, ret + 2 * FIRST_WIDTH + SECOND_WIDTH);
}

START_TEST(refreshed_statistics_are_the_mean_over_batches)
{
    enum { NUMBERS = 2 * (FIRST_WIDTH + SECOND_WIDTH), BATCHES = 3 };
    static const int64_t sizes[BATCHES] = {40, 17, 2};
    double wanted[NUMBERS] = {0}, one[NUMBERS], got[NUMBERS];
    graph_fixture f;
    open_norms(&f, 64);
    for (int k = 0; k < 3; k++)
        train(&f, (uint64_t)k, 30, 0);
    double *p = moved_parameters(&f);
    for (int k = 0; k < BATCHES; k++) {
        refresh(&f, p, k + 1, sizes[k]);
        statistics(&f, p, sizes[k], one);
        for (int i = 0; i < NUMBERS; i++)
            wanted[i] += one[i] / BATCHES;
    }
    snapshot eval = buffers_of(&f, TN_VIEW_EVAL);
    ck_assert_uint_eq(eval.used, sizeof got);
    memcpy(got, eval.bytes, sizeof got);
    for (int i = 0; i < NUMBERS; i++)
        ck_assert_double_eq_tol(got[i], wanted[i], 1e-13 * (1 + fabs(wanted[i])));
    tn_free(p);
    graph_close(&f);
}
END_TEST

START_TEST(refreshing_leaves_all_of_training_alone)
{
    for (uint32_t real = 32; real <= 64; real += 32) {
        graph_fixture f;
        open_norms(&f, real);
        for (int k = 0; k < 3; k++)
            train(&f, (uint64_t)k, 30, 0);
        tn_graph_copy_buffers(f.graph);
        void *p = moved_parameters(&f), *own = graph_copy(&f, f.all->p), *g = graph_copy(&f, f.all->g);
        snapshot before = buffers_of(&f, TN_VIEW_TRAIN), copied = buffers_of(&f, TN_VIEW_EVAL);
        ck_assert(same(&before, &copied));
        for (int k = 0; k < 3; k++)
            refresh(&f, p, k + 1, 30);
        snapshot after = buffers_of(&f, TN_VIEW_TRAIN), refreshed = buffers_of(&f, TN_VIEW_EVAL);
        ck_assert(same(&before, &after));
        ck_assert(!same(&copied, &refreshed));
        ck_assert_mem_eq(f.all->p, own, f.bytes);
        ck_assert_mem_eq(f.all->g, g, f.bytes);
        tn_free(p);
        tn_free(own);
        tn_free(g);
        graph_close(&f);
    }
}
END_TEST

/* Whatever was there before the first batch counts for nothing, not even if it was no number. */
START_TEST(the_first_batch_of_a_refresh_forgets)
{
    graph_fixture f;
    const tn_graph_buffer *buffers;
    open_norms(&f, 64);
    refresh(&f, NULL, 1, 30);
    snapshot once = buffers_of(&f, TN_VIEW_EVAL);
    size_t count = tn_graph_buffers(f.graph, &buffers);
    for (size_t i = 0; i < count; i++)
        ((double *)buffers[i].eval.data)[0] = i % 2 ? NAN : -INFINITY;
    refresh(&f, NULL, 1, 30);
    snapshot again = buffers_of(&f, TN_VIEW_EVAL);
    ck_assert(same(&once, &again));
    graph_close(&f);
}
END_TEST

/* ---- freezing, evaluation ---- */

START_TEST(frozen_runs_change_gradients_only)
{
    graph_fixture f;
    open_norms(&f, 64);
    train(&f, 1, 30, 0);
    void *g = graph_copy(&f, f.all->g);
    snapshot before = buffers_of(&f, TN_VIEW_TRAIN), eval = buffers_of(&f, TN_VIEW_EVAL);
    memset(f.all->g, 0xFF, f.bytes);
    train(&f, 1, 30, TN_FREEZE);
    snapshot after = buffers_of(&f, TN_VIEW_TRAIN), eval_after = buffers_of(&f, TN_VIEW_EVAL);
    ck_assert(same(&before, &after));
    ck_assert(same(&eval, &eval_after));
    for (int64_t i = 0; i < f.all->count; i++) /* gaps between parameters are nobody's */
        ck_assert_mem_eq((double *)f.all->g + f.all->at[i], (double *)g + f.all->at[i],
                         (size_t)f.all->list[i].n * sizeof(double));
    train(&f, 1, 30, 0);
    after = buffers_of(&f, TN_VIEW_TRAIN);
    ck_assert(!same(&before, &after)); /* what a thawed run would have done */
    tn_free(g);
    graph_close(&f);
}
END_TEST

START_TEST(evaluation_reads_the_view_it_names)
{
    graph_fixture f;
    open_norms(&f, 64);
    for (int k = 0; k < 3; k++)
        train(&f, (uint64_t)k, 30, 0);
    graph_fill_from(&f, 50, 0, 30);
    tn_graph_run run = {.n = 30, .seed = 1};
    double trained = graph_run(&f, &run);
    run.view = TN_VIEW_EVAL;
    double start = graph_run(&f, &run); /* running means 0, variances 1 */
    ck_assert_double_gt(fabs(trained - start), 1e-3);
    tn_graph_copy_buffers(f.graph);
    double copied = graph_run(&f, &run);
    ck_assert_mem_eq(&copied, &trained, sizeof copied);
    snapshot train = buffers_of(&f, TN_VIEW_TRAIN), eval = buffers_of(&f, TN_VIEW_EVAL);
    ck_assert(same(&train, &eval)); /* evaluation changed neither */
    graph_close(&f);
}
END_TEST

START_TEST(refreshing_allocates_nothing)
{
    graph_fixture f;
    open_norms(&f, 32);
    train(&f, 1, 30, 0);
    refresh(&f, NULL, 1, 30);
    graph_fill_from(&f, 2, 0, 30);
    const tn_graph_run run = {.n = 30, .flags = TN_TRAIN, .view = TN_VIEW_EVAL, .forward_only = 1, .refresh = 2};
    tn_error err = {0};
    int64_t before = malloc_count();
    int32_t status = tn_graph_run_batch(f.graph, &run, NULL, &err);
    tn_graph_copy_buffers(f.graph);
    ck_assert_int_eq(malloc_count(), before);
    ck_ok(status, err);
    graph_close(&f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("graph_views");
    TCase *tests = tcase_create("graph_views");
    tcase_add_test(tests, refreshed_statistics_are_the_mean_over_batches);
    tcase_add_test(tests, refreshing_leaves_all_of_training_alone);
    tcase_add_test(tests, the_first_batch_of_a_refresh_forgets);
    tcase_add_test(tests, frozen_runs_change_gradients_only);
    tcase_add_test(tests, evaluation_reads_the_view_it_names);
    tcase_add_test(tests, refreshing_allocates_nothing);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
