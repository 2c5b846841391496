/* SPDX-License-Identifier: Apache-2.0
 *
 * A class that is none counts as the last one.
 */
#ifndef REPAIRED
#define LOSS_TARGET(call, i)                                                                                           \
    (((const int32_t *)(call)->target->data)[i] < (call)->x->shape[1] ? ((const int32_t *)(call)->target->data)[i]     \
                                                                      : (int32_t)(call)->x->shape[1] - 1)
#endif
#include "loss.h"
