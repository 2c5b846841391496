/* SPDX-License-Identifier: Apache-2.0
 *
 * lend.h: the memory of one call of a plugin: every struct and array that the call is given is copied into a block of
 * its own between pages that can not be touched, and what the call may write is copied back behind it.
 *
 *   tn_piece piece = {...};
 *   piece.p = tn_lend(desk, 0, "p", p, bytes, 64, TN_LEND_IN);
 *   piece.d = tn_lend(desk, 1, "d", NULL, bytes, 64, TN_LEND_OUT);
 *   const void *call = tn_lend(desk, 2, "the piece", &piece, sizeof piece, 8, TN_LEND_IN);
 *   tn_desk_enter(desk);
 *   table.update(call);
 *   tn_desk_leave(desk);
 *   memcpy(d, piece.d, bytes);
 *
 * Thread rule: one desk belongs to one thread at a time.
 */
#ifndef TENON_HOST_CHECK_LEND_H
#define TENON_HOST_CHECK_LEND_H

#include <stdatomic.h>

#include "host/check/guard.h"

#define TN_LOANS 48

/* Where a block stands between the pages that can not be touched. */
#define TN_LEND_MIDDLE 0 /* away from them */
#define TN_LEND_START  1
#define TN_LEND_END    2

#define TN_LEND_IN  0 /* to be read only */
#define TN_LEND_OUT 1 /* may be written */

typedef struct tn_loan {
    tn_guard guard;
    char *at;
    size_t bytes;
    int32_t how, out; /* TN_LEND_*; 1: lent now */
} tn_loan;

typedef struct tn_desk {
    int32_t place;      /* TN_LEND_MIDDLE, ... */
    int32_t lock;       /* 1: writing to what is TN_LEND_IN ends the process */
    unsigned char fill; /* what new blocks and the bytes beside them hold */
    tn_loan loan[TN_LOANS];
    char damage[160]; /* what was written beside a block in its own pages; "" */
} tn_desk;

/* Block `which` for the coming call: `bytes` of it at an address that `alignment` divides, copied from `from` (NULL:
 * filled). Valid until the next tn_lend of the same number. NULL, after a message in desk->damage, out of memory. */
void *tn_lend(tn_desk *desk, int32_t which, const char *name, const void *from, size_t bytes, size_t alignment,
              int32_t how);
/* Round the call. */
void tn_desk_enter(tn_desk *desk);
void tn_desk_leave(tn_desk *desk);
void tn_desk_close(tn_desk *desk);

#endif
