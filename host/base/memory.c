/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c: the host's one allocator.
 */
#include "host/base/memory.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

static _Atomic int64_t asked = 0, fail_in = -1;

void tn_memory_fail_at(int64_t nth) { atomic_store(&fail_in, nth); }

int64_t tn_memory_count(void) { return atomic_load(&asked); }

/* Counts one allocation; 1 if it is the one to be refused. */
static int refused(void)
{
    atomic_fetch_add_explicit(&asked, 1, memory_order_relaxed);
    return atomic_load_explicit(&fail_in, memory_order_relaxed) >= 0 && atomic_fetch_sub(&fail_in, 1) == 0;
}

void *tn_alloc(size_t count, size_t size)
{
    size_t bytes;
    if (refused() || __builtin_mul_overflow(count, size, &bytes))
        return NULL;
    return calloc(bytes ? bytes : 1, 1);
}

void *tn_realloc(void *block, size_t count, size_t size)
{
    size_t bytes;
    if (refused() || __builtin_mul_overflow(count, size, &bytes))
        return NULL;
    return realloc(block, bytes ? bytes : 1);
}

int32_t tn_grow(void *array, size_t *capacity, size_t count, size_t size)
{
    void *block;
    size_t wanted = *capacity ? 2 * *capacity : 8;
    if (count < *capacity)
        return TN_OK;
    memcpy(&block, array, sizeof block); /* whatever it points to: pointers to objects are all alike */
    if (wanted <= *capacity || !(block = tn_realloc(block, wanted, size)))
        return TN_E_MEMORY;
    memset((char *)block + *capacity * size, 0, (wanted - *capacity) * size);
    memcpy(array, &block, sizeof block);
    *capacity = wanted;
    return TN_OK;
}

void *tn_alloc_aligned(size_t bytes)
{
    void *block;
    int huge = bytes >= HUGE_PAGE;
    if (refused() || bytes > PTRDIFF_MAX || posix_memalign(&block, huge ? HUGE_PAGE : 64, bytes ? bytes : 1))
        return NULL;
    if (huge)
        (void)madvise(block, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE); /* a kernel without them still works */
    memset(block, 0, bytes);
    return block;
}

void tn_free(void *block) { free(block); }

char *tn_strdup(const char *text) { return text ? tn_strndup(text, strlen(text)) : NULL; }

char *tn_strndup(const char *text, size_t size)
{
    if (!text)
        return NULL;
    size_t length = strnlen(text, size);
    char *copy = tn_alloc(length + 1, 1);
    if (copy)
        memcpy(copy, text, length);
    return copy;
}

char *tn_format(const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    char *text = length < 0 ? NULL : tn_alloc((size_t)length + 1, 1);
    if (text)
        vsnprintf(text, (size_t)length + 1, format, again);
    va_end(again);
    va_end(args);
    return text;
}
