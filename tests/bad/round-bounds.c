/* SPDX-License-Identifier: Apache-2.0
 *
 * It writes a sum more than there is: 1: of the whole piece, 2: of columns; 3: fold writes behind a slot.
 */
#include "round.h"

static void partial_more(const tn_piece *piece, const tn_partial *out)
{
    partial(piece, out);
#ifndef REPAIRED
    if (FAULT == 1)
        ((volatile double *)out->scalars)[1] = 1;
    if (FAULT == 2 && out->columns)
        ((volatile double *)out->columns)[tn_view_columns(piece->parameter)] = 1;
#endif
}

static void fold_more(const tn_fold *call)
{
    fold(call);
#ifndef REPAIRED
    if (FAULT == 3)
        ((volatile double *)call->slot[1])[1] = 0;
#endif
}

BAD_RULE("round-bounds", .begin = begin, .partial = partial_more, .fold = fold_more, .update = step)
