/* SPDX-License-Identifier: Apache-2.0
 *
 * Metrics as text, one number a line (Wickham 2014, "Tidy data"): event, update, name and value with tabs between. The
 * host owns the file that the note names, in the run's folder.
 */
#include <tenon/line.h>

static int32_t my_thing_end(tn_line *line, tn_error *err)
{
    int32_t status = tn_line_end(line);
    return status ? tn_fail(err, status, "sink my-thing: the file takes no more bytes") : TN_OK;
}

/* The head of a new file. */
static int32_t my_thing_begin(const void *hyper, const tn_record *blank, const tn_writer *writer, tn_error *err)
{
    tn_line line;
    (void)hyper, (void)blank;
    tn_line_begin(&line, writer);
    tn_line_text(&line, "event\tupdate\tname\tvalue\n");
    return my_thing_end(&line, err);
}

static int32_t my_thing_record(const void *hyper, const tn_record *record, const tn_writer *writer, tn_error *err)
{
    tn_line line;
    (void)hyper;
    tn_line_begin(&line, writer);
    for (int32_t i = 0; i < record->field_count; i++) {
        tn_line_text(&line, record->event);
        tn_line_byte(&line, '\t');
        tn_line_integer(&line, record->update);
        tn_line_byte(&line, '\t');
        tn_line_text(&line, record->fields[i].name);
        tn_line_byte(&line, '\t');
        tn_line_number(&line, record->fields[i].value);
        tn_line_byte(&line, '\n');
    }
    return my_thing_end(&line, err);
}

static const tn_sink my_thing_table = {sizeof(tn_sink), 0, TN_CALL(my_thing_begin), TN_CALL(my_thing_record)};
TN_COMPONENT(my_thing, "sink", TN_SINK, 0u, TN_NO_HYPER, "Metrics as text, one number a line",
             TN_TEXT_FACT("file", "my-thing.tsv"), my_thing_table);
TN_PLUGIN("org.example.my-thing", "0.1.0", "Apache-2.0", my_thing)
