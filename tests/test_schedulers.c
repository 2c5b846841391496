/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/scheduler: values against golden/schedulers.json, exact ends, the known faults by name.
 */
#include <jansson.h>
#include <math.h>

#include <tenon/scheduler.h>

#include "tests/component.h"

#define SEGMENTS 4

typedef struct segment {
    tn_instance *c;
    tn_scheduler table;
    int64_t steps; /* 0: the last one */
} segment;

typedef struct sequence {
    size_t count;
    int64_t pass;
    double batch;
    segment segments[SEGMENTS];
} sequence;

static segment segment_open(const char *use)
{
    segment s = {.steps = 0};
    s.c = component_open("scheduler", use, 0, &s.table, sizeof s.table);
    return s;
}

static void sequence_close(sequence *q)
{
    for (size_t i = 0; i < q->count; i++)
        tn_instance_free(q->segments[i].c);
}

/* The value at update t of a run of `total` updates, as the host composes a sequence. */
static double sequence_value(const sequence *q, double base, int64_t total, int64_t t)
{
    tn_position at = {.struct_size = sizeof at, .base = base, .pass = q->pass, .batch = q->batch};
    int64_t first = 0;
    size_t i = 0;
    for (; i + 1 < q->count && t >= first + q->segments[i].steps; i++)
        first += q->segments[i].steps;
    at.step = t - first;
    at.horizon = i + 1 < q->count ? q->segments[i].steps : total > first ? total - first : 0;
    return q->segments[i].table.value(q->segments[i].c->hyper, &at, NULL);
}

static sequence sequence_from(const json_t *segments)
{
    sequence q = {0};
    size_t i;
    json_t *one;
    json_array_foreach(segments, i, one) {
        const char *key;
        json_t *text;
        ck_assert_uint_lt(i, SEGMENTS);
        q.segments[i] = segment_open(json_string_value(json_object_get(one, "use")));
        json_object_foreach(one, key, text) {
            if (strcmp(key, "use") != 0)
                component_set(q.segments[i].c, key, json_string_value(text));
            if (strcmp(key, "steps") == 0)
                q.segments[i].steps = atoll(json_string_value(text));
        }
        q.count = i + 1;
    }
    return q;
}

/* Forwards, then backwards: the order of the questions must not matter. */
static void check_case(const json_t *one)
{
    const char *name = json_string_value(json_object_get(one, "name"));
    const json_t *values = json_object_get(one, "values");
    double base = json_number_value(json_object_get(one, "base"));
    int64_t total = json_integer_value(json_object_get(one, "total"));
    sequence q = sequence_from(json_object_get(one, "segments"));
    q.pass = json_integer_value(json_object_get(one, "pass"));
    q.batch = json_number_value(json_object_get(one, "batch"));
    int64_t count = (int64_t)json_array_size(values);
    double *seen = calloc((size_t)count, sizeof *seen);
    ck_assert_int_gt(count, 0);
    for (int64_t t = 0; t < count; t++) {
        double expected = json_number_value(json_array_get(values, (size_t)t));
        seen[t] = sequence_value(&q, base, total, t);
        ck_assert_msg(fabs(seen[t] - expected) <= 2e-14 * fmax(fabs(expected), fabs(base)),
                      "%s: update %lld: %.17g, not %.17g", name, (long long)t, seen[t], expected);
    }
    for (int64_t t = count - 1; t >= 0; t--)
        ck_assert_msg(seen[t] == sequence_value(&q, base, total, t), "%s: update %lld is not pure", name, (long long)t);
    free(seen);
    sequence_close(&q);
}

START_TEST(golden_values)
{
    json_t *cases = test_golden("schedulers.json", NULL), *one;
    size_t i;
    ck_assert_uint_gt(json_array_size(cases), 150);
    json_array_foreach(cases, i, one)
        check_case(one);
    json_decref(cases);
}
END_TEST

static double value_at(const segment *s, int64_t step, int64_t horizon, double base)
{
    tn_position at = {.struct_size = sizeof at, .step = step, .horizon = horizon, .base = base};
    return s->table.value(s->c->hyper, &at, NULL);
}

