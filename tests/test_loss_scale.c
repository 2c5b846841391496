/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins/loss-scale: the automatons, step by step; cases of the project's list by their id.
 */
#include <math.h>

#include <tenon/precision.h>

#include "tests/component.h"

#define SLOTS_MAX 8

typedef struct scaler {
    tn_instance *c;
    tn_loss_scale table;
    double slots[SLOTS_MAX];
} scaler;

/* `settings`: pairs of row and text that end in NULL. */
static scaler open_scale(const char *name, const char *const *settings)
{
    scaler s = {.c = NULL};
    s.c = component_open("loss-scale", name, 0, &s.table, sizeof s.table);
    for (; settings && *settings; settings += 2)
        component_set(s.c, settings[0], settings[1]);
    ck_assert_int_le(s.table.slots, SLOTS_MAX);
    for (int j = 0; j < SLOTS_MAX; j++)
        s.slots[j] = -99; /* begin sets all that are the automaton's */
    s.table.begin(s.c->hyper, s.slots);
    return s;
}

static double scale_of(const scaler *s) { return s->table.scale(s->c->hyper, s->slots); }

static void observe(scaler *s, int32_t overflow) { s->table.observe(s->c->hyper, overflow, s->slots); }

/* All that is saved, into an automaton that knows nothing else. */
static void resume(scaler *s, const char *const *settings)
{
    double saved[SLOTS_MAX];
    memcpy(saved, s->slots, sizeof saved);
    char name[32];
    snprintf(name, sizeof name, "%s", s->c->entry->name);
    tn_instance_free(s->c);
    *s = open_scale(name, settings);
    memcpy(s->slots, saved, sizeof saved);
}

START_TEST(slots_are_those_of_the_note)
{
    const char *const names[] = {"constant", "dynamic"};
    for (int i = 0; i < 2; i++) {
        scaler s = open_scale(names[i], NULL);
        const json_t *list = json_object_get(s.c->info->facts, "slots");
        ck_assert_int_eq((int)json_array_size(list), s.table.slots);
        for (int j = 0; j < SLOTS_MAX; j++)
            ck_assert_int_eq(s.slots[j] == -99, j >= s.table.slots);
        tn_instance_free(s.c);
    }
}
END_TEST

START_TEST(dynamic_starts_as_documented)
{
    scaler s = open_scale("dynamic", NULL);
    ck_assert_double_eq(scale_of(&s), 65536);
    for (int i = 0; i < 1999; i++)
        observe(&s, 0);
    ck_assert_double_eq(scale_of(&s), 65536);
    observe(&s, 0);
    ck_assert_double_eq(scale_of(&s), 131072);
    observe(&s, 1);
    ck_assert_double_eq(scale_of(&s), 65536);
    for (int i = 0; i < 40; i++)
        observe(&s, 1);
    ck_assert_double_eq(scale_of(&s), 1);
    tn_instance_free(s.c);
}
END_TEST

/* PRC-01 */
START_TEST(dynamic_grows_to_a_finite_end)
{
    scaler s = open_scale("dynamic", (const char *const[]){"interval", "1", NULL});
    for (int i = 1; i <= 150; i++) {
        observe(&s, 0);
        ck_assert_double_eq(scale_of(&s), i < 111 ? ldexp(65536, i) : 0x1p127);
        ck_assert(isfinite((float)scale_of(&s)));
    }
    tn_instance_free(s.c);
}
END_TEST

/* PRC-02; slot 1 is the count of good attempts */
START_TEST(dynamic_counts_anew_after_an_overflow_and_over_a_resume)
{
    const char *const settings[] = {"initial", "128", "growth", "2", "backoff", "0.5", "interval", "2", NULL};
    const int32_t events[] = {0, 1, 0, 0, 0};
    const double scales[] = {128, 64, 64, 128, 128}, counters[] = {1, 0, 1, 0, 1};
    for (int resumed = 0; resumed < 2; resumed++) {
        scaler s = open_scale("dynamic", settings);
        ck_assert_double_eq(scale_of(&s), 128);
        for (int i = 0; i < 5; i++) {
            observe(&s, events[i]);
            ck_assert_double_eq(scale_of(&s), scales[i]);
            ck_assert_double_eq(s.slots[1], counters[i]);
            if (resumed)
                resume(&s, settings);
        }
        tn_instance_free(s.c);
    }
}
END_TEST

/* hysteresis 3: two overflows are put up with, each further one shrinks, a growth brings the two back. */
START_TEST(dynamic_puts_up_with_some_overflows)
{
    const char *const settings[] = {"initial", "64", "interval", "2", "hysteresis", "3", NULL};
    const int32_t events[] = {1, 0, 1, 1, 1, 0, 0, 1, 1, 1};
    const double scales[] = {64, 64, 64, 32, 16, 16, 32, 32, 32, 16};
    scaler s = open_scale("dynamic", settings);
    for (int i = 0; i < 10; i++) {
        observe(&s, events[i]);
        expect(scale_of(&s) == scales[i], "event %d: %g, needed %g", i, scale_of(&s), scales[i]);
        resume(&s, settings);
    }
    tn_instance_free(s.c);
}
END_TEST

START_TEST(scales_are_powers_of_two_within_bounds)
{
    scaler s = open_scale("dynamic", (const char *const[]){"initial", "1000", "growth", "1.5", "interval", "1",
                                                           "minimum", "100", "maximum", "3000", NULL});
    const double up[] = {512, 1024, 2048, 2048, 2048}, down[] = {1024, 512, 256, 128, 64, 64};
    for (int i = 0; i < 5; i++) { /* 1000 1500 2250 3000 3000 */
        expect(scale_of(&s) == up[i], "%d: %g, needed %g", i, scale_of(&s), up[i]);
        observe(&s, 0);
    }
    for (int i = 0; i < 6; i++) { /* 1500 750 375 187.5 100 100 */
        observe(&s, 1);
        expect(scale_of(&s) == down[i], "%d: %g, needed %g", i, scale_of(&s), down[i]);
    }
    tn_instance_free(s.c);
}
END_TEST

START_TEST(constant_stays)
{
    const struct {
        const char *value;
        double scale;
    } rows[] = {{"1", 1}, {"1024", 1024}, {"1023", 512}, {"0.7", 0.5}, {"1.7e38", 0x1p126}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        scaler s = open_scale("constant", (const char *const[]){"value", rows[i].value, NULL});
        observe(&s, 1);
        observe(&s, 0);
        ck_assert_double_eq(scale_of(&s), rows[i].scale);
        tn_instance_free(s.c);
    }
}
END_TEST

static Suite *loss_scale_suite(void)
{
    Suite *suite = suite_create("loss-scale");
    TCase *tests = tcase_create("loss-scale");
    tcase_add_test(tests, slots_are_those_of_the_note);
    tcase_add_test(tests, dynamic_starts_as_documented);
    tcase_add_test(tests, dynamic_grows_to_a_finite_end);
    tcase_add_test(tests, dynamic_counts_anew_after_an_overflow_and_over_a_resume);
    tcase_add_test(tests, dynamic_puts_up_with_some_overflows);
    tcase_add_test(tests, scales_are_powers_of_two_within_bounds);
    tcase_add_test(tests, constant_stays);
    suite_add_tcase(suite, tests);
    return suite;
}

int main(void) { return test_main(loss_scale_suite()); }
