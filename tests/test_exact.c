/* SPDX-License-Identifier: Apache-2.0
 *
 * host/base/exact: against a slow sum of single bits, in any order and grouping.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "host/base/exact.h"
#include "tests/support.h"

/* ---- the oracle: positive and negative numbers apart, as bits in units of 2^-1074 ---- */

#define BITS 2200

typedef struct slow {
    unsigned char bit[2][BITS];
} slow;

static void slow_add(slow *sum, double x)
{
    uint64_t bits = bits_of(x);
    int exponent = (int)(bits >> 52 & 0x7FF), at = exponent ? exponent - 1 : 0;
    unsigned char *bit = sum->bit[bits >> 63];
    uint64_t mantissa = bits << 12 >> 12 | (uint64_t)(exponent != 0) << 52;
    for (int carry = 0; mantissa || carry; mantissa >>= 1, at++) {
        int total = bit[at] + (int)(mantissa & 1) + carry;
        bit[at] = total & 1;
        carry = total >> 1;
    }
}

/* 1, 0 or -1 as the positive part is larger, equal or smaller. */
static int slow_sign(const slow *sum)
{
    for (int i = BITS; i--;)
        if (sum->bit[0][i] != sum->bit[1][i])
            return sum->bit[0][i] - sum->bit[1][i];
    return 0;
}

static double slow_value(const slow *sum)
{
    int sign = slow_sign(sum), top = -1, borrow = 0;
    const unsigned char *more = sum->bit[sign < 0], *less = sum->bit[sign >= 0];
    unsigned char rest[BITS];
    for (int i = 0; i < BITS; i++) {
        int bit = more[i] - less[i] - borrow;
        borrow = bit < 0;
        rest[i] = (unsigned char)(bit & 1);
        top = rest[i] ? i : top;
    }
    if (top < 53) { /* exact: subnormal, or 53 bits */
        uint64_t mantissa = 0;
        for (int i = 0; i <= top; i++)
            mantissa |= (uint64_t)rest[i] << i;
        return from_bits(mantissa | (uint64_t)(sign < 0) << 63); /* bit 52 is the exponent's lowest */
    }
    uint64_t mantissa = 0;
    int half = rest[top - 53], below = 0;
    for (int i = top - 52; i <= top; i++)
        mantissa |= (uint64_t)rest[i] << (i - top + 52);
    for (int i = 0; i < top - 53; i++)
        below |= rest[i];
    mantissa += half && (below || mantissa & 1);
    uint64_t bits = mantissa + ((uint64_t)(top - 52) << 52); /* a carry out of the mantissa raises the exponent */
    return from_bits((bits > bits_of(HUGE_VAL) ? bits_of(HUGE_VAL) : bits) | (uint64_t)(sign < 0) << 63);
}

/* ---- helpers ---- */

static double sum_of(const double *x, int n)
{
    tn_exact sum;
    tn_exact_clear(&sum);
    for (int i = 0; i < n; i++)
        tn_exact_add(&sum, x[i]);
    return tn_exact_value(&sum);
}

static double slow_sum_of(const double *x, int n)
{
    slow sum = {0};
    for (int i = 0; i < n; i++)
        slow_add(&sum, x[i]);
    return slow_value(&sum);
}

static void shuffle(double *x, int n)
{
    for (int i = n - 1; i > 0; i--) {
        int j = (int)(random_bits() % (uint64_t)(i + 1));
        double t = x[i];
        x[i] = x[j];
        x[j] = t;
    }
}

