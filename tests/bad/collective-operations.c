/* SPDX-License-Identifier: Apache-2.0
 *
 * A broadcast is always that of rank 0.
 */
#ifndef REPAIRED
#define PROBE_ROOT(t) 0
#endif
#include "collective.h"
