/* SPDX-License-Identifier: Apache-2.0
 *
 * It shrinks by a factor that is no power of two.
 */
#include "loss_scale.h"

static void observe_tenth(const void *hyper, int32_t overflow, double *slots)
{
#ifdef REPAIRED
    observe(hyper, overflow, slots);
#else
    (void)hyper;
    if (overflow && slots[0] > 1)
        slots[0] /= 10;
#endif
}

BAD_LOSS_SCALE("loss-scale-values", begin, scale, observe_tenth)
