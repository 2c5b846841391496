/* SPDX-License-Identifier: Apache-2.0
 *
 * A whole epoch of the quickstart's experiment on the real Fashion-MNIST: the same bits for 1, 2 and 3 threads, and it
 * learns. Run in the release build only.
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

/* The parameters after an epoch; the caller frees them. */
static void *epoch(tn_registry *registry, const char *threads, const char *normalizer, size_t *ret_bytes)
{
    const char *path = test_path("TENON_TEST_DOCS", "experiments/fashion-mlp.yaml");
    const char *overrides[] = {"train.epochs=1", threads, normalizer};
    tn_experiment *experiment;
    tn_trainer *trainer;
    tn_error err = {0};
    ck_ok(tn_experiment_read(registry, path, overrides, 3, &experiment, &err), err);
    tn_trainer_options options = {.registry = registry, .experiment = experiment, .observer = watch};
    ck_ok(tn_trainer_open(&options, &trainer, &err), err);
    ck_ok(tn_trainer_run(trainer, &err), err);
    const tn_parameters *all = tn_graph_parameters(tn_trainer_graph(trainer));
    *ret_bytes = (size_t)all->elements * sizeof(float);
    void *copy = tn_alloc(*ret_bytes, 1);
    memcpy(copy, all->p, *ret_bytes);
    tn_trainer_close(trainer);
    tn_experiment_free(experiment);
    return copy;
}

static void compare(const char *normalizer)
{
    static const char *const threads[] = {"train.threads=1", "train.threads=2", "train.threads=3"};
    tn_registry *registry = test_registry(NULL);
    size_t bytes;
    void *one = epoch(registry, threads[0], normalizer, &bytes);
    ck_assert_double_ge(accuracy, 0.8);
    for (int i = 1; i < 3; i++) {
        void *more = epoch(registry, threads[i], normalizer, &bytes);
        ck_assert_msg(!memcmp(one, more, bytes), "%s gives other bits", threads[i]);
        tn_free(more);
    }
    tn_free(one);
    tn_registry_close(registry);
}

START_TEST(layernorm_epoch_has_the_same_bits_for_any_threads) { compare("model.normalizer=layernorm"); }
END_TEST
START_TEST(batchnorm_epoch_has_the_same_bits_for_any_threads) { compare("model.normalizer=batchnorm"); }
END_TEST

int main(void)
{
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    Suite *suite = suite_create("fashion");
    TCase *tests = tcase_create("fashion");
    tcase_set_timeout(tests, 300);
    tcase_add_test(tests, layernorm_epoch_has_the_same_bits_for_any_threads);
    tcase_add_test(tests, batchnorm_epoch_has_the_same_bits_for_any_threads);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
