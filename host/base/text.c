/* SPDX-License-Identifier: Apache-2.0
 *
 * text.c: a growable string, and comparing names.
 */
#include "host/base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/base/number.h"
#include "host/base/utf8.h"

/* Room for `more` bytes and a NUL; 0 and `failed` if there is none. */
static int reserve(tn_text *text, size_t more)
{
    if (text->failed)
        return 0;
    if (more < text->capacity - text->size)
        return 1;
    size_t need, capacity = text->capacity < 32 ? 64 : 2 * text->capacity;
    if (__builtin_add_overflow(text->size + 1, more, &need) || capacity < text->capacity) {
        text->failed = 1;
        return 0;
    }
    if (capacity < need)
        capacity = need;
    char *data = tn_realloc(text->data, capacity, 1);
    if (!data) {
        text->failed = 1;
        return 0;
    }
    text->data = data;
    text->capacity = capacity;
    return 1;
}

void tn_text_addn(tn_text *text, const char *bytes, size_t size)
{
    if (!reserve(text, size))
        return;
    if (size)
        memcpy(text->data + text->size, bytes, size);
    text->size += size;
    text->data[text->size] = 0;
}

void tn_text_add(tn_text *text, const char *string) { tn_text_addn(text, string, strlen(string)); }

void tn_text_char(tn_text *text, char c) { tn_text_addn(text, &c, 1); }

void tn_text_addf(tn_text *text, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int length = vsnprintf(NULL, 0, format, args);
    if (length < 0) {
        text->failed = 1;
    } else if (reserve(text, (size_t)length)) {
        vsnprintf(text->data + text->size, (size_t)length + 1, format, again);
        text->size += (size_t)length;
    }
    va_end(again);
    va_end(args);
}

static void add_escaped(tn_text *text, unsigned char c)
{
    static const char special[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
    const char *at = memchr(special, c, sizeof special - 1);
    if (at)
        tn_text_addn(text, (char[]){'\\', letter[at - special]}, 2);
    else
        tn_text_addf(text, "\\u%04x", c);
}

void tn_text_json(tn_text *text, const char *utf8)
{
    tn_text_char(text, '"');
    while (*utf8) {
        size_t length = tn_utf8_length(utf8, SIZE_MAX);
        if (!length)
            tn_text_add(text, "\\ufffd");
        else if ((unsigned char)*utf8 < 0x20 || *utf8 == '"' || *utf8 == '\\')
            add_escaped(text, (unsigned char)*utf8);
        else
            tn_text_addn(text, utf8, length);
        utf8 += length ? length : 1;
    }
    tn_text_char(text, '"');
}

void tn_text_real(tn_text *text, double value)
{
    char number[TN_REAL_TEXT];
    if (tn_print_real(number, sizeof number, value) < 0)
        text->failed = 1;
    else
        tn_text_add(text, number);
}

int32_t tn_text_status(const tn_text *text, tn_error *err)
{
    return text->failed ? tn_error_set(err, TN_E_MEMORY, "no memory for a text of over %zu bytes", text->size) : TN_OK;
}

const char *tn_text_string(const tn_text *text) { return text->data ? text->data : ""; }

char *tn_text_take(tn_text *text)
{
    tn_text_addn(text, "", 0);
    char *data = text->data;
    if (text->failed)
        return NULL;
    *text = (tn_text){0};
    return data;
}

void tn_text_free(tn_text *text)
{
    tn_free(text->data);
    *text = (tn_text){0};
}

static char letter_of(char c) { return c == '_' ? '-' : c; }

int tn_name_equal(const char *a, const char *b)
{
    for (; letter_of(*a) == letter_of(*b); a++, b++)
        if (!*a)
            return 1;
    return 0;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Rows of the table of distances between prefixes: before[j] is (i-2, j), above[j] is (i-1, j), row[j] is (i, j). */
static size_t distance(const char *a, const char *b, char (*letter)(char))
{
    size_t rows[3][TN_DISTANCE_MAX + 1], m = strlen(a), n = strlen(b);
    size_t *before = rows[0], *above = rows[1], *row = rows[2];
    if (m > TN_DISTANCE_MAX || n > TN_DISTANCE_MAX)
        return SIZE_MAX;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; i <= m; i++) {
        size_t *spare = before;
        before = above;
        above = row;
        row = spare;
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            char x = letter(a[i - 1]), y = letter(b[j - 1]);
            row[j] = least(least(above[j], row[j - 1]) + 1, above[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == letter(b[j - 2]) && letter(a[i - 2]) == y)
                row[j] = least(row[j], before[j - 2] + 1);
        }
    }
    return row[n];
}

static char itself(char c) { return c; }
static char small(char c) { return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : letter_of(c); }

size_t tn_distance(const char *a, const char *b) { return distance(a, b, itself); }

const char *tn_nearest(const char *word, const char *const *words, size_t n)
{
    size_t third = strlen(word) / 3, best = third > 1 ? third : 1;
    const char *nearest = NULL;
    for (size_t i = 0; i < n; i++) {
        size_t d = words[i] ? distance(word, words[i], small) : SIZE_MAX;
        if (d < best || (d == best && !nearest)) {
            best = d;
            nearest = words[i];
        }
    }
    return nearest;
}
