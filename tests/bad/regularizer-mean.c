/* SPDX-License-Identifier: Apache-2.0
 *
 * What is kept is not scaled up enough.
 */
#ifndef REPAIRED
#define DROP_SCALE 1.5f
#endif
#include "drop.h"
