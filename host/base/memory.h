/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.h: the host's one allocator. Every block is owned by the caller and freed with tn_free. Failure is NULL.
 * All functions may be called by any thread.
 */
#ifndef TENON_HOST_BASE_MEMORY_H
#define TENON_HOST_BASE_MEMORY_H

#include "host/base/error.h"

/* count * size zeroed bytes, aligned for any type; NULL if the product overflows or memory is out. A product of 0
 * yields a block that may not be read. */
void *tn_alloc(size_t count, size_t size);

/* Resizes a block of tn_alloc (or NULL) to count * size bytes; bytes beyond the old size are not zeroed. On failure
 * returns NULL and the old block stays as it was. Not for blocks of tn_alloc_aligned. */
void *tn_realloc(void *block, size_t count, size_t size);

/* `bytes` zeroed bytes aligned to 64 bytes; from 2 MiB on aligned to 2 MiB and asked to be backed by huge pages. All
 * pages are touched, so later use faults none in. */
void *tn_alloc_aligned(size_t bytes);

/* Frees a block of any function here. NULL is allowed. */
void tn_free(void *block);

/* Copies of text. `text` NULL gives NULL; tn_strndup copies at most `size` bytes and ends them in NUL. */
char *tn_strdup(const char *text);
char *tn_strndup(const char *text, size_t size);

/* printf into a new block. */
char *tn_format(const char *format, ...) TN_PRINTF(1, 2);

/* Room for one more behind `count` elements of `size` bytes: `array` is the address of the pointer to them (NULL for
 * none yet), a block of tn_alloc or tn_realloc with room for *capacity. A full one is doubled, new room is zeroed; both
 * are left as they were on TN_E_MEMORY. */
int32_t tn_grow(void *array, size_t *capacity, size_t count, size_t size);

/* For tests: refuses one allocation, the nth from now counted from 0 (0: the very next), then none. -1: none.
 * Each function above but tn_free makes one allocation, tn_grow only where the array is full. */
void tn_memory_fail_at(int64_t nth);

/* Allocations asked for since the process started, refused ones included. */
int64_t tn_memory_count(void);

#endif
