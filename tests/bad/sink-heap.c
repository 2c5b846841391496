/* SPDX-License-Identifier: Apache-2.0
 *
 * Each record is put together on the heap.
 */
#ifndef REPAIRED
#define SINK_BEFORE(record, line)                                                                                      \
    void *volatile block = malloc(64);                                                                                 \
    free(block);
#endif
#include "sink.h"
