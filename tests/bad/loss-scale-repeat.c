/* SPDX-License-Identifier: Apache-2.0
 *
 * Its start leaves a slot as it finds it.
 */
#include "loss_scale.h"

static void begin_half(const void *hyper, double *slots)
{
#ifdef REPAIRED
    begin(hyper, slots);
#else
    (void)hyper;
    if (!(slots[0] >= 1 && slots[0] <= 4))
        slots[0] = slots[0] == slots[0] ? 65536 : 32768;
#endif
}

BAD_LOSS_SCALE("loss-scale-repeat", begin_half, scale, observe)
