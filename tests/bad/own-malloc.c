/* SPDX-License-Identifier: Apache-2.0
 *
 * Brings an allocator of its own, under libc's names but not shown, and an error's text from it.
 */
#define BAD_NAME "own-malloc"
#include <stddef.h>
#include <tenon/plugin.h>
static char pool[4096];
static size_t used;
void *malloc(size_t size);
void free(void *block);
__attribute__((visibility("hidden"))) void *malloc(size_t size)
{
    size_t at = used;
    used += (size + 15) & ~(size_t)15;
    return used <= sizeof pool ? pool + at : NULL;
}
__attribute__((visibility("hidden"))) void free(void *block)
{
    if ((char *)block < pool || (char *)block >= pool + sizeof pool)
        __builtin_trap(); /* not one of its own */
}
static int32_t refuse(tn_error *err)
{
    char *text = malloc(32);
    __builtin_strcpy(text, "a text of its own heap");
    __builtin_strcpy(err->msg, text);
    err->code = 1;
    __builtin_memset(text, '#', 31);
    free(text);
    return 1;
}
#define BAD_BODY                                                                                                       \
    static int calls;                                                                                                  \
    return calls++ == 0 && refuse(err) ? (const tn_plugin *)0 : &bad_plugin;
#include "bad.h"
