/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the learning-rate range test: smoothing, end and suggestions against golden/ramps.py, and on experiments.
 */
#include "host/base/number.h"
#include "host/range/ramp.h"
#include "host/tenon.h"
#include "tests/small_run.h"

/* ---- series ---- */

static double real_of(const json_t *entry)
{
    double value = NAN;
    if (json_is_number(entry))
        return json_number_value(entry);
    ck_assert_int_eq(tn_parse_real(json_string_value(entry), &value), TN_OK);
    return value;
}

static double real_at(const json_t *object, const char *key) { return real_of(json_object_get(object, key)); }

static void drive(const json_t *c, tn_ramp *ramp)
{
    static const char *const ends[] = {"goes on", "done", "above", "diverged"};
    tn_error err = {0};
    const tn_ramp_settings settings = {.from = real_at(c, "from"),
                                       .to = real_at(c, "to"),
                                       .steps = (int64_t)real_at(c, "steps"),
                                       .linear = json_is_true(json_object_get(c, "linear")),
                                       .smooth = real_at(c, "smooth"),
                                       .stop = real_at(c, "stop")};
    ck_ok(tn_ramp_open(&settings, ramp, &err), err);
    const json_t *losses = json_object_get(c, "losses");
    for (size_t i = 0; i < json_array_size(losses) && ramp->ended == TN_RAMP_GOES_ON; i++)
        tn_ramp_add(ramp, real_of(json_array_get(losses, i)));
    ck_assert_str_eq(ends[ramp->ended], json_string_value(json_object_get(c, "ended")));
}

static void compare(const char *name, int64_t i, const char *what, double found, const json_t *expected)
{
    double wanted = json_number_value(expected);
    expect(fabs(found - wanted) <= 1e-12 * fabs(wanted), "%s: %s %lld is %.17g, wanted %.17g", name, what, (long long)i,
           found, wanted);
}

START_TEST(series_are_those_of_the_script)
{
    json_t *cases = test_golden("ramps.json", NULL), *c;
    size_t n;
    json_array_foreach(cases, n, c) {
        tn_ramp ramp;
        const char *name = json_string_value(json_object_get(c, "name"));
        const json_t *smoothed = json_object_get(c, "smoothed"), *rates = json_object_get(c, "rates");
        drive(c, &ramp);
        expect(ramp.count == (int64_t)json_array_size(smoothed), "%s: %lld points", name, (long long)ramp.count);
        for (int64_t i = 0; i < ramp.count; i++) {
            compare(name, i, "smoothed", ramp.points[i].smoothed, json_array_get(smoothed, (size_t)i));
            compare(name, i, "rate", ramp.points[i].rate, json_array_get(rates, (size_t)i));
        }
        tn_ramp_findings found = tn_ramp_find(&ramp);
        expect(found.minimum == (int64_t)real_at(c, "minimum"), "%s: minimum %lld", name, (long long)found.minimum);
        expect(found.steepest == (int64_t)real_at(c, "steepest"), "%s: steepest %lld", name, (long long)found.steepest);
        expect(found.minimum < 0 ? isnan(found.tenth) : found.tenth == ramp.points[found.minimum].rate / 10,
               "%s: tenth %g", name, found.tenth);
        tn_ramp_close(&ramp);
    }
    ck_assert_uint_eq(n, 13);
    json_decref(cases);
}
END_TEST

/* By hand: smooth 1/2, losses 4, 2, 1, 9: means 2, 2, 1.5, 5.25 over 1/2, 3/4, 7/8, 15/16. */
START_TEST(a_series_by_hand)
{
    static const double losses[] = {4, 2, 1, 9}, smoothed[] = {4, 8 / 3.0, 12 / 7.0, 5.6};
    tn_error err = {0};
    tn_ramp ramp;
    const tn_ramp_settings settings = {.from = 1e-3, .to = 1, .steps = 4, .smooth = 0.5, .stop = 3};
    ck_ok(tn_ramp_open(&settings, &ramp, &err), err);
    for (int i = 0; i < 4; i++) {
        int32_t state = tn_ramp_add(&ramp, losses[i]);
        ck_assert_int_eq(state, i < 3 ? TN_RAMP_GOES_ON : TN_RAMP_ABOVE); /* 5.6 > 3 * 12 / 7 */
        ck_assert_double_eq_tol(ramp.points[i].smoothed, smoothed[i], 1e-14);
        ck_assert_double_eq_tol(ramp.points[i].rate, pow(10, i - 3), 1e-14);
    }
    tn_ramp_findings found = tn_ramp_find(&ramp); /* slopes -4/3, -8/7, ... */
    ck_assert_int_eq(found.minimum, 2);
    ck_assert_int_eq(found.steepest, 0);
    ck_assert_int_eq(found.open, 0);
    tn_ramp_close(&ramp);
}
END_TEST

