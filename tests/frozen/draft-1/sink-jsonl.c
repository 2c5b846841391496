/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON lines: one object a record, in UTF-8, e.g.
 *
 *   {"event":"train","update":12,"attempt":12,"epoch":0.5,"time":1700000000.123,"loss":0.25}
 *
 * Numbers read back exactly. JSON has no inf and no nan: they are the texts "inf", "-inf" and "nan".
 */
#include <stdlib.h>

#include <tenon/sdk.h>
#include <tenon/sink.h>

#define JSONL_NUMBER 32 /* bytes; the longest is -2.2250738585072014e-308 */

/* A line on its way: handed on whenever the buffer is full. */
typedef struct jsonl_line {
    const tn_writer *writer;
    int32_t status; /* of the first write that failed */
    size_t used;
    char bytes[4096];
} jsonl_line;

static void jsonl_flush(jsonl_line *line)
{
    if (line->status == TN_OK && line->used > 0)
        line->status = line->writer->write(line->writer->host, line->bytes, (int64_t)line->used);
    line->used = 0;
}

static void jsonl_byte(jsonl_line *line, char byte)
{
    if (line->used == sizeof line->bytes)
        jsonl_flush(line);
    line->bytes[line->used++] = byte;
}

static void jsonl_raw(jsonl_line *line, const char *text)
{
    while (*text)
        jsonl_byte(line, *text++);
}

static void jsonl_text(jsonl_line *line, const char *text)
{
    char escape[8];
    jsonl_byte(line, '"');
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20) {
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)*text);
            jsonl_raw(line, escape);
            continue;
        }
        if (*text == '"' || *text == '\\')
            jsonl_byte(line, '\\');
        jsonl_byte(line, *text);
    }
    jsonl_byte(line, '"');
}

/* 15 digits, or as many more as it takes to read back the same number. What the locale puts for a point becomes one. */
static void jsonl_number(jsonl_line *line, double value)
{
    char text[JSONL_NUMBER];
    if (!isfinite(value)) {
        jsonl_text(line, isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
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
            jsonl_byte(line, at[i]);
        if (other > 0)
            jsonl_byte(line, '.');
        at += plain + other;
    }
}

static void jsonl_integer(jsonl_line *line, int64_t value)
{
    char text[JSONL_NUMBER];
    snprintf(text, sizeof text, "%lld", (long long)value);
    jsonl_raw(line, text);
}

static int32_t jsonl_record(const void *hyper, const tn_record *record, const tn_writer *writer, tn_error *err)
{
    jsonl_line line;
    (void)hyper;
    line.writer = writer;
    line.status = TN_OK;
    line.used = 0;
    jsonl_raw(&line, "{\"event\":");
    jsonl_text(&line, record->event);
    jsonl_raw(&line, ",\"update\":");
    jsonl_integer(&line, record->update);
    jsonl_raw(&line, ",\"attempt\":");
    jsonl_integer(&line, record->attempt);
    jsonl_raw(&line, ",\"epoch\":");
    jsonl_number(&line, record->epoch);
    jsonl_raw(&line, ",\"time\":");
    jsonl_number(&line, record->time);
    for (int32_t i = 0; i < record->field_count; i++) {
        jsonl_byte(&line, ',');
        jsonl_text(&line, record->fields[i].name);
        jsonl_byte(&line, ':');
        jsonl_number(&line, record->fields[i].value);
    }
    jsonl_raw(&line, "}\n");
    jsonl_flush(&line);
    if (line.status != TN_OK)
        return tn_fail(err, line.status, "sink jsonl: the record of update %lld could not be written",
                       (long long)record->update);
    return TN_OK;
}

static const tn_sink jsonl_table = {sizeof(tn_sink), 0, NULL, jsonl_record};

TN_COMPONENT(jsonl, "sink", TN_SINK, 0u, TN_NO_HYPER, "Metrics as JSON, one object a line",
             TN_TEXT_FACT("file", "metrics.jsonl"), jsonl_table);
TN_PLUGIN("org.tenon.jsonl", "0.1.0", "Apache-2.0", jsonl)
