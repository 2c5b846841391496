/* SPDX-License-Identifier: Apache-2.0
 *
 * What must be kept is replayed too.
 */
#ifndef REPAIRED
#define POLICY_REPLAYS(nodes, i) ((i) % 3 != 2)
#endif
#include "recompute.h"
