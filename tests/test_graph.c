/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph as a whole: gradients through branches and in-place layers against central differences in f64, memory
 * reuse, thread invariance, accumulation, refusals.
 */
#include "host/base/compute.h"
#include "tests/graph.h"

static const char *backend = "reference";

static void open_graph(graph_fixture *f, const char *model, uint32_t real, int32_t threads, const tn_setting *settings,
                       size_t count)
{
    const graph_choice choice = {
        .model = model, .settings = settings, .count = count, .real = real, .threads = threads, .backend = backend};
    graph_open(f, &choice);
}

/* The sum of the loss. */
static double run(graph_fixture *f, int64_t n, uint32_t flags)
{
    tn_exact sums[TN_SUMS_MAX];
    tn_error err = {0};
    for (size_t i = 0; i < TN_SUMS_MAX; i++)
        tn_exact_clear(&sums[i]);
    tn_graph_run options = {.n = n, .flags = flags, .seed = 1};
    ck_ok(tn_graph_run_batch(f->graph, &options, sums, &err), err);
    ck_assert(tn_exact_value(&sums[TN_SUM_COUNT]) == (double)n);
    return tn_exact_value(&sums[TN_SUM_LOSS]);
}

static void check_differences(graph_fixture *f)
{
    const double h = 1e-5;
    double *p = f->all->p, *g = graph_copy(f, f->all->g), worst = 0;
    for (int64_t i = 0; i < f->all->count; i++)
        for (int64_t j = f->all->at[i]; j < f->all->at[i] + f->all->list[i].n; j++) {
            const double at = p[j];
            p[j] = at + h;
            double up = run(f, 6, TN_TRAIN);
            p[j] = at - h;
            double down = run(f, 6, TN_TRAIN);
            p[j] = at;
            double error = fabs((up - down) / (2 * h) - g[j]);
            worst = error > worst ? error : worst;
            ck_assert_msg(error < 1e-7, "%s[%lld]: difference %g, gradient %g", f->all->list[i].name,
                          (long long)(j - f->all->at[i]), (up - down) / (2 * h), g[j]);
        }
    ck_assert(worst > 0); /* it did compare something */
    tn_free(g);
}

/* Branches; and, in place, a layer over the output that the one before it reads again. */
START_TEST(gradients_are_central_differences)
{
    const tn_setting settings[] = {{"widths", "[6, 5]"}, {"activation", "tanh"}, {"regularizer", "dropout"}};
    for (int k = 0; k < 2; k++) {
        graph_fixture f;
        open_graph(&f, k ? "mlp" : "dag", 64, 1, settings, k ? 3 : 0);
        graph_fill(&f, 6);
        run(&f, 6, TN_TRAIN);
        check_differences(&f);
        graph_close(&f);
    }
}
END_TEST

START_TEST(accumulation_adds_and_setting_ignores_what_was_there)
{
    graph_fixture f;
    open_graph(&f, "dag", 64, 1, NULL, 0);
    tn_parameters *all = tn_graph_parameters(f.graph);
    graph_fill(&f, 40);
    double *g = all->g, *once = tn_alloc((size_t)all->elements, sizeof *once);
    for (int64_t i = 0; i < all->elements; i++)
        g[i] = NAN;
    run(&f, 40, TN_TRAIN);
    memcpy(once, g, (size_t)all->elements * sizeof *g);
    run(&f, 40, TN_TRAIN | TN_ACCUMULATE);
    for (int64_t i = 0; i < all->count; i++)
        for (int64_t j = all->at[i]; j < all->at[i] + all->list[i].n; j++) {
            ck_assert(isfinite(once[j]));
            ck_assert_double_eq_tol(g[j], 2 * once[j], 1e-12 * (1 + fabs(once[j])));
        }
    tn_free(once);
    graph_close(&f);
}
END_TEST

START_TEST(threads_change_no_bit)
{
    float *first = NULL;
    for (int32_t threads = 1; threads <= 3; threads++) {
        graph_fixture f;
        tn_setting width = {"width", "700"}; /* wide enough for several pieces and tiles */
        open_graph(&f, "dag", 32, threads, &width, 1);
        tn_parameters *all = tn_graph_parameters(f.graph);
        graph_fill(&f, 40);
        run(&f, 40, TN_TRAIN);
        size_t bytes = (size_t)all->elements * sizeof(float);
        if (threads == 1) {
            first = tn_alloc(bytes, 1);
            memcpy(first, all->g, bytes);
        }
        ck_assert_mem_eq(first, all->g, bytes);
        graph_close(&f);
    }
    tn_free(first);
}
END_TEST

