/* SPDX-License-Identifier: Apache-2.0
 *
 * What is kept changes from call to call.
 */
static __attribute__((unused)) long probe_calls;
#ifndef REPAIRED
#define POLICY_REPLAYS(nodes, i) ((nodes)[i].replayable && ((i) + probe_calls++) % 5 != 2)
#endif
#include "recompute.h"
