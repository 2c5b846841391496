/* SPDX-License-Identifier: Apache-2.0
 *
 * The mean over no elements is 0 / 0.
 */
#define BAD_SLOTS(S) S(m, like, zero, signed, "sum") S(mean, scalar, zero, nonnegative, "mean square of the gradient")
#define BAD_FACTS    TN_GRAIN("tensor") TN_ROUND("tensor", 1)
#include "rule.h"

static void partial(const tn_piece *piece, const tn_partial *out)
{
    out->scalars[0] = tn_squares((const tn_real *)piece->g, piece->n, piece->scale);
}

static void fold(const tn_fold *fold)
{
    double n = (double)tn_elements(fold->parameter);
#ifdef REPAIRED
    n = n > 0 ? n : 1;
#endif
    *(double *)fold->slot[1] = fold->sums[0] / n;
}

BAD_RULE("update-empty", .begin = begin, .partial = partial, .fold = fold, .update = step)
