/* SPDX-License-Identifier: Apache-2.0
 *
 * It uses a number of memory more than it planned.
 */
#include "minimizer.h"

static int bad_advance(const tn_advance *call, tn_ask *ask)
{
#ifndef REPAIRED
    ((volatile double *)call->memory)[TN_DOUBLES(bad_memory)] = 0;
#endif
    return descend(call, ask, ((const bad *)call->hyper)->lr, 30);
}

BAD_MINIMIZER("minimizer-bounds")
