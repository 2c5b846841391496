/* SPDX-License-Identifier: Apache-2.0
 *
 * malloc_count.c: under a sanitizer through its hooks, else by standing before glibc's allocator: the symbols of the
 * executable win.
 */
#include "tests/malloc_count.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>

static _Atomic int64_t count;

int64_t malloc_count(void) { return count; }

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__

int __sanitizer_install_malloc_and_free_hooks(void (*allocated)(const volatile void *, size_t),
                                              void (*freed)(const volatile void *));

static void allocated(const volatile void *block, size_t size)
{
    (void)block;
    (void)size;
    count++;
}
static void freed(const volatile void *block) { (void)block; }

__attribute__((constructor)) static void install(void) { __sanitizer_install_malloc_and_free_hooks(allocated, freed); }

#else

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size)
{
    count++;
    return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    count++;
    return __libc_calloc(n, size);
}

void *realloc(void *block, size_t size)
{
    count++;
    return __libc_realloc(block, size);
}

void *memalign(size_t alignment, size_t size)
{
    count++;
    return __libc_memalign(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

int posix_memalign(void **block, size_t alignment, size_t size)
{
    *block = memalign(alignment, size);
    return *block ? 0 : ENOMEM;
}

#endif
