/* SPDX-License-Identifier: Apache-2.0
 *
 * Before the vote: 1: partial writes a slot, 2: it writes the gradient; 3: fold writes the sums.
 */
#include "round.h"

static void partial_wrong(const tn_piece *piece, const tn_partial *out)
{
    partial(piece, out);
#ifndef REPAIRED
    if (FAULT == 1)
        ((volatile tn_real *)piece->slot[0])[0] *= 1;
    if (FAULT == 2)
        ((volatile tn_real *)piece->g)[0] *= 1;
#endif
}

static void fold_wrong(const tn_fold *call)
{
    fold(call);
#ifndef REPAIRED
    if (FAULT == 3)
        *(volatile double *)call->sums *= 1;
#endif
}

BAD_RULE("round-inputs", .begin = begin, .partial = partial_wrong, .fold = fold_wrong, .update = step)