START_TEST(exact_start_and_end)
{
    static const char *const uses[] = {"linear", "cosine", "polynomial", "rex", "geometric"};
    for (int i = 0; i < 5; i++) {
        segment s = segment_open(uses[i]);
        component_set(s.c, "start", "0.3");
        component_set(s.c, "end", "0.1");
        for (int64_t total = 2; total < 300; total++) {
            ck_assert_double_eq(value_at(&s, 0, total, 7), 0.3);
            ck_assert_double_eq(value_at(&s, total - 1, total, 7), 0.1);
            ck_assert_double_eq(value_at(&s, total + 5, total, 7), 0.1);
        }
        ck_assert_double_eq(value_at(&s, INT64_MAX, INT64_MAX, 7), 0.1);
        ck_assert_double_eq(value_at(&s, 0, INT64_MAX, 7), 0.3);
        tn_instance_free(s.c);
    }
}
END_TEST

START_TEST(monotonic_and_between)
{
    static const char *const uses[] = {"linear", "cosine", "polynomial", "rex", "geometric", "tanh", "wsd"};
    for (int i = 0; i < 7; i++) {
        segment s = segment_open(uses[i]);
        double last = 0.3;
        component_set(s.c, "end", "1e-5");
        for (int64_t t = 0; t < 5000; t++) {
            double value = value_at(&s, t, 4000, 0.3);
            ck_assert_double_le(value, last);
            ck_assert_double_ge(value, 1e-5);
            last = value;
        }
        tn_instance_free(s.c);
    }
}
END_TEST

/* Numbers that do not come from schedulers.py. */
START_TEST(sch_01_cosine_holds_its_end)
{
    static const double expected[] = {0.5, 0.4522542486, 0.3272542486, 0.1727457514, 0.04774575141, 0, 0, 0};
    static const int order[] = {7, 0, 5, 3, 1, 6, 2, 4};
    segment s = segment_open("cosine");
    component_set(s.c, "steps", "5");
    for (int i = 0; i < 8; i++)
        ck_assert_double_eq_tol(value_at(&s, order[i], 12, 0.5), expected[order[i]], 1e-10);
    ck_assert_double_eq(value_at(&s, 5, 12, 0.5), 0);
    tn_instance_free(s.c);
}
END_TEST

START_TEST(sch_13_linear)
{
    segment s = segment_open("linear");
    component_set(s.c, "end", "0");
    component_set(s.c, "steps", "10");
    for (int k = 0; k < 10; k++)
        ck_assert_double_eq_tol(value_at(&s, k, 10, 1), 1 - k / 10.0, 1e-15);
    tn_instance_free(s.c);
}
END_TEST

START_TEST(sch_16_warm_up_in_both_conventions)
{
    segment s = segment_open("linear");
    component_set(s.c, "start", "0");
    component_set(s.c, "steps", "4");
    ck_assert_double_eq(value_at(&s, 0, 4, 1), 0);
    ck_assert_double_eq(value_at(&s, 3, 4, 1), 0.75);
    component_set(s.c, "reaches", "end");
    for (int k = 0; k < 4; k++)
        ck_assert_double_eq(value_at(&s, k, 4, 1), (k + 1) / 4.0);
    tn_instance_free(s.c);
}
END_TEST

START_TEST(sch_17_phases)
{
    static const double expected[] = {
        0.5, 1, 1, 0.9554359906, 0.8305704108, 0.6501344203, 0.4498655797, 0.2694295892, 0.1445640094, 0.1};
    sequence q = {.count = 2};
    q.segments[0] = segment_open("linear");
    q.segments[0].steps = 2;
    component_set(q.segments[0].c, "start", "0");
    component_set(q.segments[0].c, "steps", "2");
    component_set(q.segments[0].c, "reaches", "end");
    q.segments[1] = segment_open("cosine");
    component_set(q.segments[1].c, "end", "0.1");
    for (int t = 0; t < 10; t++)
        ck_assert_double_eq_tol(sequence_value(&q, 1, 10, t), expected[t], 1e-10);
    ck_assert_double_eq(sequence_value(&q, 1, 10, 9), 0.1);
    q.segments[0].steps = 100;
    component_set(q.segments[0].c, "steps", "100");
    component_set(q.segments[1].c, "end", "0");
    component_set(q.segments[1].c, "reaches", "start");
    ck_assert_double_eq_tol(sequence_value(&q, 1, 1000, 550), 0.5, 1e-15);
    sequence_close(&q);
}
END_TEST

