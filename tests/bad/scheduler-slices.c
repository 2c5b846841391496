/* SPDX-License-Identifier: Apache-2.0
 *
 * Its value depends on the one before.
 */
#include "scheduler.h"

#ifndef REPAIRED
static double last;
#endif

static double value(const void *hyper, const tn_position *at, const double *slots)
{
    double now = at->base / (double)(at->step + 1);
    (void)hyper, (void)slots;
#ifndef REPAIRED
    now = last = at->step ? 0.5 * last + 0.5 * now : now;
#endif
    return now;
}

BAD_SCHEDULER("scheduler-slices", value, NULL)
