/* SPDX-License-Identifier: Apache-2.0
 *
 * count.h: counts what plugins and their libraries allocate, in a process made for it. Their calls of malloc and its
 * like go through tables of addresses that the loader filled; those are pointed here, which passes the call on. libc's
 * own calls (strdup, fopen, qsort) are counted so too, tenon's are not. Under a sanitizer its hooks count, tenon's
 * too. What a library does with memory of its own making, or mmap by system call, is seen in tn_count_mapped only.
 *
 * Thread rule: counts are exact with any number of threads; tn_count_open by one, while no other runs.
 */
#ifndef TENON_HOST_CHECK_COUNT_H
#define TENON_HOST_CHECK_COUNT_H

#include "host/base/error.h"

/* Counts from now on what is loaded now; once more after something else was loaded. For the rest of the process: there
 * is no way back. TN_E_UNSUPPORTED where a table can not be written. */
int32_t tn_count_open(tn_error *err);

/* Allocations since then (malloc and all its like, mmap), and blocks that were not freed of them. */
int64_t tn_count_allocations(void);
int64_t tn_count_held(void);
/* The name of the function that allocated last; static. */
const char *tn_count_last(void);

/* Of this process: bytes mapped, and open files (INT32_MAX: no more can be opened); -1 where /proc does not tell. */
int64_t tn_count_mapped(void);
int64_t tn_count_files(void);

#endif
