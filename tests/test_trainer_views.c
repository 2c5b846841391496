/* SPDX-License-Identifier: Apache-2.0
 *
 * Evaluation of averaged parameters: whose statistics layers use, and that training never notices.
 */
#include "host/base/memory.h"
#include "host/base/philox.h"
#include "host/train/dataset.h"
#include "tests/small_run.h"

#define NORM "model.normalizer=batchnorm"
#define FREE "update=[{use: sgd, lr: 0.5}, {use: schedule-free, beta: 0.9}]"

static const tn_graph_buffer *buffer(const outcome *o, const char *name)
{
    const tn_graph_buffer *list;
    size_t count = tn_graph_buffers(tn_trainer_graph(o->trainer), &list);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(list[i].name, name))
            return &list[i];
    ck_abort_msg("no buffer %s", name);
    return NULL;
}

static void assert_same_statistics(const outcome *a, const outcome *b)
{
    const tn_graph_buffer *x, *y;
    size_t count = tn_graph_buffers(tn_trainer_graph(a->trainer), &x);
    ck_assert_uint_eq(tn_graph_buffers(tn_trainer_graph(b->trainer), &y), count);
    ck_assert_uint_eq(count, 4);
    for (size_t i = 0; i < count; i++)
        ck_assert_mem_eq(x[i].tensor.data, y[i].tensor.data, (size_t)x[i].tensor.shape[0] * sizeof(float));
}

/* Evaluating after each update, refreshed or not, leaves parameters, state and statistics with the bits of a run that
 * never evaluates. */
START_TEST(training_does_not_notice_evaluation)
{
    static const char *const chains[] = {FREE, "+update={use: ema, decay: 0.9}"};
    for (size_t i = 0; i < 2; i++) {
        outcome never, plain, refreshed;
        run(&never, (const char *[]){NORM, chains[i], "~eval", "model.regularizer=dropout"}, 4);
        run(&plain, (const char *[]){NORM, chains[i], "eval.every=1 steps", "model.regularizer=dropout"}, 4);
        run(&refreshed,
            (const char *[]){NORM, chains[i], "eval.every=1 steps", "eval.refresh=3", "model.regularizer=dropout"}, 5);
        assert_same_bits(&never, &plain);
        assert_same_bits(&never, &refreshed);
        assert_same_statistics(&never, &plain);
        assert_same_statistics(&never, &refreshed);
        ck_assert(plain.eval_loss != refreshed.eval_loss);
        ck_assert_int_eq(refreshed.evaluations, 14);
        close_run(&never);
        close_run(&plain);
        close_run(&refreshed);
    }
}
END_TEST

/* Mean over the first `batches` batches of the refresh's order of each batch's mean of w x + b, one output of the first
 * layer. */
static double mean_of_output(const outcome *o, int64_t batches, int64_t output)
{
    const tn_parameters *all = parameters(o);
    const float *view = tn_chain_view(tn_trainer_chain(o->trainer)), *w = NULL, *b = NULL;
    uint32_t order[101];
    tn_dataset set;
    tn_error err = {0};
    ck_ok(tn_dataset_open(registry, o->experiment->data, "train", NULL, 4, &set, &err), err);
    tn_random_permutation(tn_hash_key(4, "data", "refresh"), 0, 101, order);
    for (int64_t i = 0; i < all->count; i++) {
        w = strcmp(all->list[i].name, "hidden.0.linear.weight") ? w : view + all->at[i] + output * 64;
        b = strcmp(all->list[i].name, "hidden.0.linear.bias") ? b : view + all->at[i] + output;
    }
    double mean = 0;
    for (int64_t k = 0; k < batches; k++)
        for (int64_t i = 0; i < 16; i++) {
            float x[64];
            int32_t target;
            int64_t index = order[16 * k + i];
            set.table.gather(o->experiment->data->hyper, set.memory, &(tn_context){0}, &index, 1, 0, x, &target);
            double y = *b;
            for (int pixel = 0; pixel < 64; pixel++)
                y += (double)w[pixel] * x[pixel];
            mean += y / 16 / (double)batches;
        }
    tn_dataset_close(&set);
    return mean;
}

/* Statistics of the view are the mean over the batches that were asked for, under the view's parameters. */
START_TEST(a_refresh_takes_statistics_under_the_view)
{
    outcome o;
    run(&o, (const char *[]){NORM, FREE, "eval.refresh=3"}, 3);
    const tn_graph_buffer *mean = buffer(&o, "hidden.0.norm.running_mean");
    for (int64_t output = 0; output < 24; output++)
        ck_assert_double_eq_tol(((float *)mean->eval.data)[output], mean_of_output(&o, 3, output), 1e-5);
    ck_assert(memcmp(mean->eval.data, mean->tensor.data, 24 * sizeof(float)) != 0);
    close_run(&o);
}
END_TEST

