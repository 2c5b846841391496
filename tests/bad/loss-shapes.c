/* SPDX-License-Identifier: Apache-2.0
 *
 * A target of one row is taken for all.
 */
#ifndef REPAIRED
#define LOSS_FITS(x, target)                                                                                           \
    ((x)->ndim == 2 && (target)->ndim == 1 && ((x)->shape[0] == (target)->shape[0] || (target)->shape[0] == 1) &&      \
     (target)->dtype.code == TN_INT)
#endif
#include "loss.h"
