/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole runs on a small data set: threads, accumulation, schedules, evaluation views, ragged batches, allocations.
 */
#include "host/base/memory.h"
#include "tests/malloc_count.h"
#include "tests/small_run.h"

/* ---- tests ---- */

START_TEST(a_run_learns_and_counts)
{
    outcome o;
    run(&o, (const char *[]){"train.epochs=12"}, 1);
    ck_assert_int_eq(o.updates, 12 * 7); /* 101 samples in batches of 16: 7 updates an epoch */
    ck_assert_int_eq(o.evaluations, 12);
    ck_assert_double_eq(o.last_epoch, 12);
    ck_assert_double_eq(o.last_update, 84);
    ck_assert_int_eq(tn_trainer_attempt(o.trainer), 84);
    ck_assert_int_eq(tn_trainer_horizon(o.trainer), 84);
    ck_assert_double_ge(o.accuracy, 0.9);
    close_run(&o);
}
END_TEST

START_TEST(threads_change_no_bit)
{
    outcome one, more;
    for (int batchnorm = 0; batchnorm < 2; batchnorm++) {
        const char *norm = batchnorm ? "model.normalizer=batchnorm" : "model.normalizer=layernorm";
        const char *rest = "model.regularizer=dropout", *wide = "model.widths=[600, 300]";
        run(&one, (const char *[]){norm, rest, wide, "train.threads=1"}, 4);
        for (int threads = 2; threads <= 3; threads++) {
            run(&more, (const char *[]){norm, rest, wide, threads == 2 ? "train.threads=2" : "train.threads=3"}, 4);
            assert_same_bits(&one, &more);
            close_run(&more);
        }
        close_run(&one);
    }
}
END_TEST

START_TEST(accumulated_windows_equal_large_batches)
{
    outcome whole, parts;
    /* 101 samples: windows of 64 and 37 either way; the last window has 3 micro-batches, the last of them short. */
    run(&whole, (const char *[]){"precision=f64", "data.batch=64"}, 2);
    run(&parts, (const char *[]){"precision=f64", "data.batch=16", "train.accumulate=4"}, 3);
    ck_assert_int_eq(whole.updates, 4);
    ck_assert_int_eq(parts.updates, 4);
    ck_assert_double_le(largest_difference(&whole, &parts), 1e-12);
    close_run(&whole);
    close_run(&parts);
}
END_TEST

START_TEST(same_seed_same_bits_other_seed_other_bits)
{
    outcome a, b, c;
    run(&a, (const char *[]){"model.regularizer=dropout"}, 1);
    run(&b, (const char *[]){"model.regularizer=dropout"}, 1);
    run(&c, (const char *[]){"model.regularizer=dropout", "train.seed=5"}, 2);
    assert_same_bits(&a, &b);
    ck_assert_double_gt(largest_difference(&a, &c), 1e-3);
    close_run(&a);
    close_run(&b);
    close_run(&c);
}
END_TEST

START_TEST(backends_agree)
{
    outcome reference, openblas;
    run(&reference, (const char *[]){"backend=reference"}, 1);
    run(&openblas, (const char *[]){"backend=openblas"}, 1);
    ck_assert_double_eq_tol(reference.loss, openblas.loss, 1e-3 * reference.loss);
    ck_assert_double_le(largest_difference(&reference, &openblas), 1e-2);
    close_run(&reference);
    close_run(&openblas);
}
END_TEST

START_TEST(f32_follows_f64)
{
    outcome single, twice;
    run(&single, (const char *[]){"precision=f32"}, 1);
    run(&twice, (const char *[]){"precision=f64"}, 1);
    ck_assert_double_eq_tol(single.eval_loss, twice.eval_loss, 5e-2 * twice.eval_loss);
    close_run(&single);
    close_run(&twice);
}
END_TEST

/* SCH-17: warm-up of 2, 10 updates, peak 1, minimum 0.1. */
START_TEST(schedules_reach_both_ends)
{
    static const double right[] = {
        0.5, 1, 1, 0.9554359906, 0.8305704108, 0.6501344203, 0.4498655797, 0.2694295892, 0.1445640094, 0.1};
    outcome o;
    const char *overrides[] = {
        "~train.epochs", "train.steps=10", "update.rule={use: sgd, lr: 1}",
        "schedule={rule.lr: [{use: linear, start: 0, steps: 2, reaches: end}, {use: cosine, end: 0.1}]}"};
    run(&o, overrides, 4);
    ck_assert_int_eq(o.updates, 10);
    for (int i = 0; i < 10; i++)
        ck_assert_double_eq_tol(o.lr[i], right[i], 1e-10);
    close_run(&o);
}
END_TEST

