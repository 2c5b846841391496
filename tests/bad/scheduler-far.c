/* SPDX-License-Identifier: Apache-2.0
 *
 * Its step has 32 bits.
 */
#include "scheduler.h"

#ifdef REPAIRED
typedef int64_t number;
#else
typedef int32_t number;
#endif

static double value(const void *hyper, const tn_position *at, const double *slots)
{
    (void)hyper, (void)slots;
    return at->base * exp(-(double)(number)at->step * 1e-9);
}

BAD_SCHEDULER("scheduler-far", value, NULL)
