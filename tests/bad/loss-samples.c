/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws lean towards the first classes.
 */
#ifndef REPAIRED
#define LOSS_LEVEL(level) ((level) * (level))
#endif
#include "loss.h"
