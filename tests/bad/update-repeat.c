/* SPDX-License-Identifier: Apache-2.0
 *
 * It reads scratch that it has not set.
 */
#include "rule.h"
BAD_SLOTS(TN_SLOT_RECORD)

static int32_t plan(const tn_parameter *parameter, const void *hyper, const tn_slot_planner *planner, tn_error *err)
{
    (void)parameter, (void)hyper, (void)err;
    int32_t status = planner->slot(planner->host, &slot_m);
    return status ? status : planner->scratch(planner->host, 64);
}

static void update(const tn_piece *piece)
{
    tn_real *scratch = (tn_real *)piece->scratch, *d = (tn_real *)piece->d;
    step(piece);
#ifdef REPAIRED
    scratch[0] = 0;
#endif
    for (int64_t i = 0; i < piece->n; i++)
        d[i] += scratch[0];
}

BAD_RULE("update-repeat", .plan = plan, .begin = begin, .update = update)
