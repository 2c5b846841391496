/* SPDX-License-Identifier: Apache-2.0
 *
 * It writes a row more than there is room for.
 */
#ifndef REPAIRED
#define STRATEGY_FITS(count, room) ((count) <= (room))
#endif
#include "strategy.h"