/* Every layer and the loss through OpenBLAS against the reference, f32 and f64. */
START_TEST(backends_give_the_same_gradients)
{
    for (uint32_t real = 32; real <= 64; real += 32) {
        graph_fixture f[2];
        double scale = 0, worst = 0;
        tn_setting width = {"width", "300"};
        for (int i = 0; i < 2; i++) {
            backend = i ? "openblas" : "reference";
            open_graph(&f[i], "dag", real, 2, &width, 1);
            graph_fill(&f[i], 40);
            run(&f[i], 40, TN_TRAIN);
        }
        backend = "reference";
        const tn_parameters *a = tn_graph_parameters(f[0].graph), *b = tn_graph_parameters(f[1].graph);
        for (int64_t i = 0; i < a->count; i++)
            for (int64_t j = a->at[i]; j < a->at[i] + a->list[i].n; j++) {
                double x = real == 64 ? ((double *)a->g)[j] : ((float *)a->g)[j];
                double y = real == 64 ? ((double *)b->g)[j] : ((float *)b->g)[j];
                scale = fmax(scale, fabs(x));
                worst = fmax(worst, fabs(x - y));
            }
        ck_assert_double_gt(scale, 0.01);
        ck_assert_double_le(worst, scale * (real == 64 ? 1e-13 : 1e-5));
        graph_close(&f[0]);
        graph_close(&f[1]);
    }
}
END_TEST

START_TEST(memory_is_shared_between_lifetimes)
{
    graph_fixture f;
    open_graph(&f, "dag", 32, 1, NULL, 0);
    tn_graph_memory memory = tn_graph_memory_of(f.graph);
    ck_assert_int_lt(memory.activations, memory.activations_unshared);
    graph_close(&f);
}
END_TEST

START_TEST(a_steady_step_allocates_nothing)
{
    graph_fixture f;
    open_graph(&f, "dag", 32, 2, NULL, 0);
    graph_fill(&f, 40);
    run(&f, 40, TN_TRAIN);
    int64_t before = tn_memory_count();
    run(&f, 40, TN_TRAIN);
    run(&f, 39, TN_TRAIN);
    ck_assert_int_eq(tn_memory_count(), before);
    graph_close(&f);
}
END_TEST

START_TEST(the_output_is_what_the_loss_saw)
{
    graph_fixture f;
    double expected = 0;
    open_graph(&f, "dag", 64, 1, NULL, 0);
    graph_fill(&f, 5);
    double loss = run(&f, 5, 0);
    const tn_tensor *y = tn_graph_output(f.graph);
    ck_assert_int_eq(y->ndim, 2);
    ck_assert_int_eq(y->shape[0], 5);
    ck_assert_int_eq(y->shape[1], 3);
    ck_assert_uint_eq(y->dtype.bits, 64);
    for (int i = 0; i < 5; i++) {
        const double *x = (const double *)y->data + 3 * i;
        double sum = log(exp(x[0]) + exp(x[1]) + exp(x[2]));
        expected += sum - 0.9 * x[i % 3] - 0.1 / 3 * (x[0] + x[1] + x[2]); /* smoothing 0.1 */
    }
    ck_assert_double_eq_tol(loss, expected, 1e-12);
    graph_close(&f);
}
END_TEST

static double number_in(const tn_graph_buffer *buffer, int64_t i) { return ((const double *)buffer->tensor.data)[i]; }

START_TEST(buffers_are_named_and_change_in_training_only)
{
    static const char *const names[] = {"hidden.0.norm.running_mean", "hidden.0.norm.running_var",
                                        "hidden.1.norm.running_mean", "hidden.1.norm.running_var"};
    const tn_setting settings[] = {{"widths", "[5, 4]"}, {"normalizer", "batchnorm"}};
    const tn_graph_buffer *buffers;
    graph_fixture f;
    open_graph(&f, "mlp", 64, 1, settings, 2);
    graph_fill(&f, 40);
    for (int trained = 0; trained < 2; trained++) {
        run(&f, 40, trained ? TN_TRAIN : 0);
        ck_assert_uint_eq(tn_graph_buffers(f.graph, &buffers), 4);
        for (int i = 0; i < 4; i++) {
            ck_assert_str_eq(buffers[i].name, names[i]);
            ck_assert_int_eq(buffers[i].tensor.ndim, 1);
            ck_assert_int_eq(buffers[i].tensor.shape[0], i < 2 ? 5 : 4);
            for (int64_t j = 0; j < buffers[i].tensor.shape[0]; j++)
                ck_assert_int_eq(number_in(&buffers[i], j) != i % 2, trained); /* means start at 0, variances at 1 */
        }
    }
    graph_close(&f);
}
END_TEST

/* ---- models and layers that are wrong ---- */

static void create_wrong(const char *model, const tn_setting *settings, size_t count, int32_t wanted, const char *words)
{
    const graph_choice choice = {
        .model = model, .settings = settings, .count = count, .real = 32, .threads = 4, .batch = 4};
    graph_fixture f;
    tn_error err = {0};
    graph_prepare(&f, &choice);
    int32_t status = graph_create(&f, &err);
    ck_assert_msg(status == wanted, "%s: status %d: %s", words, status, err.msg);
    ck_assert_msg(status == TN_OK || strstr(err.msg, words), "\"%s\" is not in: %s", words, err.msg);
    graph_close(&f);
}

