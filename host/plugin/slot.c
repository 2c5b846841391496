/* SPDX-License-Identifier: Apache-2.0
 *
 * slot.c: the words of slots.
 */
#include <string.h>

#include "host/plugin/slot.h"

int32_t tn_word_at(const char *list, const char *word, size_t n)
{
    int32_t place = 0;
    for (const char *at = list; *at; at += *at == ' ', place++) {
        size_t length = strcspn(at, " ");
        if (length == n && memcmp(at, word, n) == 0)
            return place;
        at += length;
    }
    return -1;
}

int32_t tn_slot_shape(const char *word) { return tn_word_at(TN_SLOT_SHAPES, word, strlen(word)); }

const char *tn_slot_shape_name(int32_t shape)
{
    static const char *const names[] = {"like", "rows", "columns", "scalar", "global", "item", "left", "right"};
    return shape >= 0 && shape < TN_SHAPES ? names[shape] : NULL;
}

int32_t tn_slot_init(const char *word) { return tn_word_at(TN_SLOT_INITS, word, strlen(word)) >= 0; }

int32_t tn_slot_flags(const char *words)
{
    int32_t flags = 0;
    for (const char *at = words ? words + strspn(words, ", ") : ""; *at; at += strspn(at, ", ")) {
        size_t n = strcspn(at, ", ");
        int32_t place = tn_word_at(TN_SLOT_FLAGS, at, n);
        if (place < 0)
            return -1;
        flags |= 1 << place;
        at += n;
    }
    return flags;
}

int32_t tn_slot_named(const char *name)
{
    size_t n = name ? strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") : 0;
    return n > 0 && name[n] == 0;
}
