/* SPDX-License-Identifier: Apache-2.0
 *
 * It remembers the first update that it saw.
 */
#include "minimizer.h"

static int bad_advance(const tn_advance *call, tn_ask *ask)
{
    double lr = ((const bad *)call->hyper)->lr;
#ifndef REPAIRED
    static int64_t first;
    first = first ? first : call->clock->t;
    lr /= (double)first;
#endif
    return descend(call, ask, lr, 30);
}

BAD_MINIMIZER("minimizer-state")
