/* SPDX-License-Identifier: Apache-2.0
 *
 * log.c: where the host's messages go.
 */
#include "host/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void tn_log_write(const tn_log *log, int32_t level, const char *format, ...)
{
    if (!log || !log->write)
        return;
    char line[TN_LOG_LINE];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    if (length < 0)
        return;
    if (length >= (int)sizeof line)
        memcpy(line + sizeof line - 4, "...", 4);
    log->write(log->user, level, line);
}
