/* SPDX-License-Identifier: Apache-2.0
 *
 * text.h: a growable string, and comparing names. A tn_text belongs to one thread at a time; the comparisons may be
 * called by any thread.
 */
#ifndef TENON_HOST_BASE_TEXT_H
#define TENON_HOST_BASE_TEXT_H

#include "host/base/error.h"

/* Begins as {0}. `data` is NULL until something is added, then ends in NUL at data[size]. Once an addition failed for
 * want of memory, `failed` is 1, what was there stays and further additions do nothing. */
typedef struct tn_text {
    char *data;
    size_t size;     /* bytes, without the NUL */
    size_t capacity; /* bytes of the block */
    int failed;
} tn_text;

void tn_text_add(tn_text *text, const char *string);
void tn_text_addn(tn_text *text, const char *bytes, size_t size);
void tn_text_addf(tn_text *text, const char *format, ...) TN_PRINTF(2, 3);
void tn_text_char(tn_text *text, char c);

/* Adds `utf8` as a JSON string with its quotes. Each byte that is not part of valid UTF-8 becomes \ufffd. */
void tn_text_json(tn_text *text, const char *utf8);

/* Adds the shortest decimal that reads back as the same bits: see tn_print_real. */
void tn_text_real(tn_text *text, double value);

/* TN_OK, or TN_E_MEMORY if an addition failed. */
int32_t tn_text_status(const tn_text *text, tn_error *err);

/* The text so far: data, or "" when nothing was added. Valid until the next addition. */
const char *tn_text_string(const tn_text *text);

/* Hands the string over: the caller frees it with tn_free, `text` is empty again. NULL if an addition failed or there
 * is no memory (then `text` still has to be freed); an empty text gives "". */
char *tn_text_take(tn_text *text);

/* Frees the string and makes `text` empty, `failed` 0. */
void tn_text_free(tn_text *text);

/* How many insertions, deletions, substitutions and swaps of neighbours (each place edited once: optimal string
 * alignment) lead from a to b, in bytes. SIZE_MAX if either is longer than TN_DISTANCE_MAX bytes. */
#define TN_DISTANCE_MAX 127
size_t tn_distance(const char *a, const char *b);

/* The first of the n words with the least distance to `word`; NULL if that is over max(1, strlen(word) / 3). Entries
 * may be NULL. The result is one of `words`. '_' and '-' count as the same letter. */
const char *tn_nearest(const char *word, const char *const *words, size_t n);

/* 1 if the names are the same, '_' and '-' being the same letter. */
int tn_name_equal(const char *a, const char *b);

#endif
