/* SPDX-License-Identifier: Apache-2.0
 *
 * The direction of the bias is left out.
 */
#ifndef REPAIRED
#define PROBE_TANGENT(along)                                                                                           \
    for (int64_t j = (along)->call->lo; j < (along)->call->lo + (along)->call->n; j++)                                 \
        for (int64_t i = 0; i < (along)->y->shape[0]; i++)                                                             \
            tn_reals((along)->y)[i * (along)->y->shape[1] + j] -= tn_reals(&(along)->parameter[1])[j];
#endif
#include "layer.h"
