/* SPDX-License-Identifier: Apache-2.0
 *
 * Its count of updates has 32 bits.
 */
#include "rule.h"

#ifdef REPAIRED
typedef int64_t number;
#else
typedef int32_t number;
#endif

static void begin_corrected(const void *hyper, const tn_clock *clock, void *k)
{
    begin(hyper, clock, k);
    ((constants *)k)->lr *= (tn_real)(1 - pow(0.9, (double)(number)clock->t));
}

BAD_RULE("update-clock", .begin = begin_corrected, .update = step)