#define assert_same(a, b)                                                                                              \
    do {                                                                                                               \
        double a_ = (a), b_ = (b);                                                                                     \
        ck_assert_msg(bits_of(a_) == bits_of(b_), "%a (%s) and %a (%s)", a_, #a, b_, #b);                              \
    } while (0)

/* ---- tests ---- */

START_TEST(known_sums)
{
    static const struct {
        double x[4], sum;
    } cases[] = {
        {{0, 0, 0, 0}, 0},
        {{-0.0, -0.0, 0, 0}, 0},
        {{1, 2, 3, 4}, 10},
        {{-1, -2, -3, -4}, -10},
        {{1e308, 1, -1e308, 0}, 1},
        {{1e308, 0x1p-1074, -1e308, 0}, 0x1p-1074},
        {{1e308, -1, -1e308, 0}, -1},
        {{0x1p1023, 0x1p1023, -0x1p1023, -0x1p1023}, 0}, /* passes infinity on the way */
        {{0x1.fffffffffffffp1023, 0x1p969, 0, 0}, 0x1.fffffffffffffp1023},
        {{0x1.fffffffffffffp1023, 0x1p970, 0, 0}, HUGE_VAL}, /* a tie, to even: 2^1024 */
        {{-0x1.fffffffffffffp1023, -0x1p970, 0x1p-1074, 0}, -0x1.fffffffffffffp1023},
        {{0x1.fffffffffffffp1023, 0x1.fffffffffffffp1023, 0, 0}, HUGE_VAL},
        {{-0x1.fffffffffffffp1023, -0x1.fffffffffffffp1023, 0, 0}, -HUGE_VAL},
        {{0x1p-1074, 0x1p-1074, 0, 0}, 0x1p-1073},
        {{0x1p-1022, -0x1p-1074, 0, 0}, 0x0.fffffffffffffp-1022},
        {{0x1p53, 1, 0, 0}, 0x1p53},             /* tie to even, down */
        {{0x1p53, 3, 0, 0}, 0x1p53 + 4},         /* tie to even, up */
        {{0x1p53, 1, 0x1p-1074, 0}, 0x1p53 + 2}, /* just above the tie */
        {{0x1p53, 1, -0x1p-1074, 0}, 0x1p53},    /* just below */
        {{-0x1p53, -1, 0, 0}, -0x1p53},
        {{-0x1p53, -3, 0, 0}, -0x1p53 - 4},
        {{-0x1p53, -1, -0x1p-1074, 0}, -0x1p53 - 2},
        {{0x1.fffffffffffffp0, 0x1p-53, 0, 0}, 2}, /* the carry raises the exponent */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_same(sum_of(cases[i].x, 4), cases[i].sum);
        assert_same(slow_sum_of(cases[i].x, 4), cases[i].sum);
    }
}
END_TEST

START_TEST(one_number_comes_back)
{
    for (uint64_t exponent = 0; exponent < 0x7FF; exponent++)
        for (int i = 0; i < 8; i++) {
            uint64_t mantissa = i == 0 ? 0 : i == 1 ? UINT64_MAX : random_bits();
            double x = from_bits(mantissa << 12 >> 12 | exponent << 52 | (uint64_t)(i & 1) << 63);
            if (x != 0)
                assert_same(sum_of(&x, 1), x);
        }
}
END_TEST

/* Numbers of all magnitudes, or near to each other, or cancelling. */
static double random_number(int kind, double previous)
{
    uint64_t bits = random_bits();
    if (kind == 0)
        return isfinite(from_bits(bits)) ? from_bits(bits) : 1;
    if (kind == 1)
        return (double)(int64_t)bits * 0x1p-63;
    if (kind == 2)
        return from_bits(bits & 0x801FFFFFFFFFFFFFu); /* subnormal and the smallest normal */
    if (kind == 3)
        return bits & 1 ? -previous : ldexp((double)(int64_t)(bits >> 9), (int)(bits % 120) - 60);
    return ldexp(1, (int)(bits % 2000) - 1000) * (bits & 4096 ? 1 : -1); /* powers of two: many ties */
}

START_TEST(random_sums_in_any_order)
{
    double x[200];
    for (int round = 0; round < 300; round++) {
        int n = 1 + (int)(random_bits() % 200);
        for (int i = 0; i < n; i++)
            x[i] = random_number(round % 5, i ? x[i - 1] : 1);
        double sum = sum_of(x, n);
        assert_same(sum, slow_sum_of(x, n));
        shuffle(x, n);
        assert_same(sum, sum_of(x, n));
    }
}
END_TEST

START_TEST(ties_at_every_place)
{
    for (int e = -1021; e < 1023; e++)
        for (int odd = 0; odd < 2; odd++) {
            double base = ldexp(1 + odd * 0x1p-52, e), half = ldexp(1, e - 53), tiny = 0x1p-1074;
            double exact[] = {base, half}, above[] = {base, half, tiny}, below[] = {base, half, -tiny};
            assert_same(sum_of(exact, 2), slow_sum_of(exact, 2));
            assert_same(sum_of(above, 3), slow_sum_of(above, 3));
            assert_same(sum_of(below, 3), slow_sum_of(below, 3));
        }
}
END_TEST

START_TEST(any_grouping_merges_to_the_same_bytes)
{
    double x[300];
    for (int round = 0; round < 100; round++) {
        tn_exact whole, part[4];
        tn_exact_clear(&whole);
        for (int p = 0; p < 4; p++)
            tn_exact_clear(&part[p]);
        for (int i = 0; i < 300; i++) {
            x[i] = random_number(round % 5, i ? x[i - 1] : 1);
            tn_exact_add(&whole, x[i]);
        }
        shuffle(x, 300);
        for (int i = 0; i < 300; i++)
            tn_exact_add(&part[random_bits() % 4], x[i]);
        if (round % 2)
            tn_exact_settle(&part[2]);
        tn_exact_merge(&part[0], &part[3]);
        tn_exact_merge(&part[2], &part[1]);
        tn_exact_merge(&part[2], &part[0]);
        assert_same(tn_exact_value(&part[2]), tn_exact_value(&whole));
        tn_exact_settle(&whole);
        tn_exact_settle(&part[2]);
        ck_assert_mem_eq(&whole, &part[2], sizeof whole);
    }
}
END_TEST

START_TEST(value_leaves_the_sum_as_it_is)
{
    tn_exact sum, before;
    tn_exact_clear(&sum);
    tn_exact_add(&sum, -1.5);
    before = sum;
    assert_same(tn_exact_value(&sum), -1.5);
    ck_assert_mem_eq(&sum, &before, sizeof sum);
}
END_TEST

START_TEST(infinities_and_nan)
{
    static const struct {
        double x[3], sum;
    } cases[] = {
        {{1, HUGE_VAL, -1e308}, HUGE_VAL},          {{-HUGE_VAL, 1, -HUGE_VAL}, -HUGE_VAL},
        {{HUGE_VAL, 0, -HUGE_VAL}, (double)NAN},    {{1, (double)NAN, 2}, (double)NAN},
        {{1, -(double)NAN, HUGE_VAL}, (double)NAN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tn_exact sum, other;
        tn_exact_clear(&sum);
        tn_exact_clear(&other);
        tn_exact_add(&other, cases[i].x[0]);
        tn_exact_add(&sum, cases[i].x[1]);
        tn_exact_add(&sum, cases[i].x[2]);
        tn_exact_merge(&other, &sum);
        double value = tn_exact_value(&other);
        ck_assert_msg(isnan(cases[i].sum) ? isnan(value) : value == cases[i].sum, "case %zu gave %g", i, value);
        ck_assert_int_eq(tn_exact_finite(&other), 0);
        tn_exact_clear(&other);
        ck_assert_int_eq(tn_exact_finite(&other), 1);
        assert_same(tn_exact_value(&other), 0);
    }
}
END_TEST

START_TEST(overflow_of_finite_numbers_is_finite_until_rounded)
{
    tn_exact sum;
    tn_exact_clear(&sum);
    for (int i = 0; i < 3; i++)
        tn_exact_add(&sum, 0x1p1023);
    ck_assert_int_eq(tn_exact_finite(&sum), 1);
    assert_same(tn_exact_value(&sum), HUGE_VAL);
    tn_exact_add(&sum, -0x1p1023);
    tn_exact_add(&sum, -0x1p1023);
    assert_same(tn_exact_value(&sum), 0x1p1023);
}
END_TEST

/* Doubling by merging reaches additions in numbers that no loop could. */
START_TEST(room_for_very_many_additions)
{
    static const double extremes[] = {0x1.fffffffffffffp1023, 0x1.fffffffffffffp0, 0x1.fffffffffffffp-1022, 0x1p-1074,
                                      0x1.fffffffffffffp-1018};
    for (size_t i = 0; i < sizeof extremes / sizeof *extremes; i++)
        for (int sign = 1; sign >= -1; sign -= 2) {
            double x = sign * extremes[i];
            tn_exact sum;
            tn_exact_clear(&sum);
            tn_exact_add(&sum, x);
            for (int doubling = 1; doubling <= 60; doubling++) {
                tn_exact_merge(&sum, &sum);
                assert_same(tn_exact_value(&sum), ldexp(x, doubling));
            }
            tn_exact back;
            tn_exact_clear(&back);
            tn_exact_add(&back, -x);
            for (int doubling = 1; doubling <= 60; doubling++)
                tn_exact_merge(&back, &back);
            tn_exact_add(&sum, sign * 3.0);
            tn_exact_merge(&sum, &back);
            assert_same(tn_exact_value(&sum), sign * 3.0);
        }
}
END_TEST

/* Carries put off: limbs as full as additions can make them, settled at the same count. */
START_TEST(deferred_carries_do_not_overflow)
{
    tn_exact sum;
    tn_exact_clear(&sum);
    double x = from_bits((uint64_t)(1 + 31) << 52 | (UINT64_MAX >> 12)); /* 53 ones shifted by 31 */
    int64_t n = (int64_t)1 << 22;
    for (int64_t i = 0; i < n; i++)
        tn_exact_add(&sum, i % 4 == 3 ? -x : x);
    assert_same(tn_exact_value(&sum), x * (double)(n / 2));
    for (int doubling = 0; doubling < 20; doubling++)
        tn_exact_merge(&sum, &sum);
    assert_same(tn_exact_value(&sum), x * ldexp((double)n, 19));
    ck_assert_int_lt(sum.pending, (int64_t)1 << 30);
    for (int k = 0; k < TN_EXACT_LIMBS; k++)
        ck_assert_int_lt(llabs(sum.limb[k]), (int64_t)1 << 62);
}
END_TEST

START_TEST(all_zero_bytes_are_the_empty_sum)
{
    tn_exact zero, cleared;
    memset(&zero, 0, sizeof zero);
    memset(&cleared, 0xFF, sizeof cleared);
    tn_exact_clear(&cleared);
    ck_assert_mem_eq(&zero, &cleared, sizeof zero);
    tn_exact_add(&zero, 1.25);
    assert_same(tn_exact_value(&zero), 1.25);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("exact");
    TCase *tests = tcase_create("exact");
    tcase_set_timeout(tests, 30);
    tcase_add_test(tests, known_sums);
    tcase_add_test(tests, one_number_comes_back);
    tcase_add_test(tests, random_sums_in_any_order);
    tcase_add_test(tests, ties_at_every_place);
    tcase_add_test(tests, any_grouping_merges_to_the_same_bytes);
    tcase_add_test(tests, value_leaves_the_sum_as_it_is);
    tcase_add_test(tests, infinities_and_nan);
    tcase_add_test(tests, overflow_of_finite_numbers_is_finite_until_rounded);
    tcase_add_test(tests, room_for_very_many_additions);
    tcase_add_test(tests, deferred_carries_do_not_overflow);
    tcase_add_test(tests, all_zero_bytes_are_the_empty_sum);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
