/* SPDX-License-Identifier: Apache-2.0
 *
 * error.h: filling a tn_error (tenon/base.h). All functions are re-entrant: any thread, any time.
 */
#ifndef TENON_HOST_ERROR_H
#define TENON_HOST_ERROR_H

#include <tenon/base.h>

#define TN_PRINTF(at, first) __attribute__((format(printf, at, first)))

/* Sets code and message and returns `code`. `err` may be NULL. A message that is too long ends in "...". The
 * arguments may point into err->msg. */
int32_t tn_error_set(tn_error *err, int32_t code, const char *format, ...) TN_PRINTF(3, 4);

/* Puts the formatted text and ": " before the message that is there; keeps and returns err->code. With err NULL the
 * code is not known and TN_E_INTERNAL is returned: a caller that wraps passes an error of its own down. */
int32_t tn_error_wrap(tn_error *err, const char *format, ...) TN_PRINTF(2, 3);

/* The name ("TN_E_IO") and the meaning ("the system refused ...") of a status; static text, never NULL. */
const char *tn_status_name(int32_t code);
const char *tn_status_text(int32_t code);

#endif
