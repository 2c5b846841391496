/* SPDX-License-Identifier: Apache-2.0
 *
 * expression.h: arithmetic in an experiment's text:  + - * / ( )  numbers, names, pi. Everything here is re-entrant and
 * allocates nothing.
 */
#ifndef TENON_HOST_FOREIGN_EXPRESSION_H
#define TENON_HOST_FOREIGN_EXPRESSION_H

#include "host/base/error.h"

#define TN_EXPRESSION_MOST  32 /* numbers, names and operators */
#define TN_EXPRESSION_NAMES 10
#define TN_WORD_MAX         32 /* bytes of a name, with its NUL */

/* Operations in the order in which a stack machine does them. */
typedef struct tn_expression {
    int32_t count;   /* 0: none was given */
    int32_t is_used; /* bit i: name i is in it */
    struct {
        int32_t kind; /* '#' a number, '$' a name, '-' to '/' of two, '~' the negative */
        int32_t name;
        double number;
    } step[TN_EXPRESSION_MOST];
} tn_expression;

/* Reads the expression that begins at text[*at], as far as it goes, and moves *at behind it. `names` ends in NULL and
 * may be NULL. TN_E_INVALID; then *at is the byte at fault and *ret is not touched. */
int32_t tn_expression_parse(const char *text, size_t *at, const char *const *names, tn_expression *ret, tn_error *err);

/* Blanks and tabs from text[at] on are passed over. */
size_t tn_skip_blanks(const char *text, size_t at);
/* Bytes of the word (a letter or '_', then letters, digits, '_') at `text`; 0: there is none. */
size_t tn_word_length(const char *text);

/* values[i] is that of name i. */
double tn_expression_value(const tn_expression *expression, const double *values);

/* out[i] from values[name][i], i < n <= TN_EXPRESSION_RUN, each operation in the type of the arrays. */
#define TN_EXPRESSION_RUN 256
void tn_expression_f32(const tn_expression *expression, int64_t n, const float *const *values, float *out);
void tn_expression_f64(const tn_expression *expression, int64_t n, const double *const *values, double *out);

#endif
