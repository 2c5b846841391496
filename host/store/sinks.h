/* SPDX-License-Identifier: Apache-2.0
 *
 * sinks.h: the sinks of a run: each writes its records to its file in the run folder, through one buffer.
 */
#ifndef TENON_HOST_STORE_SINKS_H
#define TENON_HOST_STORE_SINKS_H

#include <tenon/sink.h>

#include "host/experiment/instance.h"

typedef struct tn_sinks tn_sinks;

/* Loads the sinks and creates their files in `folder`. [main] */
int32_t tn_sinks_open(tn_registry *registry, tn_instance *const *instances, size_t count, const char *folder,
                      tn_sinks **ret, tn_error *err);
/* The same for a run that goes on: each file is cut back to `lengths` bytes, so that no record appears twice; one of a
 * length below 0 is created. TN_E_DATA for a file that is shorter. [main] */
int32_t tn_sinks_continue(tn_registry *registry, tn_instance *const *instances, size_t count, const char *folder,
                          const int64_t *lengths, tn_sinks **ret, tn_error *err);
/* Bytes in the file of a sink, all flushed before. [main] */
int64_t tn_sinks_length(const tn_sinks *sinks, size_t index);
/* Hands a record to every sink. Buffered; allocates nothing. [main] */
int32_t tn_sinks_record(tn_sinks *sinks, const tn_record *record, tn_error *err);
/* Everything recorded so far is in the files after this. [main] */
int32_t tn_sinks_flush(tn_sinks *sinks, tn_error *err);
/* Flushes what can be flushed. Accepts NULL. */
void tn_sinks_close(tn_sinks *sinks);

#endif
