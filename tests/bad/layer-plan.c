/* SPDX-License-Identifier: Apache-2.0
 *
 * It refuses some shapes and does not say why.
 */
#ifndef REPAIRED
#define PROBE_INFER(x, planner, err)                                                                                   \
    if ((x)->ndim != 2)                                                                                                \
        return TN_E_INVALID;
#endif
#include "layer.h"
