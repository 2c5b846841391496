/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/line.h: text for sinks: a line is put together in a buffer, which goes to the host's writer whenever it is
 * full. Numbers read back exactly and have a point in every locale.
 *
 *   tn_line line;
 *   tn_line_begin(&line, writer);
 *   tn_line_text(&line, "loss="); tn_line_number(&line, 0.25); ...
 *   return tn_line_end(&line);
 */
#ifndef TENON_LINE_H
#define TENON_LINE_H

#include <stdlib.h>

#include <tenon/sdk.h>
#include <tenon/sink.h>

typedef struct tn_line {
    const tn_writer *writer; /* borrowed */
    int32_t status;          /* of the first write that failed */
    size_t used;
    char bytes[4096];
} tn_line;

/* Hands on what is there. */
static inline void tn_line_flush(tn_line *line)
{
    if (line->status == TN_OK && line->used > 0)
        line->status = line->writer->write(line->writer->host, line->bytes, (int64_t)line->used);
    line->used = 0;
}

static inline void tn_line_begin(tn_line *line, const tn_writer *writer)
{
    line->writer = writer;
    line->status = TN_OK;
    line->used = 0;
}

static inline void tn_line_byte(tn_line *line, char byte)
{
    if (line->used == sizeof line->bytes)
        tn_line_flush(line);
    line->bytes[line->used++] = byte;
}

static inline void tn_line_text(tn_line *line, const char *text)
{
    while (*text)
        tn_line_byte(line, *text++);
}

static inline void tn_line_integer(tn_line *line, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    tn_line_text(line, text);
}

/* "inf", "-inf", "nan", or 15 digits and as many more as it takes to read back the same number. What the locale puts
 * for a point becomes one. */
static inline void tn_line_number(tn_line *line, double value)
{
    char text[32]; /* the longest is -2.2250738585072014e-308 */
    if (value - value != 0) {
        tn_line_text(line, value != value ? "nan" : value > 0 ? "inf" : "-inf");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    for (const char *at = text; *at;) {
        size_t plain = strspn(at, "0123456789+-e"), other = strcspn(at + plain, "0123456789+-e");
        for (size_t i = 0; i < plain; i++)
            tn_line_byte(line, at[i]);
        if (other > 0)
            tn_line_byte(line, '.');
        at += plain + other;
    }
}

/* The status of all writes. */
static inline int32_t tn_line_end(tn_line *line)
{
    tn_line_flush(line);
    return line->status;
}

#endif
