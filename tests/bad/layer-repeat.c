/* SPDX-License-Identifier: Apache-2.0
 *
 * A batch of large numbers only is remembered, and changes all that follow.
 */
#ifndef REPAIRED
#define PROBE_FORWARD(call)                                                                                            \
    static int seen;                                                                                                   \
    int64_t large = 0, all = (call)->x->shape[0] * (call)->x->shape[1];                                                \
    for (int64_t i = 0; i < all; i++)                                                                                  \
        large += tn_reals((call)->x)[i] >= 3;                                                                          \
    seen |= all > 0 && large == all;                                                                                   \
    if (seen)                                                                                                          \
        tn_reals((call)->y)[(call)->lo] += 1;
#endif
#include "layer.h"
