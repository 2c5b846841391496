/* SPDX-License-Identifier: Apache-2.0
 *
 * Each rank begins with its own numbers.
 */
#ifndef REPAIRED
#define PROBE_TURN(r, size) (((r) + group->rank) % (size))
#endif
#include "collective.h"
