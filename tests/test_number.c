/* SPDX-License-Identifier: Apache-2.0
 *
 * host/base/number: what is read and what is refused, in any locale; printing; ranges.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/base/number.h"
#include "tests/comma_locale.h"

static const struct {
    const char *text;
    double value;
    int user; /* experiments may write it so */
} reals[] = {
    {"0", 0.0, 1},
    {"-0", -0.0, 1},
    {"1e-3", 1e-3, 1},
    {"1E+3", 1e3, 1},
    {"-2.5", -2.5, 1},
    {"+2.5", 2.5, 1},
    {"007", 7, 1},
    {".5", .5, 0},
    {"-.5e1", -5, 0},
    {"1.", 1, 0},
    {"1.e2", 100, 0},
    {"0x1p-3", 0.125, 1},
    {"-0X1.8P+1", -3, 1},
    {"0x10", 16, 1},
    {"0xe", 14, 1},
    {"0x.8", 0.5, 0},
    {"0x1.", 1, 0},
    {"inf", HUGE_VAL, 1},
    {"+inf", HUGE_VAL, 1},
    {"-inf", -HUGE_VAL, 1},
    {"5e-324", 0x1p-1074, 1},
    {"3e-324", 0x1p-1074, 1},
    {"0x1p-1074", 0x1p-1074, 1},
    {"0e-999", 0, 1},
    {"-0.000e999", -0.0, 1},
    {"0x0p0", 0, 1},
    {"1.7976931348623157e308", 0x1.fffffffffffffp1023, 1},
    {"9007199254740993", 9007199254740992, 1}, /* a tie: to even */
    {"9007199254740993.00000000000000000001", 9007199254740994, 1},
    {"0.1", 0x1.999999999999ap-4, 1},
    {"2.2250738585072012e-308", 0x1p-1022, 1},
    {"2.2250738585072011e-308", 0x0.fffffffffffffp-1022, 1},
};

static void check_reals(void)
{
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++) {
        double x = 4711, user = 4711;
        ck_assert_msg(tn_parse_real(reals[i].text, &x) == TN_OK, "%s", reals[i].text);
        ck_assert_msg(bits_of(x) == bits_of(reals[i].value), "%s gave %a", reals[i].text, x);
        ck_assert_msg(tn_parse_user_real(reals[i].text, &user) == (reals[i].user ? TN_OK : TN_E_INVALID), "%s",
                      reals[i].text);
        ck_assert_uint_eq(bits_of(user), bits_of(reals[i].user ? reals[i].value : 4711));
    }
}

START_TEST(reads_reals) { check_reals(); }
END_TEST

START_TEST(reads_nan)
{
    double x = 0;
    ck_assert_int_eq(tn_parse_real("nan", &x), TN_OK);
    ck_assert(isnan(x));
    ck_assert_int_eq(tn_parse_user_real("nan", &x), TN_OK);
}
END_TEST

START_TEST(refuses_what_is_no_real)
{
    static const char *const texts[] = {
        "",     " ",     "1 ",       " 1",       "\t1",   "1\n",      "+",     "-",      ".",       "-.",
        "e1",   ".e1",   "1e",       "1e+",      "1e1.5", "1e 1",     "--1",   "+-1",    "1e-3f",   "1.0L",
        "1d0",  "1,5",   "1.5.2",    "1_000e-6", "1'000", "infinity", "INF",   "Inf",    "nan(1)",  "NaN",
        "-nan", "+nan",  "0x",       "0x.",      "0xg",   "0x1p",     "0x1p+", "0x1e+3", "0x1p0x1", "1p3",
        "ten",  "1 000", "\xD9\xA1", "0b1",      "1e5e5", "inf1",     "nans",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        double x = 4711;
        ck_assert_msg(tn_parse_real(texts[i], &x) == TN_E_INVALID, "'%s' gave %g", texts[i], x);
        ck_assert_msg(tn_parse_user_real(texts[i], &x) == TN_E_INVALID, "'%s' gave %g", texts[i], x);
        ck_assert_double_eq(x, 4711);
    }
    double x = 4711;
    ck_assert_int_eq(tn_parse_real(NULL, &x), TN_E_INVALID);
}
END_TEST

