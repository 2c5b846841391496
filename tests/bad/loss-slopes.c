/* SPDX-License-Identifier: Apache-2.0
 *
 * The seed is forgotten.
 */
#ifndef REPAIRED
#define LOSS_SEED(call) 1
#endif
#include "loss.h"
