/* SPDX-License-Identifier: Apache-2.0
 *
 * round.h: rule.h with a round of scope "tensor": the sum of squares of the gradient in a scalar slot, rows and
 * columns of squares that nobody needs.
 */
#ifndef TENON_TESTS_BAD_ROUND_H
#define TENON_TESTS_BAD_ROUND_H

#define BAD_SLOTS(S) S(m, like, zero, signed, "sum") S(size, scalar, zero, nonnegative, "sum of squares")
#define BAD_FACTS    TN_GRAIN("tensor") TN_ROUNDS(TN_SUMS("tensor", 1, 1, 1))
#include "rule.h"

static TN_UNUSED void partial(const tn_piece *piece, const tn_partial *out)
{
    const tn_real *g = (const tn_real *)piece->g;
    out->scalars[0] = tn_squares(g, piece->n, piece->scale);
    for (tn_row_run r = tn_rows_of(piece); out->rows && tn_next_row(&r);)
        for (int64_t i = 0; i < r.n; i++) {
            out->rows[r.row - piece->lo / r.columns] += (double)g[r.at + i] * (double)g[r.at + i];
            out->columns[r.column + i] += (double)g[r.at + i] * (double)g[r.at + i];
        }
}

static TN_UNUSED void fold(const tn_fold *fold) { *(double *)fold->slot[1] = fold->sums[0]; }

#endif
