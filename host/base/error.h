/* SPDX-License-Identifier: Apache-2.0
 *
 * error.h: filling a tn_error (tenon/base.h). All functions are re-entrant: any thread, any time.
 */
#ifndef TENON_HOST_BASE_ERROR_H
#define TENON_HOST_BASE_ERROR_H

#include <tenon/base.h>

#define TN_PRINTF(at, first) __attribute__((format(printf, at, first)))

/* Sets code and message and returns `code`. `err` may be NULL. A message that is too long ends in "...". The
 * arguments may point into err->msg. */
int32_t tn_error_set(tn_error *err, int32_t code, const char *format, ...) TN_PRINTF(3, 4);

/* Empties an error before it is lent to code that may fail without filling it. `err` may be NULL. */
void tn_error_clear(tn_error *err);

/* Sets the code, puts the formatted text and ": " before the message that is there, or before "failed without a
 * message", and returns `code`, which wins over what err held. `err` may be NULL. */
int32_t tn_error_wrap(tn_error *err, int32_t code, const char *format, ...) TN_PRINTF(3, 4);

/* The name ("TN_E_IO") and the meaning ("the system refused ...") of a status; static text, never NULL. */
const char *tn_status_name(int32_t code);
const char *tn_status_text(int32_t code);

#endif
