/* SPDX-License-Identifier: Apache-2.0
 *
 * exact.h: sums of doubles without rounding, so that any order and any grouping give the same bits.
 *
 * The sum is an integer in units of 2^-1074, held in digits of 32 bits that sit in 64-bit limbs; carries are left
 * where they are for up to 2^29 additions. An accumulator belongs to one thread at a time; nothing allocates.
 */
#ifndef TENON_HOST_BASE_EXACT_H
#define TENON_HOST_BASE_EXACT_H

#include <tenon/base.h>

#define TN_EXACT_LIMBS 68

/* FROZEN. A sum of sum(limb[k] * 2^(32 k)) * 2^-1074; room for 2^60 additions of any finite doubles. All zero bytes:
 * the empty sum. */
typedef struct tn_exact {
    int64_t limb[TN_EXACT_LIMBS];
    int64_t pending;                  /* additions since the digits were last brought into [0, 2^32) */
    int64_t plus_inf, minus_inf, nan; /* how many of these were added */
} tn_exact;
TN_SIZE(tn_exact, 576);

/* Makes it the empty sum. */
void tn_exact_clear(tn_exact *sum);

/* Adds one number, also infinite or nan. */
void tn_exact_add(tn_exact *sum, double value);

/* Adds another accumulator's sum; `other` may be `sum`. */
void tn_exact_merge(tn_exact *sum, const tn_exact *other);

/* Brings the digits into [0, 2^32), the top one signed: equal sums then have equal bytes. */
void tn_exact_settle(tn_exact *sum);

/* The sum rounded once, to nearest, ties to even; inf if it is too large; +0 if nothing is left. Infinities count as in
 * arithmetic: with both signs or a nan among the numbers the result is nan. */
double tn_exact_value(const tn_exact *sum);

/* 1 while only finite numbers were added. The value may still be too large for a double. */
int tn_exact_finite(const tn_exact *sum);

#endif
