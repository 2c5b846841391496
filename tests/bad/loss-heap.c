/* SPDX-License-Identifier: Apache-2.0
 *
 * It allocates, and frees.
 */
#include <stdlib.h>

#ifndef REPAIRED
#define LOSS_AFTER(call)                                                                                               \
    void *volatile block = malloc(64);                                                                                 \
    free(block);
#endif
#include "loss.h"
