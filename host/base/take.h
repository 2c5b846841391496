/* SPDX-License-Identifier: Apache-2.0
 *
 * take.h: reading a struct that another side allocated, perhaps by older or newer headers.
 */
#ifndef TENON_HOST_BASE_TAKE_H
#define TENON_HOST_BASE_TAKE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Copies what both sides know of `from`, which begins with uint32_t struct_size, into `to` of `size` bytes; what is
 * missing becomes 0, and to's struct_size becomes `size`. [any] */
static inline void tn_take(void *to, size_t size, const void *from)
{
    uint32_t theirs, ours = (uint32_t)size;
    memcpy(&theirs, from, sizeof theirs);
    memset(to, 0, size);
    memcpy(to, from, theirs < size ? theirs : size);
    memcpy(to, &ours, sizeof ours);
}

#endif
