/* SPDX-License-Identifier: Apache-2.0
 *
 * 1: each plan leaves a block of memory. 2: each call leaves a file open.
 */
#include <fcntl.h>
#include <stdlib.h>

#include "rule.h"
BAD_SLOTS(TN_SLOT_RECORD)

static int32_t plan(const tn_parameter *parameter, const void *hyper, const tn_slot_planner *planner, tn_error *err)
{
    (void)parameter, (void)hyper, (void)err;
#if !defined REPAIRED && FAULT == 1
    char *volatile block = (char *)malloc(100);
    (void)block;
#endif
    return planner->slot(planner->host, &slot_m);
}

static void update(const tn_piece *piece)
{
#if !defined REPAIRED && FAULT == 2
    volatile int file = open("/dev/null", O_RDONLY);
    (void)file;
#endif
    step(piece);
}

BAD_RULE("update-leak", .plan = plan, .begin = begin, .update = update)
