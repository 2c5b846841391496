/* SPDX-License-Identifier: Apache-2.0
 *
 * It waits for an hour.
 */
#ifndef REPAIRED
#define PROBE_WAITS(t) 3600
#endif
#include "collective.h"
