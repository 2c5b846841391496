/* SPDX-License-Identifier: Apache-2.0
 *
 * It believes what it finds in the scratch.
 */
#ifndef REPAIRED
#define PROBE_FORWARD(call)                                                                                            \
    if (isfinite(*(const float *)(call)->workspace) && (call)->x->shape[0] > 0)                                        \
        tn_reals((call)->y)[(call)->lo] += 1;
#endif
#include "layer.h"
