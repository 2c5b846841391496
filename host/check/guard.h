/* SPDX-License-Identifier: Apache-2.0
 *
 * guard.h: memory between pages that can not be touched, to lend to a plugin's functions: what reads or writes beside
 * it ends the process, and in a rule of check.h becomes its finding.
 *
 * Thread rule: opening, closing and protecting by one thread at a time; the memory itself by any.
 */
#ifndef TENON_HOST_CHECK_GUARD_H
#define TENON_HOST_CHECK_GUARD_H

#include "host/base/error.h"

#define TN_GUARD_START     0 /* the block begins where the page before it can not be touched */
#define TN_GUARD_END       1 /* it ends where the page behind it can not be touched, as far as its alignment allows */
#define TN_GUARD_ALIGNMENT ((size_t)64) /* of what the host lends (tenon/base.h) */

typedef struct tn_guard {
    void *data;       /* `bytes` of it, zeroed, a multiple of the alignment asked for */
    size_t bytes;     /* 0: nothing may be touched */
    const char *name; /* borrowed */
    void *map;        /* of all pages */
    size_t map_bytes;
    int32_t is_read_only;
} tn_guard;

/* A block; `name` is what messages call it. `alignment`: a power of two up to a page; the bytes of its last page that
 * are left over are filled and looked at by tn_guard_damage. The caller closes it. TN_E_MEMORY. */
int32_t tn_guard_open(const char *name, size_t bytes, size_t alignment, int32_t place, tn_guard *ret, tn_error *err);
/* Accepts a zeroed one. */
void tn_guard_close(tn_guard *guard);

/* Writing to the block ends the process from now on (1), or is allowed (0). */
void tn_guard_read_only(tn_guard *guard, int32_t read_only);

/* How many of the left over bytes beside the block, in its own pages, were written to. */
size_t tn_guard_damage(const tn_guard *guard);

/* A touch of what is no memory of the process's is from now on told with the open block that is nearest: `words` gets
 * "writing 4 bytes behind the end of 'gradient'", at most `size` bytes, then the signal ends the process. In a rule:
 * tn_guard_watch(subject->stage, 256). */
void tn_guard_watch(char *words, size_t size);

#endif
