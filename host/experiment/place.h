/* SPDX-License-Identifier: Apache-2.0
 *
 * place.h: places in an experiment's text, and errors that show them. Re-entrant.
 */
#ifndef TENON_HOST_EXPERIMENT_PLACE_H
#define TENON_HOST_EXPERIMENT_PLACE_H

#include "host/base/error.h"

/* Text that places point into: a file, an override's value or a setting. Both members outlive the places. */
typedef struct tn_place_text {
    const char *label; /* how errors begin: "exp.yaml", "override 'data.batch=32'" */
    const char *bytes; /* may hold anything; need not end in NUL */
    size_t size;
    int32_t is_file; /* 1: errors give line and column and show the line; 0: the label says it all */
} tn_place_text;

typedef struct tn_place {
    const tn_place_text *text; /* NULL: nowhere, e.g. a default */
    size_t at;                 /* bytes from its start; TN_WHOLE: no one place of it */
} tn_place;
#define TN_WHOLE SIZE_MAX

/* Fills `err` (which may be NULL) with "FILE:LINE:COLUMN: message", the line and a caret below the place, or with
 * "LABEL: message", each part cut so that all fit; returns `code`. Columns count characters from 1. */
int32_t tn_place_error(tn_error *err, int32_t code, tn_place place, const char *format, ...) TN_PRINTF(4, 5);

/* The same for a word that is none of the n known ones: the message, then the nearest of them and all of them. */
int32_t tn_place_unknown(tn_error *err, int32_t code, tn_place place, const char *word, const char *const *known,
                         size_t n, const char *format, ...) TN_PRINTF(7, 8);

/* TN_E_MEMORY with its message. */
int32_t tn_place_no_memory(tn_error *err);

/* The line of a place, from 1. Lines end in \n, \r\n or \r. */
size_t tn_place_line(tn_place place);

/* The place that is `column` characters into a line, both from 0; the end of the text if there is no such line. */
tn_place tn_place_find(const tn_place_text *text, size_t line, size_t column);

/* Bytes of the UTF-8 character at `bytes`, of which `left` > 0 are there; 0 if it is none or a control character other
 * than tab and the ends of lines. */
size_t tn_place_character(const char *bytes, size_t left);

#endif
