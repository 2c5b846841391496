/* SPDX-License-Identifier: Apache-2.0
 *
 * A loss that is NaN counts as a large one.
 */
#ifndef REPAIRED
#define LOSS_VALUE(loss) fmin(loss, 1e6)
#endif
#include "loss.h"
