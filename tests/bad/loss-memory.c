/* SPDX-License-Identifier: Apache-2.0
 *
 * It clears one sum more than its note has.
 */
#ifndef REPAIRED
#define LOSS_SUMS(call) (call)->sums[0] = (call)->sums[1] = (call)->sums[2] = 0;
#endif
#include "loss.h"
