/* SPDX-License-Identifier: Apache-2.0
 *
 * runlog.h: the log of a run, log.txt in its folder: every line that goes to the log, with its time. What is said
 * before there is a folder is kept until there is one. A line that can not be written is lost: a log ends no run.
 */
#ifndef TENON_HOST_STORE_RUNLOG_H
#define TENON_HOST_STORE_RUNLOG_H

#include "host/base/log.h"

typedef struct tn_runlog tn_runlog;

#define TN_RUNLOG_FILE "log.txt"

/* Lines are handed on to `next`, which is copied. Close with tn_runlog_close. TN_E_MEMORY. [main] */
int32_t tn_runlog_open(const tn_log *next, tn_runlog **ret, tn_error *err);
/* The log to write to, from any thread; lives as long as the run's. */
tn_log tn_runlog_log(tn_runlog *runlog);
/* Appends to `folder`/log.txt from now on, beginning with what was kept, and holds that file's lock until the log is
 * closed. At most once. TN_E_IO, also where another holds the lock; TN_E_MEMORY. [main] */
int32_t tn_runlog_put_in(tn_runlog *runlog, const char *folder, tn_error *err);
/* From now on lines go to the file only. [main] */
void tn_runlog_mute(tn_runlog *runlog);
/* Accepts NULL. No thread may write any more. */
void tn_runlog_close(tn_runlog *runlog);

#endif
