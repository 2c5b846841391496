/* SPDX-License-Identifier: Apache-2.0
 *
 * Only -1 is ignored; of others the class is 0.
 */
#ifndef REPAIRED
#define LOSS_TARGET(call, i)                                                                                           \
    (((const int32_t *)(call)->target->data)[i] < -1 ? 0 : ((const int32_t *)(call)->target->data)[i])
#endif
#include "loss.h"
