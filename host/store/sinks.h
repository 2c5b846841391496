/* SPDX-License-Identifier: Apache-2.0
 *
 * sinks.h: the sinks of a run: each writes its records to its file in the run folder, through one buffer.
 */
#ifndef TENON_HOST_STORE_SINKS_H
#define TENON_HOST_STORE_SINKS_H

#include <tenon/sink.h>

#include "host/experiment/instance.h"

typedef struct tn_sinks tn_sinks;

typedef struct tn_sinks_options {
    tn_registry *registry; /* it and the instances must outlive the sinks; the rest is borrowed for the call */
    tn_instance *const *instances;
    size_t count;
    const char *folder;
    const int64_t *lengths;     /* NULL: a new run. Of one that goes on, bytes of each file that stay, so that no record
                                   appears twice; below 0: the file is created */
    const char *const *columns; /* names of all fields that records may have */
    size_t column_count;
} tn_sinks_options;

/* Loads the sinks and opens their files. TN_E_DATA for a file that is shorter than its length. [main] */
int32_t tn_sinks_open(const tn_sinks_options *options, tn_sinks **ret, tn_error *err);
/* Bytes in the file of a sink, all flushed before. [main] */
int64_t tn_sinks_length(const tn_sinks *sinks, size_t index);
/* Hands a record to every sink. Buffered; allocates nothing. [main] */
int32_t tn_sinks_record(tn_sinks *sinks, const tn_record *record, tn_error *err);
/* Everything recorded so far is in the files after this. [main] */
int32_t tn_sinks_flush(tn_sinks *sinks, tn_error *err);
/* The same, and the files are on disk. [main] */
int32_t tn_sinks_sync(tn_sinks *sinks, tn_error *err);
/* Flushes what can be flushed. Accepts NULL. */
void tn_sinks_close(tn_sinks *sinks);

#endif
