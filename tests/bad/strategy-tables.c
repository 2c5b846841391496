/* SPDX-License-Identifier: Apache-2.0
 *
 * The forward of the first micro-batch comes for every one.
 */
#ifndef REPAIRED
#define STRATEGY_MICRO(m) ((m)*0)
#endif
#include "strategy.h"
