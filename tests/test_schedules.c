/* SPDX-License-Identifier: Apache-2.0
 *
 * host/train/schedule.c: from the section `schedule` to values: sequences, products, their positions and bases.
 */
#include <math.h>
#include <string.h>

#include "host/train/schedule.h"
#include "tests/small_run.h"
#include "tests/support.h"

#define TEXT                                                                                                           \
    "name: x\n"                                                                                                        \
    "data: {use: synthetic, batch: 32}\n"                                                                              \
    "model: mlp\n"                                                                                                     \
    "loss: cross-entropy\n"                                                                                            \
    "update: [{use: adamw, as: rule, lr: 0.5, weight_decay: 0.2, beta1: 0.9}]\n"                                       \
    "train: {epochs: 1, accumulate: 4}\n"

typedef struct {
    tn_experiment *e;
    tn_schedules *schedules;
    int64_t pass;
} opened;

static int32_t try_open(const char *schedule, int64_t horizon, int64_t pass, opened *o, tn_error *err)
{
    const char *overrides[] = {schedule};
    *o = (opened){.pass = pass};
    ck_ok(tn_experiment_parse(test_plugins(), "exp.yaml", TEXT, strlen(TEXT), overrides, 1, &o->e, err), *err);
    return tn_schedules_open(test_plugins(), o->e, horizon, 128.0 * (double)pass, pass, &o->schedules, err);
}

static opened open_schedule(const char *schedule, int64_t horizon, int64_t pass)
{
    opened o;
    tn_error err = {0};
    ck_ok(try_open(schedule, horizon, pass, &o, &err), err);
    return o;
}

static void close_schedule(opened *o)
{
    tn_schedules_close(o->schedules);
    tn_experiment_free(o->e);
}

static double value_at(const opened *o, int64_t step)
{
    tn_position at = {.step = step};
    tn_error err = {0};
    double value;
    ck_ok(tn_schedules_apply(o->schedules, &at, &err), err);
    tn_schedules_at(o->schedules, 0, &value);
    return value;
}

static void check(const char *schedule, int64_t horizon, const double *expected)
{
    opened o = open_schedule(schedule, horizon, 3);
    for (int64_t t = 0; t < horizon; t++)
        ck_assert_double_eq_tol(value_at(&o, t), expected[t], 1e-15);
    for (int64_t t = horizon - 1; t >= 0; t--)
        ck_assert_double_eq_tol(value_at(&o, t), expected[t], 1e-15);
    close_schedule(&o);
}

/* Only the segment that is on acts. */
START_TEST(sch_08_a_chain_starts_with_its_first_alone)
{
    check("schedule={rule.lr: [{use: constant, value: 0.25, steps: 3}, {use: constant, value: 0.15, steps: 4}, "
          "constant]}",
          9, (const double[]){0.25, 0.25, 0.25, 0.15, 0.15, 0.15, 0.15, 0.5, 0.5});
}
END_TEST

START_TEST(product_multiplies_factors_of_the_base)
{
    /* 0.5 times (t + 1)/2 up to 1, times 1 - 0.8 t/4 */
    check("schedule={rule.lr: {product: [{use: linear, start: 0, steps: 2, reaches: end}, {use: linear, end: 0.2}]}}",
          5, (const double[]){0.25, 0.4, 0.3, 0.2, 0.1});
}
END_TEST

/* The ends of a product of one are relative to the base. */
START_TEST(product_of_one_is_relative)
{
    check("schedule={rule.lr: {product: [{use: linear, end: 0.1}]}}", 3, (const double[]){0.5, 0.275, 0.05});
}
END_TEST

/* In a sequence it has a length, and its factors see positions of it. */
START_TEST(product_in_a_sequence)
{
    check(
        "schedule={rule.lr: [{use: constant, steps: 2}, {product: [{use: linear, end: 0}, {use: step, every: 2, gamma: "
        "0.5}], steps: 5}, {product: [{use: constant, value: 3}]}]}",
        9, (const double[]){0.5, 0.5, 0.5, 0.375, 0.125, 0.0625, 0, 1.5, 1.5});
}
END_TEST

