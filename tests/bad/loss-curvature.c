/* SPDX-License-Identifier: Apache-2.0
 *
 * The factor of a mean over two is in it.
 */
#ifndef REPAIRED
#define LOSS_CURVED 0.5
#endif
#include "loss.h"
