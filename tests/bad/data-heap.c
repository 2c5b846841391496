/* SPDX-License-Identifier: Apache-2.0
 *
 * gather allocates, and frees.
 */
#include <stdlib.h>

#ifndef REPAIRED
#define DATA_GATHER(index, n, x, target)                                                                               \
    void *volatile block = malloc(64);                                                                                 \
    free(block);
#endif
#include "data.h"
