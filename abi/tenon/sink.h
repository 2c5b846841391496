/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/sink.h: where a run's numbers go. Interface "tenon.sink/0.2", kind sink.
 *
 * A sink turns records into bytes; the host owns the file in the run folder (created, appended, flushed, and after
 * a resume cut back to the last checkpoint's length, so no record appears twice).
 *
 * Facts in the note's JSON text:
 *   file   the file's name in the run folder, e.g. "metrics.jsonl"
 */
#ifndef TENON_SINK_H
#define TENON_SINK_H

#include <tenon/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TN_SINK "tenon.sink/0.2"

typedef struct tn_field {
    const char *name; /* "loss", "lr", "test/accuracy" */
    double value;     /* may be inf or nan */
} tn_field;
TN_SIZE(tn_field, 16);

typedef struct tn_record {
    uint32_t struct_size;
    int32_t field_count;
    const char *event; /* "start", "train", "eval", "skip", "end" */
    int64_t update;    /* committed updates */
    int64_t attempt;
    double epoch; /* with fraction */
    double time;  /* seconds since 1970-01-01 UTC */
    const tn_field *fields;
    const char *const *columns; /* names of all fields that records of this run may have, the same in each */
    int64_t column_count;
} tn_record;
TN_AT(tn_record, event, 8);
TN_AT(tn_record, fields, 48);
TN_SIZE(tn_record, 72);

/* Of the host: takes bytes. Returns TN_OK or a status that the sink hands on. [main] */
typedef struct tn_writer {
    uint32_t struct_size;
    uint32_t reserved;
    void *host;
    int32_t (*write)(void *host, const void *bytes, int64_t count);
} tn_writer;
TN_SIZE(tn_writer, 24);

typedef struct tn_sink {
    uint32_t struct_size;
    uint32_t reserved;
    /* Bytes at the head of a new file; `blank` is a record without event and fields. NULL: none. [main] */
    int32_t (*begin)(const void *hyper, const tn_record *blank, const tn_writer *writer, tn_error *err);
    int32_t (*record)(const void *hyper, const tn_record *record, const tn_writer *writer, tn_error *err); /* [main] */
} tn_sink;
TN_SIZE(tn_sink, 24);

#ifdef __cplusplus
}
#endif
#endif
