/* SPDX-License-Identifier: Apache-2.0
 *
 * y is cleared before x is read.
 */
#ifndef REPAIRED
#define DROP_BEFORE(y, x) *(y) = 0;
#endif
#include "drop.h"
