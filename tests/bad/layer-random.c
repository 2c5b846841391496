/* SPDX-License-Identifier: Apache-2.0
 *
 * Each attempt drops the same elements.
 */
#ifndef REPAIRED
#define DROP_ATTEMPT(call) 0
#endif
#include "drop.h"
