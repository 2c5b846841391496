/* SPDX-License-Identifier: Apache-2.0
 *
 * The first number goes through static memory.
 */
#include <time.h>

static __attribute__((unused)) double probe_shared;

#ifndef REPAIRED
#define BACKEND_AFTER(g)                                                                                               \
    struct timespec moment = {0, 20000};                                                                               \
    size_t bytes = (g)->dtype.bits / 8;                                                                                \
    memcpy(&probe_shared, (g)->c, bytes);                                                                              \
    nanosleep(&moment, NULL);                                                                                          \
    memcpy((g)->c, &probe_shared, bytes);
#endif
#include "backend.h"
