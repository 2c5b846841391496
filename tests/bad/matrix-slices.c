/* SPDX-License-Identifier: Apache-2.0
 *
 * It takes a batch of items for one.
 */
#include "matrix.h"

static void bad_apply(const tn_matrix_call *call)
{
    tn_matrix_call one = *call;
#ifdef REPAIRED
    scale_items(&one);
#else
    one.rows *= call->count;
    one.count = 1;
    scale_items(&one);
#endif
}

BAD_MATRIX("matrix-slices")