START_TEST(published_cosine)
{
    segment s = segment_open("cosine");
    component_set(s.c, "end", "0.001");
    component_set(s.c, "steps", "100");
    ck_assert_double_eq_tol(value_at(&s, 25, 100, 0.1), 0.0855017856687341, 1e-15);
    ck_assert_double_eq_tol(value_at(&s, 50, 100, 0.1), 0.0505, 1e-15);
    tn_instance_free(s.c);
}
END_TEST

/* ---- ends that are exact whatever the numbers ---- */

static segment configured(const char *use, const char *const *settings)
{
    segment s = segment_open(use);
    for (; *settings; settings += 2)
        component_set(s.c, settings[0], settings[1]);
    return s;
}
#define CONFIGURED(use, ...) configured(use, (const char *const[]){__VA_ARGS__, NULL})

START_TEST(exact_ends_of_phases)
{
    static const char *const shapes[] = {"linear", "cosine", "sqrt", "square", "exponential", "geometric"};
    for (int64_t total = 20; total < 300; total++) {
        segment s = CONFIGURED("one-cycle", "start", "0.03", "end", "0.007", "rise", "0.3");
        ck_assert_double_eq(value_at(&s, 0, total, 0.7), 0.03);
        ck_assert_double_eq(value_at(&s, total - 1, total, 0.7), 0.007);
        ck_assert_double_eq(value_at(&s, total + 9, total, 0.7), 0.007);
        if (total % 10 == 0)
            ck_assert_double_eq(value_at(&s, total * 3 / 10 - 1, total, 0.7), 0.7);
        tn_instance_free(s.c);
        for (int i = 0; i < 6; i++) {
            s = CONFIGURED("wsd", "end", "0.007", "warmup", "7", "decay", "11", "shape", shapes[i]);
            ck_assert_double_eq(value_at(&s, 6, total, 0.7), 0.7);
            ck_assert_double_eq(value_at(&s, total - 12, total, 0.7), 0.7);
            ck_assert_double_lt(value_at(&s, total - 11, total, 0.7), 0.7);
            ck_assert_double_eq(value_at(&s, total - 1, total, 0.7), 0.007);
            ck_assert_double_eq(value_at(&s, INT64_MAX, total, 0.7), 0.007);
            tn_instance_free(s.c);
        }
    }
}
END_TEST

START_TEST(every_warm_up_ends_at_its_end)
{
    static const char *const shapes[] = {"linear", "exponential", "geometric", "log"};
    for (int i = 0; i < 4; i++) {
        segment s = CONFIGURED("warmup", "shape", shapes[i], "end", "0.7", "steps", "37");
        double last = -1;
        for (int64_t t = 0; t < 60; t++) {
            double value = value_at(&s, t, 100, 3);
            ck_assert_double_ge(value, last);
            ck_assert_double_le(value, 0.7);
            last = value;
        }
        ck_assert_double_eq(value_at(&s, 37, 100, 3), 0.7);
        ck_assert_double_eq(value_at(&s, INT64_MAX, 100, 3), 0.7);
        ck_assert_double_eq(value_at(&s, 36, 100, 3) == 0.7, i == 3);
        tn_instance_free(s.c);
    }
}
END_TEST

