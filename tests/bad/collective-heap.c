/* SPDX-License-Identifier: Apache-2.0
 *
 * Each operation allocates, and frees.
 */
#ifndef REPAIRED
#define PROBE_AFTER                                                                                                    \
    void *volatile block = malloc(64);                                                                                 \
    free(block);
#endif
#include "collective.h"
