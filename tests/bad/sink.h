/* SPDX-License-Identifier: Apache-2.0
 *
 * sink.h: a good sink in which parts may be replaced before this file is included, to be wrong in one way.
 */
#ifndef TENON_TESTS_BAD_SINK_H
#define TENON_TESTS_BAD_SINK_H

#include <tenon/line.h>

#ifndef SINK_FILE
#define SINK_FILE "probe.txt"
#endif
#ifndef SINK_BEFORE /* (record, line) */
#define SINK_BEFORE(record, line)
#endif
#ifndef SINK_NUMBER
#define SINK_NUMBER(line, value) tn_line_number(line, value)
#endif
#ifndef SINK_STATUS
#define SINK_STATUS(line) tn_line_end(line)
#endif

static int32_t probe_record(const void *hyper, const tn_record *record, const tn_writer *writer, tn_error *err)
{
    tn_line line;
    (void)hyper;
    tn_line_begin(&line, writer);
    SINK_BEFORE(record, &line)
    tn_line_text(&line, record->event);
    tn_line_byte(&line, ' ');
    tn_line_integer(&line, record->update);
    for (int32_t i = 0; i < record->field_count; i++) {
        tn_line_byte(&line, ' ');
        tn_line_text(&line, record->fields[i].name);
        tn_line_byte(&line, '=');
        SINK_NUMBER(&line, record->fields[i].value);
    }
    tn_line_byte(&line, '\n');
    return SINK_STATUS(&line) == TN_OK ? TN_OK : tn_fail(err, TN_E_IO, "probe: can not write");
}

static const tn_sink probe_table = {sizeof(tn_sink), 0, NULL, probe_record};

TN_COMPONENT(probe, "sink", TN_SINK, 0u, TN_NO_HYPER, "a test", TN_TEXT_FACT("file", SINK_FILE), probe_table);
TN_PLUGIN("org.tenon.test.probe", "0.1.0", "Apache-2.0", probe)

#endif
