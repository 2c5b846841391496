/* SPDX-License-Identifier: Apache-2.0
 *
 * 1: its variable holds what the last call did. 2: the thread that calls changes the step.
 */
#include <sys/syscall.h>
#include <unistd.h>

#include "rule.h"

#ifdef REPAIRED
static void update(const tn_piece *piece) { step(piece); }
#elif FAULT == 1
static volatile int64_t last;

static void update(const tn_piece *piece)
{
    last = piece->lo;
    step(piece);
}
#else
static void update(const tn_piece *piece)
{
    step(piece);
    if (syscall(SYS_gettid) != getpid())
        ((tn_real *)piece->d)[0] *= 2;
}
#endif

BAD_RULE("update-threads", .begin = begin, .update = update)
