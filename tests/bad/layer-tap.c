/* SPDX-License-Identifier: Apache-2.0
 *
 * The bias counts twice, in backward too, and the note says linear all the same.
 */
#ifndef REPAIRED
#define LINEAR_SCALE 2
#endif
#include "linear.h"
