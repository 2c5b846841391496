/* SPDX-License-Identifier: Apache-2.0
 *
 * The sum goes through static memory.
 */
#include <time.h>

static __attribute__((unused)) double loss_shared;
#ifndef REPAIRED
#define LOSS_AFTER(call)                                                                                               \
    struct timespec moment = {0, 20000};                                                                               \
    loss_shared = (call)->sums[0];                                                                                     \
    nanosleep(&moment, NULL);                                                                                          \
    (call)->sums[0] = loss_shared;
#endif
#include "loss.h"
