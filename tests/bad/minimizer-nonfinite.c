/* SPDX-License-Identifier: Apache-2.0
 *
 * 1: it halves the step for ever. 2: it commits what it has after some tries.
 */
#include "minimizer.h"

static int bad_advance(const tn_advance *call, tn_ask *ask)
{
    double lr = ((const bad *)call->hyper)->lr;
#ifdef REPAIRED
    return descend(call, ask, lr, 30);
#elif FAULT == 1
    return descend(call, ask, lr, INFINITY);
#else
    int more = descend(call, ask, lr, 30);
    ask->what = ask->what == TN_ASK_REJECT ? TN_ASK_COMMIT : ask->what;
    return more;
#endif
}

BAD_MINIMIZER("minimizer-nonfinite")
