/* SPDX-License-Identifier: Apache-2.0
 *
 * minimizer.h: drives a tn_minimizer (tenon/minimizer.h) as the rule of a chain. It does the whole step but for the
 * links behind the rule, the clocks and the records, which are the chain's.
 */
#ifndef TENON_HOST_UPDATE_MINIMIZER_H
#define TENON_HOST_UPDATE_MINIMIZER_H

#include <tenon/minimizer.h>

#include "host/update/chain.h"

/* A coroutine that makes more requests than this in one step never ends it. */
#define TN_MINIMIZER_ASKS 10000

typedef struct tn_minimizer_link tn_minimizer_link;

/* 1 if the component is driven here and not as a tn_optimizer. Any thread. */
int tn_is_minimizer(const tn_instance *instance);

/* Loads the table, plans and allocates memory, vectors and a backup of p. `options` is copied, what it points to is
 * borrowed and must outlive the link; p, g and present may change between steps. TN_E_PLUGIN for a plugin that plans
 * wrongly; TN_E_UNSUPPORTED for slices of parameters, codecs, `on:`, or signals that are not offered; TN_E_MEMORY. Free
 * *ret with tn_minimizer_close. [main] */
int32_t tn_minimizer_open(const tn_chain_options *options, const tn_instance *instance, tn_minimizer_link **ret,
                          tn_error *err);
/* Accepts NULL. */
void tn_minimizer_close(tn_minimizer_link *link);

/* One step, from g times step->scale, the gradient of the mean loss step->loss at p. All parameters must be present.
 * *ret_committed 1: p is the result. 0: p and memory have their bits of before, because loss or gradient were not
 * finite, or the rule rejected. report: the values that the note's `reports` names, or NULL where it names none; kept
 * where the rule sets none. On failure p and memory have their bits of before: TN_E_PLUGIN for a wrong or endless
 * request, TN_E_INVALID for absent gradients, or what a signal returned. Each signal is called with p as the rule moved
 * it, and must leave g to be read with the same scale. Allocates nothing. [main] */
int32_t tn_minimizer_step(tn_minimizer_link *link, const tn_step *step, const tn_clock *clock, double *report,
                          int32_t *ret_committed, tn_error *err);

/* Whether the last step ended because the rule rejected it. */
int32_t tn_minimizer_rejected(const tn_minimizer_link *link);

/* State for checkpoints: one entry for each slot and parameter, then the memory (f64, "global", parameter -1). */
size_t tn_minimizer_slot_count(const tn_minimizer_link *link);
void tn_minimizer_slot_at(const tn_minimizer_link *link, size_t index, tn_chain_slot *ret);
/* Bytes held, padding and the backup included. */
int64_t tn_minimizer_bytes(const tn_minimizer_link *link);
/* As tn_chain_check_plan. [main] */
int32_t tn_minimizer_check_plan(const tn_minimizer_link *link, tn_error *err);

#endif
