/* SPDX-License-Identifier: Apache-2.0
 *
 * 1: the step depends on a piece's first element. 2: it takes the slice here for the whole tensor.
 */
#include "rule.h"

static void update(const tn_piece *piece)
{
    tn_real *d = (tn_real *)piece->d;
    step(piece);
#ifndef REPAIRED
    for (int64_t i = 1; i < piece->n; i++)
#if FAULT == 1
        d[i] += (tn_real)1e-3 * d[0];
#else
        d[i] *= (tn_real)(1 + 1e-3 * (double)piece->parameter->n);
#endif
#else
    (void)d;
#endif
}

BAD_RULE("update-slices", .begin = begin, .update = update)
