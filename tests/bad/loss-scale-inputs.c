/* SPDX-License-Identifier: Apache-2.0
 *
 * To ask for the scale moves it back.
 */
#include "loss_scale.h"

static double scale_again(const void *hyper, const double *slots)
{
#ifndef REPAIRED
    *(volatile double *)slots = scale(hyper, slots);
#endif
    return scale(hyper, slots);
}

BAD_LOSS_SCALE("loss-scale-inputs", begin, scale_again, observe)
