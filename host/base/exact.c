/* SPDX-License-Identifier: Apache-2.0
 *
 * exact.c: sums of doubles without rounding. After Kulisch's long accumulator, with carries put off.
 */
#include "host/base/exact.h"

#include <math.h>
#include <string.h>

#define TOP         (TN_EXACT_LIMBS - 1)
#define PENDING_MAX ((int64_t)1 << 29) /* limbs stay below (pending + 1) * 2^32, two merged ones below 2^63 */
#define FRACTION    52
#define LOWEST      (-1074) /* the exponent of digit 0's lowest bit */
#define TOO_LARGE   65      /* any digit above this one is beyond 2^1024 */

void tn_exact_clear(tn_exact *sum) { memset(sum, 0, sizeof *sum); }

void tn_exact_settle(tn_exact *sum)
{
    int64_t carry = 0;
    for (int k = 0; k < TOP; k++) {
        int64_t digit = sum->limb[k] + carry;
        sum->limb[k] = digit & 0xFFFFFFFF;
        carry = digit >> 32; /* towards minus infinity */
    }
    sum->limb[TOP] += carry;
    sum->pending = 0;
}

static void add_special(tn_exact *sum, double value)
{
    sum->plus_inf += value > 0;
    sum->minus_inf += value < 0;
    sum->nan += isnan(value) != 0;
}

void tn_exact_add(tn_exact *sum, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint64_t exponent = bits >> FRACTION & 0x7FF, mantissa = bits & (((uint64_t)1 << FRACTION) - 1);
    if (exponent == 0x7FF) {
        add_special(sum, value);
        return;
    }
    if (exponent)
        mantissa |= (uint64_t)1 << FRACTION;
    /* value = mantissa * 2^(shift - 1074); a mantissa shifted by 0..31 reaches over three digits. */
    uint64_t shift = exponent ? exponent - 1 : 0, low = mantissa << (shift & 31);
    int64_t high = (int64_t)(mantissa >> 1 >> (63 - (shift & 31))), sign = (int64_t)bits >> 63;
    int64_t *limb = sum->limb + (shift >> 5);
    limb[0] += ((int64_t)(low & 0xFFFFFFFF) ^ sign) - sign;
    limb[1] += ((int64_t)(low >> 32) ^ sign) - sign;
    limb[2] += (high ^ sign) - sign;
    if (++sum->pending >= PENDING_MAX)
        tn_exact_settle(sum);
}

void tn_exact_merge(tn_exact *sum, const tn_exact *other)
{
    for (int k = 0; k < TN_EXACT_LIMBS; k++)
        sum->limb[k] += other->limb[k];
    sum->plus_inf += other->plus_inf;
    sum->minus_inf += other->minus_inf;
    sum->nan += other->nan;
    sum->pending += other->pending + 1;
    if (sum->pending >= PENDING_MAX)
        tn_exact_settle(sum);
}

int tn_exact_finite(const tn_exact *sum) { return !sum->plus_inf && !sum->minus_inf && !sum->nan; }

static double special_value(const tn_exact *sum)
{
    if (sum->nan || (sum->plus_inf && sum->minus_inf))
        return (double)NAN;
    return sum->plus_inf ? HUGE_VAL : -HUGE_VAL;
}

/* Settles and takes the absolute value; returns 1 if the sum was negative. */
static int settle_magnitude(tn_exact *sum)
{
    tn_exact_settle(sum);
    int negative = sum->limb[TOP] < 0;
    if (negative) {
        for (int k = 0; k < TN_EXACT_LIMBS; k++)
            sum->limb[k] = -sum->limb[k];
        tn_exact_settle(sum);
    }
    return negative;
}

static uint64_t digit(const tn_exact *settled, int k) { return k < 0 ? 0 : (uint64_t)settled->limb[k]; }

/* A settled positive sum whose highest digit is k: its 64 leading bits, the last one also set if any bit below is,
 * so that their conversion rounds as the whole would. */
static double rounded(const tn_exact *sum, int k)
{
    uint64_t head = digit(sum, k) << 32 | digit(sum, k - 1), tail = digit(sum, k - 2), below = 0;
    int zeros = __builtin_clzll(head);
    head = head << zeros | tail >> (32 - zeros);
    below = tail << zeros & 0xFFFFFFFF;
    for (int j = 0; j < k - 2; j++)
        below |= digit(sum, j);
    return ldexp((double)(head | (below != 0)), 32 * (k - 1) - zeros + LOWEST);
}

double tn_exact_value(const tn_exact *sum)
{
    if (!tn_exact_finite(sum))
        return special_value(sum);
    tn_exact magnitude = *sum;
    int negative = settle_magnitude(&magnitude), k = TOP;
    while (k >= 0 && !magnitude.limb[k])
        k--;
    if (k < 0)
        return 0;
    double value = k > TOO_LARGE ? HUGE_VAL : rounded(&magnitude, k);
    return negative ? -value : value;
}