/* Layers and the loss see a scheduled value in the very update it is for. */
START_TEST(schedules_reach_layers_and_the_loss)
{
    outcome scheduled, fixed;
    run(&scheduled,
        (const char *[]){"~train.epochs", "train.steps=3", "schedule={loss.smoothing: {use: constant, value: 1}}"}, 3);
    run(&fixed, (const char *[]){"~train.epochs", "train.steps=3", "loss.smoothing=1", "~schedule"}, 3);
    assert_same_bits(&scheduled, &fixed);
    ck_assert(scheduled.loss == fixed.loss);
    close_run(&scheduled);
    close_run(&fixed);
}
END_TEST

/* Evaluate, then observe: an evaluation that is no better lowers the rate from the very next update on. */
START_TEST(plateaus_watch_evaluations)
{
    outcome o;
    tn_error err = {0};
    tn_log log;
    run(&o,
        (const char *[]){
            "train.epochs=3",
            "schedule={rule.lr: {use: plateau, patience: 0, threshold: 1e9, metric: accuracy, mode: max}}"},
        2);
    for (int i = 0; i < 21; i++) /* 7 updates an epoch; the first evaluation sets the mark */
        ck_assert_double_eq_tol(o.lr[i], i < 14 ? 1e-2 : 1e-3, 1e-15);
    close_run(&o);
    ck_assert_int_eq(open_run(&o, &log, (const char *[]){"schedule={rule.lr: {use: plateau, metric: f1}}"}, 1, &err),
                     TN_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.msg, "'f1'"));
    close_run(&o);
    ck_assert_int_eq(open_run(&o, &log, (const char *[]){"~eval", "schedule={rule.lr: plateau}"}, 2, &err),
                     TN_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.msg, "no evaluation gives"));
    close_run(&o);
}
END_TEST

START_TEST(looking_ahead_ends_at_any_horizon)
{
    outcome o;
    tn_error err = {0};
    tn_log log;
    ck_ok(open_run(&o, &log,
                   (const char *[]){"~train.epochs", "train.steps=9223372036854775807", "schedule={rule.lr: cosine}"},
                   3, &err),
          err);
    close_run(&o);
}
END_TEST

START_TEST(counts_beyond_reason_are_refused)
{
    static const char *const overrides[] = {
        "train.epochs=1e30", "eval.every=1e300 epochs",
        "schedule={rule.lr: [{use: constant, steps: 9223372036854775807}, {use: constant, steps: 9}, cosine]}"};
    for (size_t i = 0; i < 3; i++) {
        outcome o;
        tn_error err = {0};
        tn_log log;
        int32_t status = open_run(&o, &log, &overrides[i], 1, &err);
        ck_assert_msg(status == TN_E_INVALID, "%s: %d %s", overrides[i], status, err.msg);
        close_run(&o);
    }
}
END_TEST

START_TEST(the_averaged_view_is_what_evaluation_sees)
{
    outcome view, train;
    run(&view, (const char *[]){"+update={use: ema, decay: 0.99}", "eval.view=eval"}, 2);
    run(&train, (const char *[]){"+update={use: ema, decay: 0.99}", "eval.view=train"}, 2);
    assert_same_bits(&view, &train); /* averaging leaves training alone */
    ck_assert(view.eval_loss != train.eval_loss);
    const float *average = tn_chain_view(tn_trainer_chain(view.trainer));
    ck_assert_ptr_ne(average, parameters(&view)->p);
    close_run(&view);
    close_run(&train);
}
END_TEST

/* NRM-01: 101 samples in batches of 10 leave one alone; batch-norm can not train on it, and the run goes on. */
START_TEST(a_last_batch_of_one_does_not_break_batchnorm)
{
    outcome o;
    run(&o, (const char *[]){"model.normalizer=batchnorm", "data.batch=10", "train.epochs=3"}, 3);
    ck_assert_int_eq(o.updates, 30);
    ck_assert_ptr_nonnull(strstr(o.log, "is left out"));
    ck_assert(isfinite(o.loss) && isfinite(o.eval_loss));
    close_run(&o);
    run(&o, (const char *[]){"data.batch=10", "train.epochs=3"}, 2);
    ck_assert_int_eq(o.updates, 33); /* layernorm can */
    close_run(&o);
}
END_TEST

/* All parameters 0 but the head's weights of the first class, and the layer before it: logits and so the loss are
 * finite, and the gradients of the first layer are not. */
static void break_gradients(const outcome *o)
{
    const tn_parameters *all = parameters(o);
    memset(all->p, 0, (size_t)all->elements * sizeof(float));
    for (int64_t i = 0; i < all->count; i++) {
        float *p = (float *)all->p + all->at[i];
        int head = !strcmp(all->list[i].name, "head.weight"),
            last = !strcmp(all->list[i].name, "hidden.1.linear.weight");
        for (int64_t j = 0; j < (head ? all->list[i].shape[1] : last ? all->list[i].n : 0); j++)
            p[j] = 3e38f;
    }
}

