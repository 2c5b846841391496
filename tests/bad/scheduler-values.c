/* SPDX-License-Identifier: Apache-2.0
 *
 * It divides by a horizon that may not be known.
 */
#include "scheduler.h"

static double value(const void *hyper, const tn_position *at, const double *slots)
{
    double length = (double)at->horizon;
    (void)hyper, (void)slots;
#ifdef REPAIRED
    length = length > 0 ? length : 1;
#endif
    return at->base * (1 - (double)at->step / length);
}

BAD_SCHEDULER("scheduler-values", value, NULL)
