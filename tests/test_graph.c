/* SPDX-License-Identifier: Apache-2.0
 *
 * The graph as a whole: gradients through branches and in-place layers against central differences in f64, memory
 * reuse, thread invariance, accumulation, refusals.
 */
#include "host/graph/graph.h"

#include <math.h>
#include <stdio.h>

#include "host/base/memory.h"
#include "host/base/philox.h"
#include "host/graph/compute.h"
#include "tests/support.h"

typedef struct {
    tn_registry *registry;
    tn_pool *pool;
    tn_backend backend;
    tn_instance *model, *loss;
    tn_graph *graph;
} fixture;

static const char *backend = "reference";

/* Samples of 7 numbers in 3 classes. */
static tn_graph_options options_of(const fixture *f, uint32_t real, int64_t batch)
{
    static const int64_t shape[] = {7};
    return (tn_graph_options){.registry = f->registry,
                              .model = f->model,
                              .loss = f->loss,
                              .real = real,
                              .batch = batch,
                              .ndim = 1,
                              .shape = shape,
                              .classes = 3,
                              .backend = &f->backend,
                              .pool = f->pool,
                              .seed = 3};
}

static void open_graph(fixture *f, const char *model, uint32_t real, int32_t threads, const tn_setting *settings,
                       size_t count)
{
    tn_error err = {0};
    const tn_entry_info *entry;
    memset(f, 0, sizeof *f);
    f->registry = test_registry("TENON_TEST_PLUGINS");
    ck_ok(tn_pool_create(threads, &f->pool, &err), err);
    ck_ok(tn_registry_find(f->registry, "backend", backend, NULL, 0, &entry, &err), err);
    ck_ok(tn_registry_load(f->registry, entry, &f->backend, sizeof f->backend, &err), err);
    ck_ok(tn_instance_create(f->registry, "model", model, real, "model", settings, count, &f->model, &err), err);
    tn_setting smoothing = {"smoothing", "0.1"};
    ck_ok(tn_instance_create(f->registry, "loss", "cross-entropy", real, "loss", &smoothing, 1, &f->loss, &err), err);
    tn_graph_options options = options_of(f, real, 65);
    ck_ok(tn_graph_create(&options, &f->graph, &err), err);
}

static void close_graph(fixture *f)
{
    tn_graph_destroy(f->graph);
    tn_instance_free(f->model);
    tn_instance_free(f->loss);
    tn_pool_destroy(f->pool);
    tn_registry_close(f->registry);
}

static void fill_batch(fixture *f, int64_t n, uint32_t real)
{
    tn_random_normal(11, 0, 0, n * 7, 0, 1, real, tn_graph_input(f->graph));
    for (int64_t i = 0; i < n; i++)
        ((int32_t *)tn_graph_target(f->graph))[i] = (int32_t)(i % 3);
}

static double run(fixture *f, int64_t n, uint32_t flags)
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

START_TEST(gradients_are_central_differences)
{
    fixture f;
    open_graph(&f, "dag", 64, 1, NULL, 0);
    tn_parameters *all = tn_graph_parameters(f.graph);
    fill_batch(&f, 6, 64);
    run(&f, 6, TN_TRAIN);
    double *p = all->p, *g = tn_alloc((size_t)all->elements, sizeof *g), worst = 0;
    memcpy(g, all->g, (size_t)all->elements * sizeof *g);
    for (int64_t i = 0; i < all->count; i++)
        for (int64_t j = all->at[i]; j < all->at[i] + all->list[i].n; j++) {
            const double h = 1e-5, at = p[j];
            p[j] = at + h;
            double up = run(&f, 6, 0);
            p[j] = at - h;
            double down = run(&f, 6, 0);
            p[j] = at;
            double error = fabs((up - down) / (2 * h) - g[j]);
            worst = error > worst ? error : worst;
            ck_assert_msg(error < 1e-7, "%s[%lld]: difference %g, gradient %g", all->list[i].name,
                          (long long)(j - all->at[i]), (up - down) / (2 * h), g[j]);
        }
    ck_assert(worst > 0); /* it did compare something */
    tn_free(g);
    close_graph(&f);
}
END_TEST

START_TEST(accumulation_adds_and_setting_ignores_what_was_there)
{
    fixture f;
    open_graph(&f, "dag", 64, 1, NULL, 0);
    tn_parameters *all = tn_graph_parameters(f.graph);
    fill_batch(&f, 40, 64);
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
    close_graph(&f);
}
END_TEST

START_TEST(threads_change_no_bit)
{
    float *first = NULL;
    for (int32_t threads = 1; threads <= 3; threads++) {
        fixture f;
        tn_setting width = {"width", "700"}; /* wide enough for several pieces and tiles */
        open_graph(&f, "dag", 32, threads, &width, 1);
        tn_parameters *all = tn_graph_parameters(f.graph);
        fill_batch(&f, 40, 32);
        run(&f, 40, TN_TRAIN);
        size_t bytes = (size_t)all->elements * sizeof(float);
        if (threads == 1) {
            first = tn_alloc(bytes, 1);
            memcpy(first, all->g, bytes);
        }
        ck_assert_mem_eq(first, all->g, bytes);
        close_graph(&f);
    }
    tn_free(first);
}
END_TEST