/* A chain without a round, whose rule hides NaN: sign(NaN) is 0. The check is on unless it is turned off. */
START_TEST(gradients_are_checked_unless_told_otherwise)
{
    const char *const checks[] = {"name=default", "train.check_finite=true", "train.check_finite=false"};
    for (int i = 0; i < 3; i++) {
        outcome o;
        tn_log log;
        open_small(&o, &log, (const char *[]){"update=[lion]", "model.normalizer=none", checks[i]}, 3);
        break_gradients(&o);
        step(&o);
        ck_assert_int_eq(o.skips, i < 2);
        ck_assert_int_eq(strstr(o.log, "the gradient of ") != NULL, i < 2);
        close_run(&o);
    }
}
END_TEST

/* CLIP-01: a run that only sees non-finite gradients changes nothing and stops with a clear word. */
START_TEST(divergence_is_said)
{
    outcome o;
    tn_error err = {0};
    tn_log log;
    ck_ok(open_run(&o, &log, (const char *[]){"train.epochs=40"}, 1, &err), err);
    tn_parameters *all = tn_graph_parameters(tn_trainer_graph(o.trainer));
    ((float *)all->p)[all->at[0]] = INFINITY;
    float *before = tn_alloc((size_t)all->elements, sizeof *before);
    memcpy(before, all->p, (size_t)all->elements * sizeof *before);
    ck_assert_int_eq(tn_trainer_run(o.trainer, &err), TN_E_NUMERIC);
    ck_assert_ptr_nonnull(strstr(err.msg, "diverged"));
    ck_assert_ptr_nonnull(strstr(o.log, "the loss is not finite"));
    ck_assert_mem_eq(before, all->p, (size_t)all->elements * sizeof *before);
    ck_assert_int_eq(o.updates, 0);
    ck_assert_int_eq(o.skips, 25);
    tn_free(before);
    close_run(&o);
}
END_TEST

/* Ten steps after the first, into the second epoch: a new order, a short batch. */
static void check_steady(const char *const *overrides, size_t count)
{
    outcome o;
    tn_log log;
    tn_error err = {0};
    open_small(&o, &log, overrides, count);
    step(&o);
    int32_t status = TN_OK;
    int64_t host = tn_memory_count(), all = malloc_count(); /* no assertion in between: Check allocates */
    for (int i = 0; i < 10 && status == TN_OK; i++)
        status = tn_trainer_step(o.trainer, &err);
    int64_t host_after = tn_memory_count(), all_after = malloc_count();
    ck_ok(status, err);
    ck_assert_int_gt(all, 0);
    ck_assert_int_eq(host_after, host);
    ck_assert_int_eq(all_after, all);
    close_run(&o);
}

START_TEST(a_steady_step_allocates_nothing)
{
    check_steady((const char *[]){"train.threads=2", "backend=openblas", "model.regularizer=dropout",
                                  "+update={use: ema}", "schedule={rule.lr: {use: cosine}}"},
                 5);
    check_steady((const char *[]){"train.threads=2", "update=[{use: sam}, {use: adamw, as: rule}]",
                                  "precision={storage: fp16, loss_scale: dynamic, state: blockwise8}"},
                 3);
    check_steady((const char *[]){"precision={storage: bf16, master: false}", "train.accumulate=2"}, 2);
    check_steady((const char *[]){"model.normalizer=none", "recompute=sqrt",
                                  "update={use: kfac, factor_every: 1, inverse_every: 1}"},
                 3);
}
END_TEST

int main(void)
{
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    Suite *suite = suite_create("trainer");
    TCase *tests = tcase_create("trainer");
    tcase_set_timeout(tests, 300);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_run_learns_and_counts);
    tcase_add_test(tests, threads_change_no_bit);
    tcase_add_test(tests, accumulated_windows_equal_large_batches);
    tcase_add_test(tests, same_seed_same_bits_other_seed_other_bits);
    tcase_add_test(tests, backends_agree);
    tcase_add_test(tests, f32_follows_f64);
    tcase_add_test(tests, schedules_reach_both_ends);
    tcase_add_test(tests, schedules_reach_layers_and_the_loss);
    tcase_add_test(tests, plateaus_watch_evaluations);
    tcase_add_test(tests, looking_ahead_ends_at_any_horizon);
    tcase_add_test(tests, counts_beyond_reason_are_refused);
    tcase_add_test(tests, the_averaged_view_is_what_evaluation_sees);
    tcase_add_test(tests, a_last_batch_of_one_does_not_break_batchnorm);
    tcase_add_test(tests, gradients_are_checked_unless_told_otherwise);
    tcase_add_test(tests, divergence_is_said);
    tcase_add_test(tests, a_steady_step_allocates_nothing);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
