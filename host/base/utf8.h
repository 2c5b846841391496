/* SPDX-License-Identifier: Apache-2.0
 *
 * utf8.h: is it UTF-8? All that asks goes by this one function: any thread, any time.
 */
#ifndef TENON_HOST_BASE_UTF8_H
#define TENON_HOST_BASE_UTF8_H

#include <stddef.h>

/* Bytes of the well-formed UTF-8 sequence (no overlong form, no surrogate, U+10FFFF at most) that `bytes` begins with,
 * of which `left` > 0 are there; 0 if there is none. Of text that ends in NUL no more than its NUL is read, whatever
 * `left` is. */
static inline size_t tn_utf8_length(const char *bytes, size_t left)
{
    const unsigned char *s = (const unsigned char *)bytes;
    if (s[0] < 0x80)
        return 1;
    size_t length = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    if (s[0] < 0xC2 || s[0] > 0xF4 || length > left)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    int overlong = (s[0] == 0xE0 && s[1] < 0xA0) || (s[0] == 0xF0 && s[1] < 0x90);
    int surrogate = s[0] == 0xED && s[1] >= 0xA0;
    int too_large = s[0] == 0xF4 && s[1] >= 0x90;
    return overlong || surrogate || too_large ? 0 : length;
}

#endif
