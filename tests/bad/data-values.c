/* SPDX-License-Identifier: Apache-2.0
 *
 * The last sample has a class that there is not.
 */
#ifndef REPAIRED
#define DATA_GATHER(index, n, x, target)                                                                               \
    for (int64_t i = 0; i < (n); i++)                                                                                  \
        (target)[i] += (index)[i] == DATA_SAMPLES - 1 ? DATA_CLASSES : 0;
#endif
#include "data.h"
