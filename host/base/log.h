/* SPDX-License-Identifier: Apache-2.0
 *
 * log.h: where the host's messages go. The host's library code writes here and nowhere else.
 */
#ifndef TENON_HOST_BASE_LOG_H
#define TENON_HOST_BASE_LOG_H

#include "host/base/error.h"

#define TN_LOG_DEBUG   0 /* the levels of tn_services.log */
#define TN_LOG_INFO    1
#define TN_LOG_WARNING 2

/* `write` gets one line without its newline, borrowed for the call; it may be called by any thread. */
typedef struct tn_log {
    void (*write)(void *user, int32_t level, const char *line);
    void *user;
} tn_log;

/* Formats a line (cut after TN_LOG_LINE - 1 bytes, then ending in "...") and hands it to `log`. `log` or log->write
 * NULL: silent. Allocates nothing. Any thread if log->write allows it. */
#define TN_LOG_LINE 2048
void tn_log_write(const tn_log *log, int32_t level, const char *format, ...) TN_PRINTF(3, 4);

#endif
