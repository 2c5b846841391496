/* SPDX-License-Identifier: Apache-2.0
 *
 * It counts evaluations in a variable of its own.
 */
#include "scheduler.h"

#ifndef REPAIRED
static double seen;
#endif

static double value(const void *hyper, const tn_position *at, const double *slots)
{
    (void)hyper;
#ifdef REPAIRED
    return at->base / (1 + slots[0]);
#else
    (void)slots;
    return at->base / (1 + seen);
#endif
}

static void observe(const void *hyper, const tn_position *at, double metric, double *slots)
{
    (void)hyper, (void)at, (void)metric;
#ifdef REPAIRED
    slots[0] += 1;
#else
    (void)slots;
    seen += 1;
#endif
}

BAD_SCHEDULER("scheduler-state", value, observe)