/* Where a rounding error would put the corner beside the update. */
START_TEST(exact_corners)
{
    static const char *const rises[] = {"0.07", "0.14", "0.28", "0.29", "0.55", "0.57", "0.58"};
    segment s;
    for (int i = 0; i < 7; i++) {
        int64_t corner = (int64_t)rint(100 * atof(rises[i])) - 1;
        s = CONFIGURED("one-cycle", "rise", rises[i], "anneal", "linear");
        ck_assert_double_eq(value_at(&s, corner, 100, 0.7), 0.7);
        tn_instance_free(s.c);
    }
    s = CONFIGURED("cosine-restarts", "period", "10", "mult", "1.6");
    ck_assert_double_eq(value_at(&s, 26, 0, 0.7), 0.7); /* 10 + 16; in doubles a hair before */
    tn_instance_free(s.c);
    s = segment_open("cyclic");
    component_set(s.c, "up", "3");
    for (int64_t k = 1; k < 100; k++) {
        ck_assert_double_eq(value_at(&s, 3, 0, 0.07 * (double)k), 0.07 * (double)k);
        ck_assert_double_eq(value_at(&s, 6, 0, 0.07 * (double)k), 0.07 * (double)k / 4);
    }
    component_set(s.c, "start", "0.9");
    for (int64_t k = 1; k < 100; k++)
        ck_assert_double_eq(value_at(&s, 3, 0, 0.07 * (double)k), 0.07 * (double)k);
    tn_instance_free(s.c);
}
END_TEST

/* Behind 2^31 updates nothing wraps, and a cycle begins where it should. */
START_TEST(far_positions)
{
    int64_t far = INT64_C(1) << 40;
    segment s = CONFIGURED("cosine-restarts", "period", "1024");
    ck_assert_double_eq(value_at(&s, far, 0, 0.3), 0.3);
    ck_assert_double_eq_tol(value_at(&s, far + 512, 0, 0.3), 0.15, 1e-15);
    tn_instance_free(s.c);
    s = CONFIGURED("cosine-restarts", "period", "1", "mult", "2");
    ck_assert_double_eq(value_at(&s, far - 1, 0, 0.3), 0.3);
    ck_assert_double_lt(value_at(&s, far - 2, 0, 0.3), 1e-12);
    tn_instance_free(s.c);
    s = CONFIGURED("cyclic", "up", "512", "start", "0.1");
    ck_assert_double_eq(value_at(&s, far, 0, 0.3), 0.1);
    ck_assert_double_eq(value_at(&s, far + 512, 0, 0.3), 0.3);
    tn_instance_free(s.c);
    s = CONFIGURED("step", "every", "1099511627776", "gamma", "0.5");
    ck_assert_double_eq(value_at(&s, far - 1, 0, 0.3), 0.3);
    ck_assert_double_eq(value_at(&s, far, 0, 0.3), 0.15);
    tn_instance_free(s.c);
}
END_TEST

/* ---- known faults; the numbers are those of the reports ---- */

static void check_values(const segment *s, double base, int64_t horizon, const double *expected, int count)
{
    for (int twice = 0; twice < 2; twice++)
        for (int t = 0; t < count; t++)
            ck_assert_double_eq_tol(value_at(s, t, horizon, base), expected[t], 1e-10 * base);
}

START_TEST(sch_02_restarts_begin_at_the_start_value)
{
    static const double expected[] = {0.5, 0.5, 0.25, 0.5, 0.4267766953, 0.25, 0.0732233047, 0.5, 0.4809698831};
    segment s = CONFIGURED("cosine-restarts", "period", "1", "mult", "2");
    check_values(&s, 0.5, 0, expected, 9);
    tn_instance_free(s.c);
    static const int at[] = {9, 10, 29, 30};
    static const double table[] = {0.0244717419, 1, 0.0061558297, 1};
    s = CONFIGURED("cosine-restarts", "period", "10", "mult", "2");
    for (int i = 0; i < 4; i++)
        ck_assert_double_eq_tol(value_at(&s, at[i], 0, 1), table[i], 1e-10);
    tn_instance_free(s.c);
}
END_TEST