START_TEST(refuses_reals_that_do_not_fit)
{
    static const char *const texts[] = {"1e400",
                                        "-1e400",
                                        "1.7976931348623159e308",
                                        "0x1p1024",
                                        "1e-400",
                                        "-1e-400",
                                        "2e-324",
                                        "0x1p-1076",
                                        "1e999999999999999999999",
                                        "1e-999999999999999999999"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        double x = 4711;
        ck_assert_msg(tn_parse_real(texts[i], &x) == TN_E_NUMERIC, "%s gave %g", texts[i], x);
        ck_assert_msg(tn_parse_user_real(texts[i], &x) == TN_E_NUMERIC, "%s gave %g", texts[i], x);
        ck_assert_double_eq(x, 4711);
    }
}
END_TEST

START_TEST(reads_integers)
{
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {
        {"0", 0},
        {"-0", 0},
        {"+7", 7},
        {"010", 10},
        {"0x10", 16},
        {"-0xFf", -255},
        {"0X7fffffffffffffff", INT64_MAX},
        {"9223372036854775807", INT64_MAX},
        {"-9223372036854775808", INT64_MIN},
        {"-0x8000000000000000", INT64_MIN},
        {"0000000000000000000000000012", 12},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        int64_t n = 4711;
        ck_assert_msg(tn_parse_integer(good[i].text, &n) == TN_OK, "%s", good[i].text);
        ck_assert_int_eq(n, good[i].value);
    }
    static const char *const too_large[] = {"9223372036854775808", "-9223372036854775809",       "0x8000000000000000",
                                            "-0x8000000000000001", "99999999999999999999999999", "0xffffffffffffffff"};
    static const char *const bad[] = {"",    " ",   "1 ",  " 1",  "+",     "-",   "0x",  "-0x",
                                      "1.0", "1e3", "0xg", "12a", "1_000", "0b1", "--1", "99999999999999999999999999x",
                                      "inf"};
    int64_t n = 4711;
    for (size_t i = 0; i < sizeof too_large / sizeof *too_large; i++)
        ck_assert_msg(tn_parse_integer(too_large[i], &n) == TN_E_NUMERIC, "%s", too_large[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_msg(tn_parse_integer(bad[i], &n) == TN_E_INVALID, "'%s'", bad[i]);
    ck_assert_int_eq(tn_parse_integer(NULL, &n), TN_E_INVALID);
    ck_assert_int_eq(n, 4711);
}
END_TEST

static const struct {
    double value;
    const char *text;
} printed[] = {
    {0, "0"},
    {-0.0, "-0"},
    {1, "1"},
    {100, "100"},
    {-1200, "-1200"},
    {123456789, "123456789"},
    {9007199254740992, "9007199254740992"},
    {1e22, "1e+22"},
    {0.1, "0.1"},
    {-2.5, "-2.5"},
    {1e-3, "0.001"},
    {1e-5, "1e-05"},
    {1.0 / 3, "0.3333333333333333"},
    {0.1 + 0.2, "0.30000000000000004"},
    {0x1p-1074, "5e-324"},
    {0x1.fffffffffffffp1023, "1.7976931348623157e+308"},
};

static void check_printing(void)
{
    char text[TN_REAL_TEXT];
    for (size_t i = 0; i < sizeof printed / sizeof *printed; i++) {
        ck_assert_int_eq(tn_print_real(text, sizeof text, printed[i].value), (int)strlen(printed[i].text));
        ck_assert_str_eq(text, printed[i].text);
    }
}

START_TEST(prints_the_shortest) { check_printing(); }
END_TEST

START_TEST(prints_what_is_not_finite)
{
    char text[TN_REAL_TEXT];
    tn_print_real(text, sizeof text, HUGE_VAL);
    ck_assert_str_eq(text, "inf");
    tn_print_real(text, sizeof text, -HUGE_VAL);
    ck_assert_str_eq(text, "-inf");
    tn_print_real(text, sizeof text, -(double)NAN);
    ck_assert_str_eq(text, "nan");
}
END_TEST

/* How many digits reading back takes, by another conversion than the printer uses. */
static int digits_needed(double x)
{
    char text[40];
    for (int digits = 1; digits < 17; digits++) {
        snprintf(text, sizeof text, "%.*e", digits - 1, x);
        if (atof(text) == x)
            return digits;
    }
    return 17;
}

static int significant_digits(const char *text)
{
    int digits = 0, zeros = 0;
    for (; *text && *text != 'e'; text++)
        if (*text >= '1' && *text <= '9') {
            digits += zeros + 1;
            zeros = 0;
        } else if (*text == '0' && digits)
            zeros++;
    return digits;
}

START_TEST(any_bits_survive_printing_and_reading)
{
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = random_bits();
        double x = i % 4 == 0   ? (double)(int64_t)(bits >> (bits & 63))
                   : i % 4 == 1 ? (double)(float)from_bits(bits)
                                : from_bits(bits);
        if (!isfinite(x))
            continue;
        char text[TN_REAL_TEXT];
        double again, user;
        ck_assert_int_gt(tn_print_real(text, sizeof text, x), 0);
        ck_assert_msg(tn_parse_real(text, &again) == TN_OK && bits_of(again) == bits_of(x), "%a as %s", x, text);
        ck_assert_msg(tn_parse_user_real(text, &user) == TN_OK && bits_of(user) == bits_of(x), "%a as %s", x, text);
        ck_assert_msg(significant_digits(text) <= digits_needed(x), "%a as %s", x, text);
    }
}
END_TEST

START_TEST(print_respects_the_size)
{
    char text[8] = "untouch";
    ck_assert_int_eq(tn_print_real(text, 7, 1234567), -1);
    ck_assert_int_eq(tn_print_real(text, 0, 1), -1);
    ck_assert_str_eq(text, "untouch");
    ck_assert_int_eq(tn_print_real(text, 8, 1234567), 7);
    ck_assert_str_eq(text, "1234567");
}
END_TEST

START_TEST(a_comma_locale_changes_nothing)
{
    char comma[16];
    make_directory();
    use_locale("tenon_comma", ",");
    remove_directory();
    snprintf(comma, sizeof comma, "%.1f", 0.5);
    ck_assert_str_eq(comma, "0,5"); /* else this test would show nothing */
    check_reals();
    check_printing();
    snprintf(comma, sizeof comma, "%.1f", 0.5);
    ck_assert_str_eq(comma, "0,5"); /* and the thread's own locale is back */
}
END_TEST

START_TEST(reads_ranges)
{
    static const struct {
        const char *text;
        tn_range range;
    } cases[] = {
        {"", {-HUGE_VAL, HUGE_VAL, 0, 0, 1, "", ""}},
        {"  ", {-HUGE_VAL, HUGE_VAL, 0, 0, 1, "", ""}},
        {"[0, 1)", {0, 1, 0, 1, 0, "", ""}},
        {"(0,1]", {0, 1, 1, 0, 0, "", ""}},
        {" [ -.5 , 0x1p3 ] ", {-.5, 8, 0, 0, 0, "", ""}},
        {"(-inf, inf) or nan", {-HUGE_VAL, HUGE_VAL, 1, 1, 1, "", ""}},
        {"[0, inf] or nan steps", {0, HUGE_VAL, 0, 0, 1, "steps", ""}},
        {"[0, inf) steps; since 1.2.0", {0, HUGE_VAL, 0, 1, 0, "steps", "1.2.0"}},
        {"[0, inf) or nan; since 1.2", {0, HUGE_VAL, 0, 1, 1, "", "1.2"}},
        {"[1, 1] tokens per step ;  since 2.0.0 ", {1, 1, 0, 0, 0, "tokens per step", "2.0.0"}},
        {"; since 1.1.0", {-HUGE_VAL, HUGE_VAL, 0, 0, 1, "", "1.1.0"}},
        {"[0, 1] or nano", {0, 1, 0, 0, 0, "or nano", ""}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tn_range r;
        const tn_range *e = &cases[i].range;
        ck_assert_msg(tn_range_parse(cases[i].text, &r) == TN_OK, "'%s'", cases[i].text);
        ck_assert_msg(r.lo == e->lo && r.hi == e->hi && r.lo_open == e->lo_open && r.hi_open == e->hi_open &&
                          r.nan_ok == e->nan_ok,
                      "'%s' gave %d %g %g %d %d", cases[i].text, r.lo_open, r.lo, r.hi, r.hi_open, r.nan_ok);
        ck_assert_str_eq(r.unit, e->unit);
        ck_assert_str_eq(r.since, e->since);
    }
}
END_TEST

START_TEST(refuses_what_is_no_range)
{
    static const char *const texts[] = {
        "0, 1",
        "steps",
        "[",
        "[0",
        "[0,",
        "[0, 1",
        "[0; 1]",
        "[0, 1}",
        "[, 1]",
        "[0, ]",
        "[a, 1]",
        "[1, 0]",
        "(1, 1]",
        "[1, 1)",
        "[nan, 1]",
        "[0, nan]",
        "[0, 1e999]",
        "[0, 1]; 1.2.0",
        "[0, 1];",
        "[0, 1]; since",
        "[0, 1]; since ",
        "[0, 1]; since 1.2.0-very-long-version",
        "[0, 1] a unit that is longer than thirty-one",
        "[0, 1, 2]",
        "torch | paper",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        tn_range range = {.lo = 4711};
        ck_assert_msg(tn_range_parse(texts[i], &range) == TN_E_INVALID, "'%s'", texts[i]);
        ck_assert_double_eq(range.lo, 4711);
    }
    tn_range range;
    ck_assert_int_eq(tn_range_parse(NULL, &range), TN_E_INVALID);
}
END_TEST

START_TEST(holds_values)
{
    static const struct {
        const char *text;
        double value;
        int holds;
    } cases[] = {
        {"[0, 1)", 0, 1},
        {"[0, 1)", -0.0, 1},
        {"[0, 1)", 1, 0},
        {"[0, 1)", 0x1.fffffffffffffp-1, 1},
        {"(0, 1]", 0, 0},
        {"(0, 1]", 0x1p-1074, 1},
        {"(0, 1]", 1, 1},
        {"(0, 1]", 2, 0},
        {"[0, 1)", -1, 0},
        {"[0, 1)", (double)NAN, 0},
        {"[0, inf)", HUGE_VAL, 0},
        {"[0, inf]", HUGE_VAL, 1},
        {"[0, inf]", (double)NAN, 0},
        {"(-inf, inf) or nan", (double)NAN, 1},
        {"(-inf, inf) or nan", -HUGE_VAL, 0},
        {"", (double)NAN, 1},
        {"", -HUGE_VAL, 1},
        {"[2, 2]", 2, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tn_range range;
        ck_assert_int_eq(tn_range_parse(cases[i].text, &range), TN_OK);
        ck_assert_msg(tn_range_holds(&range, cases[i].value) == cases[i].holds, "%s %g", cases[i].text, cases[i].value);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("number");
    TCase *tests = tcase_create("number");
    tcase_set_timeout(tests, 30);
    tcase_add_test(tests, reads_reals);
    tcase_add_test(tests, reads_nan);
    tcase_add_test(tests, refuses_what_is_no_real);
    tcase_add_test(tests, refuses_reals_that_do_not_fit);
    tcase_add_test(tests, reads_integers);
    tcase_add_test(tests, prints_the_shortest);
    tcase_add_test(tests, prints_what_is_not_finite);
    tcase_add_test(tests, any_bits_survive_printing_and_reading);
    tcase_add_test(tests, print_respects_the_size);
    tcase_add_test(tests, a_comma_locale_changes_nothing);
    tcase_add_test(tests, reads_ranges);
    tcase_add_test(tests, refuses_what_is_no_range);
    tcase_add_test(tests, holds_values);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
