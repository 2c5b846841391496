/* SPDX-License-Identifier: Apache-2.0
 *
 * The means of all calls go through one static array.
 */
#include <time.h>

static double probe_shared[4096];
#ifndef REPAIRED
#define PROBE_FORWARD(call)                                                                                            \
    struct timespec moment = {0, 20000};                                                                               \
    for (int64_t j = (call)->lo; j < (call)->lo + (call)->n && (call)->x->shape[0] > 0; j++)                           \
        probe_shared[j - (call)->lo] = (double)tn_reals((call)->y)[j];                                                 \
    nanosleep(&moment, NULL);                                                                                          \
    for (int64_t j = (call)->lo; j < (call)->lo + (call)->n && (call)->x->shape[0] > 0; j++)                           \
        tn_reals((call)->y)[j] = (float)probe_shared[j - (call)->lo];
#else
#define PROBE_FORWARD(call) (void)probe_shared;
#endif
#include "layer.h"
