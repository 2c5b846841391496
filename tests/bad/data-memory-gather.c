/* SPDX-License-Identifier: Apache-2.0
 *
 * It counts in the memory of the split how often a sample is asked for.
 */
#ifndef REPAIRED
#define DATA_GATHER(index, n, x, target)                                                                               \
    if ((n) > 0)                                                                                                       \
        *(volatile float *)memory = *(const volatile float *)memory;
#endif
#include "data.h"
