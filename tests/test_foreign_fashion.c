/* SPDX-License-Identifier: Apache-2.0
 *
 * A whole epoch of Fashion-MNIST with tanhf of the C library as activation: the accuracy of the built-in tanh, however
 * the derivative comes, and the same bits for any number of threads. In the release build only.
 */
#include <stdio.h>

#include "host/base/memory.h"
#include "host/train/trainer.h"
#include "tests/support.h"

static double accuracy;

static int32_t watch(void *user, const tn_record *record)
{
    (void)user;
    for (int32_t i = 0; i < record->field_count; i++)
        if (!strcmp(record->fields[i].name, "test/accuracy"))
            accuracy = record->fields[i].value;
    return 0;
}

/* The accuracy after an epoch of an experiment, and a hash of its parameters. */
static double train(const char *name, const char *activation, const char *threads, uint64_t *ret_hash)
{
    const char *overrides[] = {"train.epochs=1", threads, activation};
    tn_registry *registry = test_registry(NULL);
    tn_experiment *experiment;
    tn_trainer *trainer;
    tn_error err = {0};
    ck_ok(tn_experiment_read(registry, test_path("TENON_TEST_DOCS", name), overrides, activation ? 3 : 2, &experiment,
                             &err),
          err);
    const tn_trainer_options options = {.registry = registry, .experiment = experiment, .observer = watch};
    accuracy = 0;
    ck_ok(tn_trainer_open(&options, &trainer, &err), err);
    ck_ok(tn_trainer_run(trainer, &err), err);
    const tn_parameters *all = tn_graph_parameters(tn_trainer_graph(trainer));
    *ret_hash = 0xCBF29CE484222325u;
    for (int64_t i = 0; i < all->elements; i++) {
        uint32_t bits;
        memcpy(&bits, (const float *)all->p + i, sizeof bits);
        *ret_hash = (*ret_hash ^ bits) * 0x100000001B3u;
    }
    tn_trainer_close(trainer);
    tn_experiment_free(experiment);
    tn_registry_close(registry);
    return accuracy;
}

#define EXPERIMENT "experiments/fashion-mlp.yaml"
#define FFI        "model.activation={use: ffi, symbol: "

START_TEST(tanhf_trains_to_the_accuracy_of_tanh)
{
    uint64_t ours, other;
    double wanted = train(EXPERIMENT, "model.activation=tanh", "train.threads=2", &other);
    static const char *const ways[] = {FFI "tanhf, signature: \"f32(f32)\", derivative: 1 - y * y}",
                                       FFI "tanh, signature: \"f64(f64)\"}"};
    ck_assert_double_ge(wanted, 0.8);
    for (int i = 0; i < 2; i++) { /* the last bits of tanhf are others: ten of ten thousand images may move */
        double got = train(EXPERIMENT, ways[i], "train.threads=2", &ours);
        ck_assert_msg(got >= wanted - 0.001 && got <= wanted + 0.001, "%s: %g, not %g", ways[i], got, wanted);
        ck_assert_uint_ne(ours, other);
    }
}
END_TEST

START_TEST(the_experiment_of_the_page_learns)
{
    uint64_t one, two;
    ck_assert_double_ge(train("experiments/foreign.yaml", NULL, "train.threads=1", &one), 0.82);
    train("experiments/foreign.yaml", NULL, "train.threads=2", &two);
    ck_assert_uint_eq(one, two);
}
END_TEST

int main(void)
{
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    Suite *suite = suite_create("foreign_fashion");
    TCase *tests = tcase_create("foreign_fashion");
    tcase_set_timeout(tests, 300);
    tcase_add_test(tests, tanhf_trains_to_the_accuracy_of_tanh);
    tcase_add_test(tests, the_experiment_of_the_page_learns);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