START_TEST(products_outside_the_range_are_refused)
{
    opened o;
    tn_error err = {0};
    ck_assert_int_eq(try_open("schedule={rule.lr: {product: [{use: constant, value: -2}]}}", 7, 3, &o, &err),
                     TN_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.msg, "update 1 would get -1, outside the range"));
    close_schedule(&o);
}
END_TEST

/* batch 32, 4 accumulated: 128 samples an update; by the reference of 512. */
START_TEST(batch_rule_sees_the_whole_update)
{
    check("schedule={rule.lr: {use: batch-rule, reference: 512}}", 3, (const double[]){0.125, 0.125, 0.125});
    check("schedule={rule.lr: {product: [{use: batch-rule, reference: 512, rule: sqrt}, {use: linear, end: 0}]}}", 3,
          (const double[]){0.25, 0.125, 0});
}
END_TEST

/* A pass is 3 updates, and epochs of a segment count from its beginning. */
START_TEST(epochs_are_whole_passes)
{
    check("schedule={rule.lr: {use: step, every: 1, gamma: 0.5, unit: epochs}}", 8,
          (const double[]){0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125, 0.125});
    check("schedule={rule.lr: [{use: constant, steps: 1}, {use: step, every: 1, gamma: 0.5, unit: epochs}]}", 8,
          (const double[]){0.5, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125});
}
END_TEST

/* Any real row: decay by a cosine, momentum by a cycle that is turned round; each has its own clock and base. */
START_TEST(weight_decay_and_momentum_are_rows_too)
{
    opened o =
        open_schedule("schedule={rule.lr: {use: one-cycle, rise: 0.5}, rule.weight-decay: {use: linear, start: 0, "
                      "end: 0.4}, rule.beta1: {use: one-cycle, rise: 0.5, start: 0.95, peak: 0.85, end: 0.95}}",
                      9, 3);
    for (int64_t t = 0; t < 9; t++) {
        double lr = value_at(&o, t), decay, beta1;
        tn_schedules_at(o.schedules, 1, &decay);
        tn_schedules_at(o.schedules, 2, &beta1);
        ck_assert_double_eq_tol(decay, 0.05 * (double)t, 1e-16);
        ck_assert_double_ge(beta1, 0.85);
        ck_assert_double_le(beta1, 0.95);
        if (t <= 3) /* up: the same part of both ways is done */
            ck_assert_double_eq_tol((lr - 0.02) / 0.48, (0.95 - beta1) / 0.1, 1e-12);
    }
    close_schedule(&o);
}
END_TEST

/* What factors keep is their own, all of a product observe, with the base 1, and no other segment does. */
START_TEST(plateaus_in_a_product)
{
    opened o = open_schedule("schedule={rule.lr: [{product: [{use: plateau, factor: 0.5, patience: 0, minimum: 0.25}, "
                             "{use: linear, end: 0.5, reaches: start}, {use: plateau, factor: 0.1, patience: 3}], "
                             "steps: 4}, {use: plateau, patience: 0}]}",
                             8, 4);
    static const size_t segments[] = {0, 2, 3};
    const tn_field worse = {.name = "test/loss", .value = 1};
    tn_position at = {.step = 1};
    size_t segment, count;
    double *slots;
    const char *names[] = {"test/loss"};
    tn_error err = {0};
    ck_ok(tn_schedules_check_metrics(o.schedules, names, 1, &err), err);
    ck_assert_double_eq_tol(value_at(&o, 2), 0.5 * 0.75, 1e-15);
    for (int i = 0; i < 5; i++)
        tn_schedules_observe(o.schedules, &at, &worse, 1);
    ck_assert_double_eq_tol(value_at(&o, 2), 0.5 * 0.25 * 0.75 * 0.1, 1e-15);
    ck_assert_double_eq_tol(value_at(&o, 5), 0.5, 1e-15);
    for (size_t i = 0; i < 3; i++) {
        ck_assert_str_eq(tn_schedules_state(o.schedules, i, &segment, &slots, &count), "rule.lr");
        ck_assert_uint_eq(segment, segments[i]);
        ck_assert_uint_eq(count, 5);
        ck_assert_double_eq(slots[0], i < 2 ? 5 : 0);
    }
    ck_assert_ptr_null(tn_schedules_state(o.schedules, 3, &segment, &slots, &count));
    close_schedule(&o);
}
END_TEST