START_TEST(sch_04_one_cycle_uses_all_its_updates)
{
    static const double expected[] = {0.004,          0.052,         0.1,           0.0950484632,
                                      0.08117456539,  0.06112620219, 0.03887419781, 0.01882583461,
                                      0.004951936799, 4e-07,         4e-07,         4e-07};
    segment s = CONFIGURED("one-cycle", "steps", "10");
    check_values(&s, 0.1, 99, expected, 12);
    ck_assert_double_eq_tol(value_at(&s, 9, 99, 0.1), 4e-7, 1e-20);
    tn_instance_free(s.c);
    static const int at[] = {0, 10, 29, 30, 99};
    static const double table[] = {0.04, 0.2951639485, 1, 0.9994965353, 4e-6};
    s = segment_open("one-cycle");
    for (int i = 0; i < 5; i++)
        ck_assert_double_eq_tol(value_at(&s, at[i], 100, 1), table[i], 1e-10);
    tn_instance_free(s.c);
}
END_TEST

START_TEST(sch_10_reading_twice_changes_nothing)
{
    static const double expected[] = {0.2, 0.2, 0.02, 0.02, 0.02, 0.02, 0.02, 0.02, 0.002, 0.002};
    segment s = CONFIGURED("multistep", "milestones", "[2, 8]");
    check_values(&s, 0.2, 10, expected, 10);
    tn_instance_free(s.c);
}
END_TEST

/* A value comes from its position alone: an instance that was never asked for updates 0 to 9 has those of 10 to 14. */
START_TEST(sch_11_values_come_from_the_position)
{
    segment s = CONFIGURED("multistep", "milestones", "[5]");
    for (int t = 10; t < 15; t++)
        ck_assert_double_eq_tol(value_at(&s, t, 15, 1), 0.1, 1e-16);
    tn_instance_free(s.c);
    s = CONFIGURED("cosine", "steps", "1000");
    ck_assert_double_eq_tol(value_at(&s, 400, 1000, 1), 0.6545084972, 1e-10);
    tn_instance_free(s.c);
}
END_TEST

START_TEST(sch_14_halved_at_each_update)
{
    segment s = CONFIGURED("step", "every", "1", "gamma", "0.5");
    check_values(&s, 1, 3, (const double[]){1, 0.5, 0.25}, 3);
    tn_instance_free(s.c);
}
END_TEST

START_TEST(published_noam)
{
    segment s = segment_open("noam");
    ck_assert_double_eq_tol(value_at(&s, 0, 0, 1), 1.746928e-7, 1e-13);
    ck_assert_double_eq_tol(value_at(&s, 3999, 0, 1), 6.987712e-4, 1e-10);
    ck_assert_double_eq_tol(value_at(&s, 15999, 0, 1), 3.493856e-4, 1e-10);
    ck_assert_double_gt(value_at(&s, 3999, 0, 1), value_at(&s, 4000, 0, 1));
    ck_assert_double_gt(value_at(&s, 3999, 0, 1), value_at(&s, 3998, 0, 1));
    tn_instance_free(s.c);
}
END_TEST

/* ---- plateau: values after each of a row of metrics ---- */

#define PLATEAU_SLOTS 5

static segment plateau(const char *const *settings)
{
    segment s = segment_open("plateau");
    for (; *settings; settings += 2)
        component_set(s.c, settings[0], settings[1]);
    return s;
}

static double observe(const segment *s, double base, double metric, double *slots)
{
    tn_position at = {.struct_size = sizeof at, .base = base};
    s->table.observe(s->c->hyper, &at, metric, slots);
    return s->table.value(s->c->hyper, &at, slots);
}

