/* SPDX-License-Identifier: Apache-2.0
 *
 * The count is added to what is there, if that is a number.
 */
#ifndef REPAIRED
#define LOSS_SUMS(call)                                                                                                \
    (call)->sums[0] = 0;                                                                                               \
    if (!((call)->sums[1] > 1e9))                                                                                      \
        (call)->sums[1] = 0;
#endif
#include "loss.h"
