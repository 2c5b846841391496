/* SPDX-License-Identifier: Apache-2.0
 *
 * Every third table has its micro-batches backwards.
 */
#ifndef REPAIRED
#define STRATEGY_MICRO(m) (probe_tables += (m) == 0, probe_tables % 3 ? (m) : micro_batches - 1 - (m))
static int probe_tables;
#endif
#include "strategy.h"
