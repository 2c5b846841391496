/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON lines: one object a record, in UTF-8, e.g.
 *
 *   {"event":"train","update":12,"attempt":12,"epoch":0.5,"time":1700000000.123,"loss":0.25}
 *
 * Numbers read back exactly. JSON has no inf and no nan: they are the texts "inf", "-inf" and "nan".
 */
#include <tenon/line.h>

static void jsonl_text(tn_line *line, const char *text)
{
    char escape[8];
    tn_line_byte(line, '"');
    for (; *text; text++) {
        if ((unsigned char)*text < 0x20) {
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)*text);
            tn_line_text(line, escape);
            continue;
        }
        if (*text == '"' || *text == '\\')
            tn_line_byte(line, '\\');
        tn_line_byte(line, *text);
    }
    tn_line_byte(line, '"');
}

static void jsonl_number(tn_line *line, double value)
{
    if (value - value == 0)
        tn_line_number(line, value);
    else
        jsonl_text(line, value != value ? "nan" : value > 0 ? "inf" : "-inf");
}

static int32_t jsonl_record(const void *hyper, const tn_record *record, const tn_writer *writer, tn_error *err)
{
    tn_line line;
    (void)hyper;
    tn_line_begin(&line, writer);
    tn_line_text(&line, "{\"event\":");
    jsonl_text(&line, record->event);
    tn_line_text(&line, ",\"update\":");
    tn_line_integer(&line, record->update);
    tn_line_text(&line, ",\"attempt\":");
    tn_line_integer(&line, record->attempt);
    tn_line_text(&line, ",\"epoch\":");
    jsonl_number(&line, record->epoch);
    tn_line_text(&line, ",\"time\":");
    jsonl_number(&line, record->time);
    for (int32_t i = 0; i < record->field_count; i++) {
        tn_line_byte(&line, ',');
        jsonl_text(&line, record->fields[i].name);
        tn_line_byte(&line, ':');
        jsonl_number(&line, record->fields[i].value);
    }
    tn_line_text(&line, "}\n");
    if (tn_line_end(&line) != TN_OK)
        return tn_fail(err, line.status, "sink jsonl: the record of update %lld could not be written",
                       (long long)record->update);
    return TN_OK;
}

static const tn_sink jsonl_table = {sizeof(tn_sink), 0, NULL, jsonl_record};

TN_COMPONENT(jsonl, "sink", TN_SINK, 0u, TN_NO_HYPER, "Metrics as JSON, one object a line",
             TN_TEXT_FACT("file", "metrics.jsonl"), jsonl_table);
TN_PLUGIN("org.tenon.jsonl", "0.1.0", "Apache-2.0", jsonl)