START_TEST(a_layer_that_feeds_nothing_is_refused)
{
    tn_setting dead = {"dead", "true"};
    create_wrong("dag", &dead, 1, TN_E_INVALID, "\"dead\" feeds nothing");
}
END_TEST

START_TEST(a_layer_that_plans_wrongly_is_refused)
{
    static const struct {
        const char *fault, *words;
        int32_t status;
    } cases[] = {
        {"none", "", TN_OK},
        {"silent", "hidden.0.activation (wrong): failed without a message", TN_E_INVALID},
        {"no_output", "planned no output", TN_E_PLUGIN},
        {"two_outputs", "two outputs", TN_E_PLUGIN},
        {"batch", "not the batch", TN_E_PLUGIN},
        {"huge", "2^40 elements", TN_E_INVALID},
        {"strides", "2^40 elements", TN_E_INVALID},
        {"workspace", "scratch", TN_E_PLUGIN},
        {"saved_type", "8, 16, 32 or 64 bits", TN_E_PLUGIN},
        {"ignored", "2^40 elements", TN_E_INVALID},
        {"twins", "one that another has", TN_E_PLUGIN},
        {"nameless", "has no name", TN_E_PLUGIN},
        {"initial", "initial-value rule 99", TN_E_PLUGIN},
        {"not_finite", "not finite", TN_E_PLUGIN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64];
        snprintf(text, sizeof text, "{use: wrong, fault: %s}", cases[i].fault);
        tn_setting activation = {"activation", text};
        create_wrong("mlp", &activation, 1, cases[i].status, cases[i].words);
    }
}
END_TEST

START_TEST(a_model_without_a_function_is_refused) { create_wrong("no-build", NULL, 0, TN_E_PLUGIN, "lacks build"); }
END_TEST

/* A smaller batch may fall into more pieces than the largest: partials must have room for all. */
START_TEST(every_batch_size_fits_the_plan)
{
    graph_fixture f;
    /* Rows of 8192 and a batch of 65: 33 pieces of 2 rows, where 64 samples are 64 pieces of one. */
    tn_setting wide[] = {{"widths", "[8192]"}, {"normalizer", "layernorm"}};
    static const int64_t sizes[] = {1, 2, 31, 33, 63, 64, 65};
    open_graph(&f, "mlp", 32, 2, wide, 2);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        graph_fill(&f, sizes[i]);
        run(&f, sizes[i], TN_TRAIN);
    }
    graph_close(&f);
}
END_TEST

/* 2^30 sets of 2^34 samples: bytes beyond 64 bits, whose low bits are 0. */
START_TEST(more_sets_than_can_be_counted_are_no_memory)
{
    const graph_choice choice = {.model = "dag", .real = 32, .batch = (int64_t)1 << 34, .sets = 1 << 30};
    graph_fixture f;
    tn_error err = {0};
    graph_prepare(&f, &choice);
    ck_assert_refused(graph_create(&f, &err), TN_E_MEMORY, err, "no memory", "graph's plan");
    graph_close(&f);
}
END_TEST

START_TEST(every_failed_allocation_is_an_error)
{
    const graph_choice choice = {.model = "dag", .real = 32, .batch = 4};
    graph_fail_allocations(&choice, 20);
}
END_TEST

START_TEST(tiles_cover_every_product)
{
    static const int64_t extents[] = {1, 10, 64, 65, 255, 256, 1000, 4097};
    for (size_t i = 0; i < 8 * 8 * 8; i++) {
        int64_t m = extents[i / 64], n = extents[i / 8 % 8], k = extents[i % 8], rows, columns;
        tn_compute_tile(m, n, k, &rows, &columns);
        ck_assert_int_gt(rows, 0);
        ck_assert_int_gt(columns, 0);
        ck_assert(rows >= m || columns >= n); /* one direction only */
        ck_assert_int_le((m + rows - 1) / rows * ((n + columns - 1) / columns), 128);
    }
}
END_TEST

int main(void)
{
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    Suite *suite = suite_create("graph");
    TCase *tests = tcase_create("graph");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, gradients_are_central_differences);
    tcase_add_test(tests, accumulation_adds_and_setting_ignores_what_was_there);
    tcase_add_test(tests, threads_change_no_bit);
    tcase_add_test(tests, backends_give_the_same_gradients);
    tcase_add_test(tests, memory_is_shared_between_lifetimes);
    tcase_add_test(tests, a_steady_step_allocates_nothing);
    tcase_add_test(tests, the_output_is_what_the_loss_saw);
    tcase_add_test(tests, buffers_are_named_and_change_in_training_only);
    tcase_add_test(tests, a_layer_that_feeds_nothing_is_refused);
    tcase_add_test(tests, a_layer_that_plans_wrongly_is_refused);
    tcase_add_test(tests, a_model_without_a_function_is_refused);
    tcase_add_test(tests, every_batch_size_fits_the_plan);
    tcase_add_test(tests, more_sets_than_can_be_counted_are_no_memory);
    tcase_add_test(tests, every_failed_allocation_is_an_error);
    tcase_add_test(tests, tiles_cover_every_product);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
