/* SPDX-License-Identifier: Apache-2.0
 *
 * error.c: filling a tn_error.
 */
#include "host/base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Puts `text`, which was `length` bytes before it was cut to fit, into err->msg. */
static void put_message(tn_error *err, char *text, int length)
{
    size_t size = sizeof err->msg;
    if (length < 0)
        text[0] = 0;
    if (length >= (int)size) {
        size_t end = size - 4;
        while ((text[end] & 0xC0) == 0x80) /* not within a UTF-8 sequence */
            end--;
        memcpy(text + end, "...", 4);
    }
    memcpy(err->msg, text, strlen(text) + 1);
}

int32_t tn_error_set(tn_error *err, int32_t code, const char *format, ...)
{
    if (!err)
        return code;
    char text[sizeof err->msg];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    err->code = code;
    put_message(err, text, length);
    return code;
}

void tn_error_clear(tn_error *err)
{
    if (err)
        *err = (tn_error){.code = TN_OK};
}

int32_t tn_error_wrap(tn_error *err, int32_t code, const char *format, ...)
{
    if (!err)
        return code;
    err->msg[sizeof err->msg - 1] = '\0'; /* whoever filled it may have forgotten */
    char prefix[sizeof err->msg], text[sizeof err->msg];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    if (length >= 0) {
        length = snprintf(text, sizeof text, "%s: %s", prefix, err->msg[0] ? err->msg : "failed without a message");
        put_message(err, text, length);
    }
    err->code = code;
    return code;
}

const char *tn_status_name(int32_t code)
{
    switch (code) {
#define NAME(name, value, text)                                                                                        \
    case value:                                                                                                        \
        return #name;
        TN_STATUS_MAP(NAME)
#undef NAME
    default:
        return "unknown status";
    }
}

const char *tn_status_text(int32_t code)
{
    switch (code) {
#define TEXT(name, value, text)                                                                                        \
    case value:                                                                                                        \
        return text;
        TN_STATUS_MAP(TEXT)
#undef TEXT
    default:
        return "unknown status";
    }
}
