/* SPDX-License-Identifier: Apache-2.0
 *
 * It allocates in each call.
 */
#include <stdlib.h>

#include "rule.h"

static void update(const tn_piece *piece)
{
#ifndef REPAIRED
    void *volatile block = malloc((size_t)piece->n * sizeof(tn_real));
    free(block);
#endif
    step(piece);
}

BAD_RULE("update-heap", .begin = begin, .update = update)