START_TEST(losses_below_0_end_it_as_far_above)
{
    tn_error err = {0};
    tn_ramp ramp;
    const tn_ramp_settings settings = {.from = 1e-3, .to = 1, .steps = 9, .smooth = 0, .stop = 4};
    ck_ok(tn_ramp_open(&settings, &ramp, &err), err);
    ck_assert_int_eq(tn_ramp_add(&ramp, -1), TN_RAMP_GOES_ON);
    ck_assert_int_eq(tn_ramp_add(&ramp, 1.9), TN_RAMP_GOES_ON);
    ck_assert_int_eq(tn_ramp_add(&ramp, 2.1), TN_RAMP_ABOVE);
    tn_ramp_close(&ramp);
}
END_TEST

START_TEST(settings_out_of_range_are_refused)
{
    static const struct {
        tn_ramp_settings settings;
        const char *word;
    } wrong[] = {{{1, 1, 10, 0, 0.9, 4}, "from 1 to 1"},   {{NAN, 1, 10, 0, 0.9, 4}, "from nan"},
                 {{1, INFINITY, 10, 0, 0.9, 4}, "to inf"}, {{0, 1, 10, 0, 0.9, 4}, "begin above 0"},
                 {{1e-3, 1, 1, 0, 0.9, 4}, "steps 1"},     {{1e-3, 1, 10000000, 0, 0.9, 4}, "steps 10000000"},
                 {{1e-3, 1, 10, 0, 1, 4}, "smooth 1"},     {{1e-3, 1, 10, 0, -0.1, 4}, "smooth -0.1"},
                 {{1e-3, 1, 10, 0, NAN, 4}, "smooth"},     {{1e-3, 1, 10, 0, 0.9, 1}, "stop 1"},
                 {{1e-3, 1, 10, 0, 0.9, NAN}, "stop nan"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tn_error err = {0};
        tn_ramp ramp;
        ck_assert_refused(tn_ramp_open(&wrong[i].settings, &ramp, &err), TN_E_INVALID, err, "", wrong[i].word);
    }
}
END_TEST

/* ---- experiments ---- */

typedef struct {
    tn_ramp_rows rows;
    tn_ramp ramp;
    tn_ramp_watch watch;
} ramped;

/* Opens the small experiment under overrides and ramps it. */
static int32_t ramp_run(ramped *r, outcome *o, const char *row, const tn_ramp_settings *settings,
                        const char *const *overrides, size_t count, tn_error *err)
{
    static tn_log log;
    *r = (ramped){0};
    memset(o, 0, sizeof *o);
    log = (tn_log){note, o};
    r->watch = (tn_ramp_watch){.next = watch, .user = o};
    int32_t status = tn_experiment_read(registry, file, overrides, count, &o->experiment, err);
    if (status == TN_OK)
        status = tn_ramp_open(settings, &r->ramp, err);
    if (status == TN_OK)
        status = tn_ramp_rows_find(o->experiment, row, settings, &r->rows, err);
    tn_trainer_options options = {
        .registry = registry, .experiment = o->experiment, .log = &log, .observer = tn_ramp_observe, .user = &r->watch};
    if (status == TN_OK)
        status = tn_trainer_open(&options, &o->trainer, err);
    return status == TN_OK ? tn_ramp_train(o->trainer, &r->rows, &r->watch, &r->ramp, err) : status;
}

static void close_ramp(ramped *r, outcome *o)
{
    close_run(o);
    tn_ramp_rows_free(&r->rows);
    tn_ramp_close(&r->ramp);
}

#define WITH(...) (const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)

/* With a first rate and a last one that are nearly the same it is the run without a schedule. */
START_TEST(its_updates_are_the_runs_own)
{
    tn_error err = {0};
    ramped r;
    outcome o, plain;
    const tn_ramp_settings settings = {0.01, nextafter(0.01, 1), 10, 1, 0, INFINITY};
    ck_ok(ramp_run(&r, &o, NULL, &settings, WITH("train.accumulate=2", "+schedule={rule.lr: {use: linear, end: 0.5}}"),
                   &err),
          err);
    run(&plain, WITH("train.accumulate=2", "~train.epochs", "+train.steps=10", "eval=none"));
    ck_assert_int_eq(r.ramp.count, 10);
    ck_assert_int_eq(r.ramp.ended, TN_RAMP_DONE);
    ck_assert_double_eq_tol(r.ramp.points[9].loss, plain.loss, 1e-9 * plain.loss);
    ck_assert_double_le(largest_difference(&o, &plain), 1e-6);
    close_ramp(&r, &o);
    close_run(&plain);
}
END_TEST

START_TEST(other_schedules_stay)
{
    tn_error err = {0};
    ramped r;
    outcome o;
    const tn_ramp_settings settings = {1e-4, 1e-1, 8, 0, 0, INFINITY};
    ck_ok(ramp_run(&r, &o, NULL, &settings,
                   WITH("+schedule={rule.lr: constant, rule.weight_decay: {use: linear, start: 0, end: 1, steps: 7}}"),
                   &err),
          err);
    ck_assert_uint_eq(o.experiment->schedule_count, 1);
    const tn_schedule *left = &o.experiment->schedules[0];
    ck_assert_str_eq(left->row->name, "weight_decay");
    ck_assert_double_ne(*tn_instance_real(left->target, left->row), left->base);
    ck_assert_double_eq(*tn_instance_real(r.rows.list[0].target, r.rows.list[0].row), 0.1);
    close_ramp(&r, &o);
}
END_TEST

START_TEST(rates_keep_their_ratio)
{
    static const char both[] = "update=[{use: adamw, as: a, lr: 0.02, on: {axes: 2}}, {use: sgd, as: b, lr: 0.05}]";
    tn_error err = {0};
    ramped r;
    outcome o;
    const tn_ramp_settings settings = {1e-4, 1e-1, 8, 0, 0, INFINITY};
    ck_ok(ramp_run(&r, &o, NULL, &settings, WITH(both), &err), err);
    ck_assert_uint_eq(r.rows.count, 2);
    ck_assert_double_eq(*tn_instance_real(r.rows.list[0].target, r.rows.list[0].row), 0.1);
    ck_assert_double_eq_tol(*tn_instance_real(r.rows.list[1].target, r.rows.list[1].row), 0.25, 1e-15);
    close_ramp(&r, &o);
    ck_ok(ramp_run(&r, &o, "b.lr", &settings, WITH(both), &err), err);
    ck_assert_uint_eq(r.rows.count, 1);
    ck_assert_double_eq(*tn_instance_real(o.experiment->update[0], r.rows.list[0].row), 0.02);
    ck_assert_double_eq(*tn_instance_real(o.experiment->update[1], r.rows.list[0].row), 0.1);
    close_ramp(&r, &o);
    ck_assert_refused(ramp_run(&r, &o, NULL, &settings,
                               WITH("update=[{use: adamw, as: a, lr: 0, on: {axes: 2}}, {use: sgd, as: b}]"), &err),
                      TN_E_INVALID, err, "a.lr is 0", "--row b.lr");
    close_ramp(&r, &o);
}
END_TEST

START_TEST(a_row_that_will_not_do_is_refused)
{
    tn_error err = {0};
    ramped r;
    outcome o;
    const tn_ramp_settings settings = {1e-4, 2, 8, 0, 0, INFINITY}, below = {-1, 1, 8, 1, 0, 4},
                           tiny = {1e-60, 1, 8, 0, 0, 4};
    static const struct {
        const char *row, *word;
    } wrong[] = {{"rul.lr", "did you mean 'rule'"},
                 {"rule.lt", "did you mean 'lr'"},
                 {"rule", "HANDLE.ROW"},
                 {"rule.beta1", "outside its range [0, 1)"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ck_assert_refused(ramp_run(&r, &o, wrong[i].row, &settings, NULL, 0, &err), TN_E_INVALID, err, "",
                          wrong[i].word);
        close_ramp(&r, &o);
    }
    ck_assert_refused(ramp_run(&r, &o, NULL, &below, NULL, 0, &err), TN_E_INVALID, err, "rule.lr would get -1",
                      "range");
    close_ramp(&r, &o);
    ck_assert_refused(ramp_run(&r, &o, NULL, &tiny, NULL, 0, &err), TN_E_INVALID, err, "rule.lr would get 1e-60",
                      "f32");
    close_ramp(&r, &o);
    ck_assert_refused(ramp_run(&r, &o, NULL, &settings, WITH("update=clip-norm"), &err), TN_E_INVALID, err, "",
                      "--row");
    close_ramp(&r, &o);
}
END_TEST

START_TEST(divergence_is_an_end)
{
    tn_error err = {0};
    ramped r;
    outcome o;
    const tn_ramp_settings settings = {1e-3, 1e38, 30, 0, 0, INFINITY};
    ck_ok(ramp_run(&r, &o, NULL, &settings, WITH("update={use: sgd, as: rule}"), &err), err);
    ck_assert_int_eq(r.ramp.ended, TN_RAMP_DIVERGED);
    ck_assert_int_gt(r.ramp.count, 3);
    ck_assert_int_lt(r.ramp.count, 30);
    ck_assert(isfinite(r.ramp.points[r.ramp.count - 1].loss));
    close_ramp(&r, &o);
}
END_TEST

/* A loss scale that begins too large skips attempts, which are no end and no points. */
START_TEST(a_loss_scale_may_look_for_what_fits)
{
    tn_error err = {0};
    ramped r;
    outcome o;
    const tn_ramp_settings settings = {1e-4, 1e-2, 12, 0, 0, INFINITY};
    ck_ok(ramp_run(&r, &o, NULL, &settings,
                   WITH("precision={use: f32, storage: fp16, loss_scale: {use: dynamic, initial: 16777216}}"), &err),
          err);
    ck_assert_int_gt(o.skips, 0);
    ck_assert_int_eq(o.updates, 12);
    ck_assert_int_eq(r.ramp.count, 12);
    ck_assert_int_eq(r.ramp.ended, TN_RAMP_DONE);
    close_ramp(&r, &o);
}
END_TEST

static int32_t stop_at_5(void *user, const tn_record *record)
{
    (void)user;
    return record->update == 5 ? TENON_STOP : 0;
}

START_TEST(the_api_gives_the_same_twice_and_stops)
{
    tn_error err = {0};
    tenon *handle;
    char *text[2];
    ck_ok(tenon_open(NULL, &handle, &err), err);
    tenon_range_options options = {.struct_size = sizeof options, .flags = TENON_JSON, .steps = 20};
    for (int i = 0; i < 2; i++)
        ck_ok(tenon_range(handle, file, i ? (const char *const[]){"train.threads=2"} : NULL, (size_t)i, &options,
                          &text[i], &err),
              err);
    ck_assert_str_eq(text[0], text[1]);
    json_t *report = json_loads(text[0], 0, NULL);
    ck_assert_uint_eq(json_array_size(json_object_get(report, "points")), 20);
    json_decref(report);
    options.observe = stop_at_5;
    ck_assert_refused(tenon_range(handle, file, NULL, 0, &options, &text[0], &err), TN_E_STOPPED, err, "stopped",
                      "5 of");
    tenon_free(text[0]);
    tenon_free(text[1]);
    tenon_close(handle);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ramp");
    TCase *series = tcase_create("series"), *experiments = tcase_create("experiments");
    tcase_add_test(series, series_are_those_of_the_script);
    tcase_add_test(series, a_series_by_hand);
    tcase_add_test(series, losses_below_0_end_it_as_far_above);
    tcase_add_test(series, settings_out_of_range_are_refused);
    tcase_add_checked_fixture(experiments, setup, teardown);
    tcase_add_test(experiments, its_updates_are_the_runs_own);
    tcase_add_test(experiments, other_schedules_stay);
    tcase_add_test(experiments, rates_keep_their_ratio);
    tcase_add_test(experiments, a_row_that_will_not_do_is_refused);
    tcase_add_test(experiments, divergence_is_an_end);
    tcase_add_test(experiments, a_loss_scale_may_look_for_what_fits);
    tcase_add_test(experiments, the_api_gives_the_same_twice_and_stops);
    suite_add_tcase(suite, series);
    suite_add_tcase(suite, experiments);
    return test_main(suite);
}
