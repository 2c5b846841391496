/* SPDX-License-Identifier: Apache-2.0
 *
 * A sample goes through static memory.
 */
#include <time.h>

static __attribute__((unused)) float data_shared;

#ifndef REPAIRED
#define DATA_GATHER(index, n, x, target)                                                                               \
    struct timespec moment = {0, 20000};                                                                               \
    if ((n) > 0) {                                                                                                     \
        data_shared = (x)[0];                                                                                          \
        nanosleep(&moment, NULL);                                                                                      \
        (x)[0] = data_shared;                                                                                          \
    }
#endif
#include "data.h"
