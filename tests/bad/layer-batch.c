/* SPDX-License-Identifier: Apache-2.0
 *
 * The gradient is the mean times the rows: of no rows NaN.
 */
#ifndef REPAIRED
#define PROBE_BACKWARD(call)                                                                                           \
    double all = (double)(call)->x->shape[0];                                                                          \
    for (int64_t j = (call)->lo; tn_wants_dw(call) && j < (call)->lo + (call)->n; j++)                                 \
        tn_reals(&(call)->gradient[1])[j] += (float)(0 / all);
#endif
#include "layer.h"
