/* SPDX-License-Identifier: Apache-2.0
 *
 * It allocates in forward, and frees.
 */
#include <stdlib.h>

#ifndef REPAIRED
#define PROBE_FORWARD(call)                                                                                            \
    void *volatile block = malloc(64);                                                                                 \
    free(block);
#endif
#include "layer.h"
