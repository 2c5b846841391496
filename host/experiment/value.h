/* SPDX-License-Identifier: Apache-2.0
 *
 * value.h: one row's value, from text to the hyper struct and back. All row types but `component`. The host's own keys
 * (train.epochs, data.batch, ...) are rows too.
 *
 * A `value` below is a row's place in a struct, row->size bytes: double, int64_t, char * (owned) or tn_integers
 * (values owned); all zero bytes before the first value. Thread rule: re-entrant.
 */
#ifndef TENON_HOST_EXPERIMENT_VALUE_H
#define TENON_HOST_EXPERIMENT_VALUE_H

#include "host/base/text.h"
#include "host/experiment/yaml.h"
#include "host/plugin/info.h"

/* Reads a value as an experiment writes it. `owner` is for messages: "optimizer 'adamw'", "train"; "": none.
 * TN_E_INVALID with the place if it is of another type or out of range, TN_E_MEMORY; then nothing changes. */
int32_t tn_value_set(const tn_row *row, const char *owner, const tn_yaml *node, void *value, tn_error *err);

/* The row's default, which is written as authors may write it (.5 for 0.5). */
int32_t tn_value_default(const tn_row *row, const char *owner, void *value, tn_error *err);

/* Adds the value as YAML flow that tn_value_set reads back to the same bits. */
void tn_value_print(const tn_row *row, const void *value, tn_text *text);

/* Frees what the value owns and zeroes it. */
void tn_value_free(const tn_row *row, void *value);

/* What the row takes, into `out`: "a number in [0, 1)", "true or false". Cut to fit. */
#define TN_NEEDS_MAX 256
void tn_value_needs(const tn_row *row, char out[TN_NEEDS_MAX]);

/* What stands there, into `out`: "'1e-3'", "the text \"1e-3\"", "a list", "nothing". Cut to fit. */
#define TN_FOUND_MAX 96
void tn_value_found(const tn_yaml *node, char out[TN_FOUND_MAX]);

#endif