/* ---- in a run ---- */

static const char *const tenths[] = {"~train.epochs", "train.steps=10", "update.rule={use: sgd, lr: 1}",
                                     "schedule={rule.lr: {use: linear, end: 0, reaches: start}}",
                                     "precision={storage: fp16, loss_scale: {use: dynamic, initial: 0x1p21}}"};

/* In one go, and stopped after five updates: the rates used and recorded are the same. */
START_TEST(sch_13_resumed_runs_use_the_same_values)
{
    outcome whole, half, rest;
    tn_log log[2];
    tn_error err = {0};
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/half.safetensors", test_directory);
    run(&whole, tenths, 4);
    open_small(&half, &log[0], tenths, 4);
    for (int i = 0; i < 5; i++)
        step(&half);
    ck_ok(tn_trainer_save(half.trainer, path, &err), err);
    open_small(&rest, &log[1], tenths, 4);
    ck_ok(tn_trainer_restore(rest.trainer, path, &err), err);
    ck_ok(tn_trainer_run(rest.trainer, &err), err);
    ck_assert_int_eq(rest.updates, 5);
    for (int k = 0; k < 10; k++) {
        ck_assert_double_eq_tol(whole.lr[k], 1 - k / 10.0, 1e-15);
        ck_assert_double_eq(k < 5 ? half.lr[k] : rest.lr[k - 5], whole.lr[k]);
    }
    assert_same_bits(&whole, &rest);
    close_run(&whole);
    close_run(&half);
    close_run(&rest);
}
END_TEST

/* An overflow skips the update, and its value is that of the next try. */
START_TEST(sch_19_skipped_updates_do_not_advance)
{
    outcome o;
    run(&o, tenths, 5);
    ck_assert_int_gt(o.skips, 0);
    ck_assert_int_gt(o.updates, 3);
    ck_assert_int_eq(o.updates + o.skips, 10);
    for (int k = 0; k < o.updates; k++)
        ck_assert_double_eq_tol(o.lr[k], 1 - k / 10.0, 1e-15);
    close_run(&o);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("schedules");
    TCase *tcase = tcase_create("schedules");
    tcase_add_test(tcase, sch_08_a_chain_starts_with_its_first_alone);
    tcase_add_test(tcase, product_multiplies_factors_of_the_base);
    tcase_add_test(tcase, product_of_one_is_relative);
    tcase_add_test(tcase, product_in_a_sequence);
    tcase_add_test(tcase, products_outside_the_range_are_refused);
    tcase_add_test(tcase, batch_rule_sees_the_whole_update);
    tcase_add_test(tcase, epochs_are_whole_passes);
    tcase_add_test(tcase, weight_decay_and_momentum_are_rows_too);
    tcase_add_test(tcase, plateaus_in_a_product);
    suite_add_tcase(suite, tcase);
    TCase *runs = tcase_create("runs");
    tcase_add_checked_fixture(runs, setup, teardown);
    tcase_add_test(runs, sch_13_resumed_runs_use_the_same_values);
    tcase_add_test(runs, sch_19_skipped_updates_do_not_advance);
    suite_add_tcase(suite, runs);
    return test_main(suite);
}
