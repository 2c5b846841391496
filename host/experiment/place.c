/* SPDX-License-Identifier: Apache-2.0
 *
 * place.c: places in an experiment's text, and errors that show them.
 */
#include "host/experiment/place.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "host/base/text.h"
#include "host/base/utf8.h"

/* Bytes; together with line, column and caret they stay below sizeof(tn_error.msg). */
#define LABEL_MAX   240
#define MESSAGE_MAX 480
#define EXCERPT_MAX 96

size_t tn_place_character(const char *bytes, size_t left)
{
    int control = (unsigned char)*bytes < ' ' && *bytes != '\n' && *bytes != '\r' && *bytes != '\t';
    return control ? 0 : tn_utf8_length(bytes, left);
}

static int is_continuation(char c) { return (c & 0xC0) == 0x80; }

/* Does a line end with the byte at `at`? */
static int ends_line(const tn_place_text *text, size_t at)
{
    char c = text->bytes[at];
    return c == '\n' || (c == '\r' && !(at + 1 < text->size && text->bytes[at + 1] == '\n'));
}

static size_t line_start(tn_place place)
{
    size_t at = place.at;
    while (at > 0 && !ends_line(place.text, at - 1))
        at--;
    return at;
}

size_t tn_place_line(tn_place place)
{
    size_t line = 1;
    for (size_t i = 0; i < place.at && i < place.text->size; i++)
        line += (size_t)ends_line(place.text, i);
    return line;
}

static size_t characters(const char *bytes, size_t size)
{
    size_t count = 0;
    for (size_t i = 0; i < size; i++)
        count += !is_continuation(bytes[i]);
    return count;
}

tn_place tn_place_find(const tn_place_text *text, size_t line, size_t column)
{
    size_t at = 0;
    for (; line > 0 && at < text->size; at++)
        line -= (size_t)ends_line(text, at);
    for (; column > 0 && at < text->size && !ends_line(text, at); column--)
        do
            at++;
        while (at < text->size && is_continuation(text->bytes[at]));
    return (tn_place){text, at};
}

/* The line round the place and a caret below it, into `out`; at most 2 * EXCERPT_MAX + 16 bytes. */
static void excerpt(tn_place place, char *out)
{
    const char *bytes = place.text->bytes;
    size_t start = line_start(place), from = start, end = place.at;
    if (place.at - start > EXCERPT_MAX / 2)
        from = place.at - EXCERPT_MAX / 2;
    while (from < place.at && is_continuation(bytes[from]))
        from++;
    while (end < place.text->size && end - from < EXCERPT_MAX && bytes[end] != '\n' && bytes[end] != '\r')
        end++;
    while (end < place.text->size && end > place.at && is_continuation(bytes[end]))
        end--;
    out += sprintf(out, "\n  %s", from > start ? "..." : "");
    for (size_t i = from, step; i < end; i += step ? step : 1) {
        step = tn_place_character(bytes + i, end - i);
        memcpy(out, step && bytes[i] != '\t' ? bytes + i : step ? " " : "?", step ? step : 1);
        out += step ? step : 1;
    }
    sprintf(out, "\n  %s%*s^", from > start ? "   " : "", (int)characters(bytes + from, place.at - from), "");
}

/* "FILE:LINE:COLUMN: " or "LABEL: "; of a long file name the end, of another label the beginning. */
static void prefix(tn_place place, char out[LABEL_MAX + 64])
{
    const char *label = place.text->label;
    size_t length = strlen(label), shown = length <= LABEL_MAX ? length : LABEL_MAX;
    if (place.text->is_file)
        label += length - shown;
    while (shown < length && shown > 0 && is_continuation(place.text->is_file ? label[0] : label[shown])) {
        label += place.text->is_file;
        shown--;
    }
    const char *more = shown < length ? "..." : "";
    out +=
        sprintf(out, "%s%.*s%s:", place.text->is_file ? more : "", (int)shown, label, place.text->is_file ? "" : more);
    if (place.text->is_file && place.at != TN_WHOLE) {
        size_t start = line_start(place);
        out +=
            sprintf(out, "%zu:%zu:", tn_place_line(place), characters(place.text->bytes + start, place.at - start) + 1);
    }
    strcpy(out, " ");
}

/* Cuts a message that is (or would be) `length` bytes long so that the rest of the error fits. */
static void cut(char *message, size_t length)
{
    if (length <= MESSAGE_MAX)
        return;
    size_t end = MESSAGE_MAX;
    while (is_continuation(message[end]))
        end--;
    memcpy(message + end, "...", 4);
}

static int32_t fill(tn_error *err, int32_t code, tn_place place, const char *message)
{
    char where[LABEL_MAX + 64] = "", shown[2 * EXCERPT_MAX + 16] = "";
    if (place.text) {
        if (place.at > place.text->size && place.at != TN_WHOLE)
            place.at = place.text->size;
        prefix(place, where);
        if (place.text->is_file && place.at != TN_WHOLE)
            excerpt(place, shown);
    }
    return tn_error_set(err, code, "%s%s%s", where, message, shown);
}

int32_t tn_place_error(tn_error *err, int32_t code, tn_place place, const char *format, ...)
{
    char message[MESSAGE_MAX + 16];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(message, sizeof message, format, args);
    va_end(args);
    cut(message, length < 0 ? 0 : (size_t)length);
    return fill(err, code, place, message);
}

/* Adds to a message of MESSAGE_MAX + 16 bytes what fits; returns the length that it would have. */
static size_t add(char *message, size_t length, const char *before, const char *word, const char *after)
{
    size_t at = length < MESSAGE_MAX + 15 ? length : MESSAGE_MAX + 15;
    int more = snprintf(message + at, MESSAGE_MAX + 16 - at, "%s%s%s", before, word, after);
    return length + (more < 0 ? 0 : (size_t)more);
}

int32_t tn_place_unknown(tn_error *err, int32_t code, tn_place place, const char *word, const char *const *known,
                         size_t n, const char *format, ...)
{
    char message[MESSAGE_MAX + 16];
    va_list args;
    va_start(args, format);
    int written = vsnprintf(message, sizeof message, format, args);
    va_end(args);
    size_t length = written < 0 ? 0 : (size_t)written;
    const char *near = tn_nearest(word, known, n);
    if (near)
        length = add(message, length, "; did you mean '", near, "'?");
    for (size_t i = 0; i < n; i++)
        length = add(message, length, i ? ", " : near ? " Known: " : "; known: ", known[i], "");
    cut(message, length);
    return fill(err, code, place, message);
}

int32_t tn_place_no_memory(tn_error *err)
{
    return tn_error_set(err, TN_E_MEMORY, "out of memory while reading an experiment");
}
