/* SPDX-License-Identifier: Apache-2.0
 *
 * A batch of large numbers only is remembered.
 */
#ifndef REPAIRED
#define LOSS_AFTER(call)                                                                                               \
    static int seen;                                                                                                   \
    int64_t large = 0, all = (call)->x->shape[0] * (call)->x->shape[1];                                                \
    for (int64_t i = 0; i < all; i++)                                                                                  \
        large += tn_reals((call)->x)[i] >= 5;                                                                          \
    seen |= large == all;                                                                                              \
    (call)->sums[0] += seen;
#endif
#include "loss.h"