/* Every layer and the loss through OpenBLAS against the reference, f32 and f64. */
START_TEST(backends_give_the_same_gradients)
{
    for (uint32_t real = 32; real <= 64; real += 32) {
        fixture f[2];
        double scale = 0, worst = 0;
        tn_setting width = {"width", "300"};
        for (int i = 0; i < 2; i++) {
            backend = i ? "openblas" : "reference";
            open_graph(&f[i], "dag", real, 2, &width, 1);
            fill_batch(&f[i], 40, real);
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
        close_graph(&f[0]);
        close_graph(&f[1]);
    }
}
END_TEST

START_TEST(memory_is_shared_between_lifetimes)
{
    fixture f;
    open_graph(&f, "dag", 32, 1, NULL, 0);
    tn_graph_memory memory = tn_graph_memory_of(f.graph);
    ck_assert_int_lt(memory.activations, memory.activations_unshared);
    close_graph(&f);
}
END_TEST

START_TEST(a_steady_step_allocates_nothing)
{
    fixture f;
    open_graph(&f, "dag", 32, 2, NULL, 0);
    fill_batch(&f, 40, 32);
    run(&f, 40, TN_TRAIN);
    int64_t before = tn_memory_count();
    run(&f, 40, TN_TRAIN);
    run(&f, 39, TN_TRAIN);
    ck_assert_int_eq(tn_memory_count(), before);
    close_graph(&f);
}
END_TEST

START_TEST(the_output_is_what_the_loss_saw)
{
    fixture f;
    double expected = 0;
    open_graph(&f, "dag", 64, 1, NULL, 0);
    fill_batch(&f, 5, 64);
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
    close_graph(&f);
}
END_TEST

static double number_in(const tn_graph_buffer *buffer, int64_t i) { return ((const double *)buffer->tensor.data)[i]; }

START_TEST(buffers_are_named_and_change_in_training_only)
{
    static const char *const names[] = {"hidden.0.norm.running_mean", "hidden.0.norm.running_var",
                                        "hidden.1.norm.running_mean", "hidden.1.norm.running_var"};
    const tn_setting settings[] = {{"widths", "[5, 4]"}, {"normalizer", "batchnorm"}};
    const tn_graph_buffer *buffers;
    fixture f;
    open_graph(&f, "mlp", 64, 1, settings, 2);
    fill_batch(&f, 40, 64);
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
    close_graph(&f);
}
END_TEST

START_TEST(a_layer_that_feeds_nothing_is_refused)
{
    fixture f = {0};
    tn_error err = {0};
    tn_setting dead = {"dead", "true"};
    f.registry = test_registry("TENON_TEST_PLUGINS");
    ck_ok(tn_pool_create(1, &f.pool, &err), err);
    ck_ok(tn_instance_create(f.registry, "model", "dag", 32, "model", &dead, 1, &f.model, &err), err);
    ck_ok(tn_instance_create(f.registry, "loss", "cross-entropy", 32, "loss", NULL, 0, &f.loss, &err), err);
    tn_graph_options options = options_of(&f, 32, 4);
    ck_assert_int_eq(tn_graph_create(&options, &f.graph, &err), TN_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.msg, "\"dead\" feeds nothing"));
    close_graph(&f);
}
END_TEST

/* ---- models and layers that are wrong ---- */

static void create_wrong(const char *model, const tn_setting *settings, size_t count, int32_t wanted, const char *words)
{
    fixture f = {0};
    tn_error err = {0};
    f.registry = test_registry("TENON_TEST_PLUGINS");
    ck_ok(tn_pool_create(4, &f.pool, &err), err);
    ck_ok(tn_instance_create(f.registry, "model", model, 32, "model", settings, count, &f.model, &err), err);
    ck_ok(tn_instance_create(f.registry, "loss", "cross-entropy", 32, "loss", NULL, 0, &f.loss, &err), err);
    tn_graph_options options = options_of(&f, 32, 4);
    int32_t status = tn_graph_create(&options, &f.graph, &err);
    ck_assert_msg(status == wanted, "%s: status %d: %s", words, status, err.msg);
    ck_assert_msg(status == TN_OK || strstr(err.msg, words), "\"%s\" is not in: %s", words, err.msg);
    close_graph(&f);
}

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
    fixture f;
    /* Rows of 8192 and a batch of 65: 33 pieces of 2 rows, where 64 samples are 64 pieces of one. */
    tn_setting wide[] = {{"widths", "[8192]"}, {"normalizer", "layernorm"}};
    static const int64_t sizes[] = {1, 2, 31, 33, 63, 64, 65};
    open_graph(&f, "mlp", 32, 2, wide, 2);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        fill_batch(&f, sizes[i], 32);
        run(&f, sizes[i], TN_TRAIN);
    }
    close_graph(&f);
}
END_TEST

START_TEST(every_failed_allocation_is_an_error)
{
    fixture f = {0};
    tn_error err = {0};
    int64_t failures = 0;
    f.registry = test_registry("TENON_TEST_PLUGINS");
    ck_ok(tn_pool_create(1, &f.pool, &err), err);
    ck_ok(tn_instance_create(f.registry, "model", "dag", 32, "model", NULL, 0, &f.model, &err), err);
    ck_ok(tn_instance_create(f.registry, "loss", "cross-entropy", 32, "loss", NULL, 0, &f.loss, &err), err);
    tn_graph_options options = options_of(&f, 32, 4);
    for (int64_t nth = 1; nth < 10000; nth++) {
        tn_memory_fail_at(nth);
        int32_t status = tn_graph_create(&options, &f.graph, &err);
        tn_memory_fail_at(-1);
        if (status == TN_OK)
            break;
        ck_assert_msg(status == TN_E_MEMORY, "allocation %lld: status %d: %s", (long long)nth, status, err.msg);
        failures++;
    }
    ck_assert_int_gt(failures, 20);
    close_graph(&f);
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
    tcase_add_test(tests, every_failed_allocation_is_an_error);
    tcase_add_test(tests, tiles_cover_every_product);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
