/* SPDX-License-Identifier: Apache-2.0
 *
 * The weight of the new mean depends on a count that no checkpoint has.
 */
#ifndef REPAIRED
static double probe_calls;
#define PROBE_MOMENTUM(call)                                                                                           \
    ((call)->refresh > 0 ? 1.0 / (double)(call)->refresh : 1 / (2 + (probe_calls += (call)->lo == 0)))
#endif
#include "layer.h"
