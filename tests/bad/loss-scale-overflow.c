/* SPDX-License-Identifier: Apache-2.0
 *
 * 1: it takes overflow for the opposite, up to a limit. 2: it never moves.
 */
#include "loss_scale.h"

static void observe_wrong(const void *hyper, int32_t overflow, double *slots)
{
#ifdef REPAIRED
    observe(hyper, overflow, slots);
#elif FAULT == 1
    (void)hyper;
    if (overflow && slots[0] < 0x1p40)
        slots[0] *= 2;
#else
    (void)hyper, (void)overflow, (void)slots;
#endif
}

BAD_LOSS_SCALE("loss-scale-overflow", begin, scale, observe_wrong)
