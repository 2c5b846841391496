/* SPDX-License-Identifier: Apache-2.0
 *
 * 1: it scales the gradient where it lies. 2: it sets its step size back in the hyper-parameters.
 */
#include "rule.h"

static void update(const tn_piece *piece)
{
    step(piece);
#ifndef REPAIRED
#if FAULT == 1
    for (int64_t i = 0; i < piece->n; i++)
        ((tn_real *)piece->g)[i] *= (tn_real)piece->scale;
#else
    ((bad *)piece->hyper)->lr = 0.01;
#endif
#endif
}

BAD_RULE("update-inputs", .begin = begin, .update = update)
