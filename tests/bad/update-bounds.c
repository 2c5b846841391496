/* SPDX-License-Identifier: Apache-2.0
 *
 * It writes an element more than there is: 1: behind d, 2: before a slot; 3: it reads one before the gradient.
 */
#include "rule.h"

static void update(const tn_piece *piece)
{
    step(piece);
#ifndef REPAIRED
#if FAULT == 1
    ((volatile tn_real *)piece->d)[piece->n] = 0;
#elif FAULT == 2
    ((volatile tn_real *)piece->slot[0])[-1] = 0;
#else
    (void)((const volatile tn_real *)piece->g)[-1];
#endif
#endif
}

BAD_RULE("update-bounds", .begin = begin, .update = update)
