/* SPDX-License-Identifier: Apache-2.0
 *
 * Its random numbers begin again after 2^32 attempts.
 */
#include "rule.h"

static void update(const tn_piece *piece)
{
    const tn_context *context = piece->context;
#ifdef REPAIRED
    uint64_t attempt = (uint64_t)context->attempt;
#else
    uint64_t attempt = (uint32_t)context->attempt;
#endif
    step(piece);
    for (int64_t i = 0; i < piece->n; i++)
        ((tn_real *)piece->d)[i] *= tn_uniform(tn_philox(context->key, attempt, (uint64_t)(piece->lo + i)).v[0]);
}

BAD_RULE("update-attempt", .begin = begin, .update = update)
