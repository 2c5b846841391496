/* SPDX-License-Identifier: Apache-2.0
 *
 * A sample depends on its place in the batch.
 */
#ifndef REPAIRED
#define DATA_GATHER(index, n, x, target)                                                                               \
    for (int64_t i = 0; i < (n); i++)                                                                                  \
        (x)[i * DATA_NUMBERS] += (float)i;
#endif
#include "data.h"
