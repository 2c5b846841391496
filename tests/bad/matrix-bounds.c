/* SPDX-License-Identifier: Apache-2.0
 *
 * It writes behind what there is: 1: of d, 2: of an item's slot, 3: of the workspace.
 */
#include "matrix.h"

static void bad_apply(const tn_matrix_call *call)
{
    scale_items(call);
#ifndef REPAIRED
    int64_t n = call->count * call->rows * call->columns;
    if (FAULT == 1)
        ((volatile tn_real *)call->d)[n] = 0;
    if (FAULT == 2)
        ((volatile tn_real *)call->slot[1])[n] = 0;
    if (FAULT == 3)
        ((volatile char *)call->workspace)[64 * call->count] = 0;
#endif
}

BAD_MATRIX("matrix-bounds")