/* The mean that the second layer's batch-norm has in the view after a step that moves nothing and an evaluation. The
 * first one's makes 0 of equal samples, so its bias is what goes on. */
static void refreshed_mean(const char *batches, const char *regularizer, float ret[12])
{
    outcome o;
    tn_log log;
    tn_error err = {0};
    open_small(&o, &log,
               (const char *[]){NORM, "update=[{use: sgd, lr: 0}, {use: ema, decay: 0}]", batches, regularizer}, 4);
    const tn_parameters *all = parameters(&o);
    for (int64_t i = 0; i < all->count; i++)
        for (int64_t j = 0; j < all->list[i].n && !strcmp(all->list[i].name, "hidden.0.norm.bias"); j++)
            ((float *)all->p)[all->at[i] + j] = 1;
    step(&o);
    ck_ok(tn_trainer_evaluate(o.trainer, &err), err);
    memcpy(ret, buffer(&o, "hidden.1.norm.running_mean")->eval.data, 12 * sizeof(float));
    close_run(&o);
}

/* Samples and parameters are all the same, so only masks can make the mean over two batches another one than the first
 * batch's: each batch draws its own, the same ones in every evaluation of the attempt. */
START_TEST(batches_of_a_refresh_draw_their_own)
{
    const char *plain = "model.regularizer=none", *dropout = "model.regularizer={use: dropout, p: 0.5}";
    float one[12], two[12], again[12];
    small_set_of_equals(48);
    refreshed_mean("eval.refresh=1", plain, one);
    refreshed_mean("eval.refresh=2", plain, two);
    for (int i = 0; i < 12; i++)
        ck_assert_double_eq_tol(one[i], two[i], 1e-6);
    refreshed_mean("eval.refresh=1", dropout, one);
    refreshed_mean("eval.refresh=2", dropout, two);
    refreshed_mean("eval.refresh=2", dropout, again);
    ck_assert_mem_eq(two, again, sizeof two);
    for (int i = 0; i < 12; i++)
        ck_assert_double_gt(fabs((double)one[i] - two[i]), 1e-5);
}
END_TEST

/* More batches than an epoch has are the epoch, without the last if it can not be trained on. */
START_TEST(a_refresh_is_an_epoch_at_most)
{
    outcome less, epoch, more;
    run(&less, (const char *[]){NORM, FREE, "eval.refresh=9", "data.batch=10"}, 4);
    run(&epoch, (const char *[]){NORM, FREE, "eval.refresh=10", "data.batch=10"}, 4);
    run(&more, (const char *[]){NORM, FREE, "eval.refresh=1000", "data.batch=10"}, 4);
    ck_assert(epoch.eval_loss == more.eval_loss);
    ck_assert(less.eval_loss != more.eval_loss);
    close_run(&less);
    close_run(&epoch);
    close_run(&more);
}
END_TEST

static int count(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)); at++)
        n++;
    return n;
}

/* Statistics of other parameters are worth a warning, once; nothing where nothing is averaged, or no layer has any. */
START_TEST(stale_statistics_are_said_once)
{
    static const struct {
        const char *normalizer, *link, *view;
        int warnings;
    } cases[] = {{NORM, "+update={use: ema, decay: 0.9}", "eval.view=eval", 1},
                 {NORM, "+update={use: ema, decay: 0.9}", "eval.view=train", 0},
                 {NORM, "eval.batch=7", "eval.view=eval", 0},
                 {"model.normalizer=layernorm", "+update={use: ema, decay: 0.9}", "eval.view=eval", 0}};
    for (size_t i = 0; i < 4; i++) {
        outcome o;
        run(&o, (const char *[]){cases[i].normalizer, cases[i].link, cases[i].view}, 3);
        ck_assert_int_eq(o.evaluations, 2);
        ck_assert_int_eq(count(o.log, "eval.refresh="), cases[i].warnings);
        close_run(&o);
    }
}
END_TEST

/* Without a refresh the view is evaluated with the statistics that training has come to, as of this evaluation. */
START_TEST(without_a_refresh_statistics_are_of_training)
{
    outcome o;
    run(&o, (const char *[]){NORM, FREE}, 2);
    const tn_graph_buffer *mean = buffer(&o, "hidden.1.norm.running_mean");
    ck_assert_mem_eq(mean->eval.data, mean->tensor.data, 12 * sizeof(float));
    close_run(&o);
}
END_TEST

int main(void)
{
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    Suite *suite = suite_create("trainer_views");
    TCase *tests = tcase_create("trainer_views");
    tcase_set_timeout(tests, 300);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, training_does_not_notice_evaluation);
    tcase_add_test(tests, a_refresh_takes_statistics_under_the_view);
    tcase_add_test(tests, batches_of_a_refresh_draw_their_own);
    tcase_add_test(tests, a_refresh_is_an_epoch_at_most);
    tcase_add_test(tests, stale_statistics_are_said_once);
    tcase_add_test(tests, without_a_refresh_statistics_are_of_training);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
