/* SPDX-License-Identifier: Apache-2.0
 *
 * 1: NaN counts as 0. 2: it looks up a number in a table.
 */
#include "rule.h"

static void update(const tn_piece *piece)
{
#ifndef REPAIRED
#if FAULT == 1
    tn_real *g = (tn_real *)piece->slot[0];
    const tn_real *from = (const tn_real *)piece->g;
    for (int64_t i = 0; i < piece->n; i++) {
        g[i] = (tn_real)0.9 * g[i] + (from[i] == from[i] ? (tn_real)piece->scale * from[i] : 0);
        ((tn_real *)piece->d)[i] = -((const constants *)piece->k)->lr * g[i];
    }
#else
    static const volatile tn_real factor[] = {1, 1, 1};
    step(piece);
    for (int64_t i = 0; i < piece->n; i++)
        ((tn_real *)piece->d)[i] *= factor[1 + (int32_t)((const tn_real *)piece->g)[i]];
#endif
#else
    step(piece);
#endif
}

BAD_RULE("update-nonfinite", .begin = begin, .update = update)