/* A relative threshold is a part of |best|: with a negative metric, worse is worse. */
START_TEST(sch_05_plateau_with_negative_metrics)
{
    for (int max = 0; max < 2; max++) {
        double slots[PLATEAU_SLOTS] = {0}, sign = max ? -1 : 1;
        segment s = plateau((const char *[]){"threshold", "0.1", "patience", "0", "mode", max ? "max" : "min", NULL});
        ck_assert_double_eq_tol(observe(&s, 0.1, sign * -1.0, slots), 0.1, 1e-15);
        ck_assert_double_eq_tol(observe(&s, 0.1, sign * -0.95, slots), 0.01, 1e-15);
        tn_instance_free(s.c);
    }
    double slots[PLATEAU_SLOTS] = {0}, value = 0;
    segment s = plateau((const char *[]){"threshold", "0.1", "patience", "2", NULL});
    for (int i = 0; i < 8; i++)
        value = observe(&s, 0.1, -1, slots);
    ck_assert_double_eq_tol(value, 0.001, 1e-15); /* at the 4th and the 7th */
    tn_instance_free(s.c);
}
END_TEST

/* The wait starts anew after a reduction, also without cooldown. */
START_TEST(sch_07_plateau_waits_again_after_a_reduction)
{
    static const double needed[] = {0.1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.001};
    double slots[PLATEAU_SLOTS] = {0};
    segment s = plateau((const char *[]){"patience", "2", NULL});
    for (int i = 0; i < 7; i++)
        ck_assert_double_eq_tol(observe(&s, 0.1, 1, slots), needed[i], 1e-15);
    tn_instance_free(s.c);
}
END_TEST

START_TEST(plateau_does_not_take_nan_or_inf_for_the_best)
{
    static const double metrics[] = {NAN, INFINITY, -INFINITY, 2, 1, 0.5};
    double slots[PLATEAU_SLOTS] = {0};
    segment s = plateau((const char *[]){"patience", "3", NULL});
    for (int i = 0; i < 6; i++)
        ck_assert_double_eq_tol(observe(&s, 0.1, metrics[i], slots), 0.1, 1e-15);
    tn_instance_free(s.c);
}
END_TEST

START_TEST(plateau_rests_and_stops_at_its_minimum)
{
    static const double needed[] = {1, 0.5, 0.5, 0.5, 0.3, 0.3}; /* cooldown 2 after each */
    double slots[PLATEAU_SLOTS] = {0};
    segment s = plateau((const char *[]){"patience", "0", "cooldown", "2", "factor", "0.5", "minimum", "0.3", NULL});
    for (int i = 0; i < 6; i++)
        ck_assert_double_eq_tol(observe(&s, 1, 7, slots), needed[i], 1e-15);
    ck_assert_double_eq_tol(observe(&s, 1, 6, slots), 0.3, 1e-15); /* better: no reduction, no return */
    tn_instance_free(s.c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("schedulers");
    TCase *tcase = tcase_create("schedulers");
    tcase_add_test(tcase, golden_values);
    tcase_add_test(tcase, exact_start_and_end);
    tcase_add_test(tcase, monotonic_and_between);
    tcase_add_test(tcase, sch_01_cosine_holds_its_end);
    tcase_add_test(tcase, sch_13_linear);
    tcase_add_test(tcase, sch_16_warm_up_in_both_conventions);
    tcase_add_test(tcase, sch_17_phases);
    tcase_add_test(tcase, published_cosine);
    tcase_add_test(tcase, exact_ends_of_phases);
    tcase_add_test(tcase, every_warm_up_ends_at_its_end);
    tcase_add_test(tcase, exact_corners);
    tcase_add_test(tcase, far_positions);
    tcase_add_test(tcase, sch_02_restarts_begin_at_the_start_value);
    tcase_add_test(tcase, sch_04_one_cycle_uses_all_its_updates);
    tcase_add_test(tcase, sch_10_reading_twice_changes_nothing);
    tcase_add_test(tcase, sch_11_values_come_from_the_position);
    tcase_add_test(tcase, sch_14_halved_at_each_update);
    tcase_add_test(tcase, published_noam);
    tcase_add_test(tcase, sch_05_plateau_with_negative_metrics);
    tcase_add_test(tcase, sch_07_plateau_waits_again_after_a_reduction);
    tcase_add_test(tcase, plateau_does_not_take_nan_or_inf_for_the_best);
    tcase_add_test(tcase, plateau_rests_and_stops_at_its_minimum);
    suite_add_tcase(suite, tcase);
    return test_main(suite);
}
