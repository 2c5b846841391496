/* SPDX-License-Identifier: Apache-2.0
 *
 * Comma-separated values (RFC 4180, lines end in \n): one line a record, a column for each number that records of the
 * run may have, named in the first line; empty where a record does not have it.
 *
 *   event,update,attempt,epoch,time,loss,accuracy,rule.lr,test/loss,test/accuracy,skipped
 *   train,12,12,0.5,1700000000.123,0.25,0.9,0.001,,,
 *
 * Numbers read back exactly; there are inf, -inf and nan.
 */
#include <tenon/line.h>

static int csv_is_plain(const char *text) { return strcspn(text, ",\"\r\n") == strlen(text); }

static void csv_cell(tn_line *line, const char *text)
{
    if (csv_is_plain(text)) {
        tn_line_text(line, text);
        return;
    }
    tn_line_byte(line, '"');
    for (; *text; text++) {
        if (*text == '"')
            tn_line_byte(line, '"');
        tn_line_byte(line, *text);
    }
    tn_line_byte(line, '"');
}

static int32_t csv_begin(const void *hyper, const tn_record *blank, const tn_writer *writer, tn_error *err)
{
    tn_line line;
    (void)hyper;
    tn_line_begin(&line, writer);
    tn_line_text(&line, "event,update,attempt,epoch,time");
    for (int64_t i = 0; i < blank->column_count; i++) {
        tn_line_byte(&line, ',');
        csv_cell(&line, blank->columns[i]);
    }
    tn_line_byte(&line, '\n');
    if (tn_line_end(&line) != TN_OK)
        return tn_fail(err, line.status, "sink csv: the line of names could not be written");
    return TN_OK;
}

/* Fields come in the order of the columns, so the search goes on where it was. */
static const tn_field *csv_find(const tn_record *record, const char *name, int32_t *from)
{
    for (int32_t i = 0; i < record->field_count; i++) {
        int32_t at = (*from + i) % record->field_count;
        if (strcmp(record->fields[at].name, name) == 0) {
            *from = at + 1;
            return &record->fields[at];
        }
    }
    return NULL;
}

static int32_t csv_record(const void *hyper, const tn_record *record, const tn_writer *writer, tn_error *err)
{
    tn_line line;
    int32_t from = 0;
    (void)hyper;
    tn_line_begin(&line, writer);
    csv_cell(&line, record->event);
    tn_line_byte(&line, ',');
    tn_line_integer(&line, record->update);
    tn_line_byte(&line, ',');
    tn_line_integer(&line, record->attempt);
    tn_line_byte(&line, ',');
    tn_line_number(&line, record->epoch);
    tn_line_byte(&line, ',');
    tn_line_number(&line, record->time);
    for (int64_t i = 0; i < record->column_count; i++) {
        const tn_field *field = csv_find(record, record->columns[i], &from);
        tn_line_byte(&line, ',');
        if (field)
            tn_line_number(&line, field->value);
    }
    tn_line_byte(&line, '\n');
    if (tn_line_end(&line) != TN_OK)
        return tn_fail(err, line.status, "sink csv: the record of update %lld could not be written",
                       (long long)record->update);
    return TN_OK;
}

static const tn_sink csv_table = {sizeof(tn_sink), 0, csv_begin, csv_record};

TN_COMPONENT(csv, "sink", TN_SINK, 0u, TN_NO_HYPER, "Metrics as comma-separated values, one line a record",
             TN_TEXT_FACT("file", "metrics.csv"), csv_table);
TN_PLUGIN("org.tenon.csv", "0.1.0", "Apache-2.0", csv)
