/* SPDX-License-Identifier: Apache-2.0
 *
 * matrix.h: the items of a link of grain matrix or layer (tenon/matrix.h): what they are, who owns them, their state,
 * and the step that brings each together with its owner.
 *
 * The chain creates them once it knows which parameters the link is on, passes on what `plan` says, settles them, and
 * then for each committed step hands over the whole of d after the link's `update`. Processes exchange copies only, so
 * the bits do not depend on how parameters are cut or who owns what; taps are sums and do.
 *
 * With several processes all call the same functions in the same order, with the same plans, presence and clocks.
 */
#ifndef TENON_HOST_UPDATE_MATRIX_H
#define TENON_HOST_UPDATE_MATRIX_H

#include "host/parallel/comm.h"
#include "host/update/chain.h"

#include <tenon/matrix.h>

typedef struct tn_items tn_items;

/* All pointers must outlive the items. */
typedef struct tn_items_options {
    const char *path;          /* of the link, for messages */
    int32_t layer;             /* the grain: 0 matrix, 1 layer */
    const tn_matrix *table;    /* as the plugin has it */
    const void *hyper;         /* read at each step */
    const tn_context *context; /* of the link */
    const tn_parameters *parameters;
    const uint8_t *on;        /* [parameters]: 1 where the link is active; NULL: on all */
    tn_compute_host *compute; /* its failures are taken; NULL is refused */
    tn_comm *comm;            /* NULL: one process */
} tn_items_options;

/* Refuses parameters that are no matrix, layers without their weight, slices that do not cover a parameter; call it
 * before `plan`. TN_E_INVALID, TN_E_PLUGIN, TN_E_UNSUPPORTED, TN_E_MEMORY, and what comm says. The caller frees with
 * tn_items_free. [main] */
int32_t tn_items_create(const tn_items_options *options, tn_items **ret, tn_error *err);
/* Accepts NULL. */
void tn_items_free(tn_items *items);

/* tn_slot_planner.item for a parameter: boxes are copied. Refuses empty boxes, those beyond the matrix view, unequal
 * columns, and grain layer. [main] */
int32_t tn_items_add(tn_items *items, int64_t parameter, const tn_box *boxes, int32_t count, tn_error *err);
/* 1 for the words "item", "left" and "right". */
int tn_items_shape(const char *shape);
/* tn_slot_planner.slot for a slot of such a shape: `index` is its place among the parameter's slots (< TN_CHAIN_SLOTS).
 * Of a layer the weight's plan counts; the bias's is passed over. Refuses other init words than zero and one, flags it
 * does not know, "tapped" on grain matrix. [main] */
int32_t tn_items_slot(tn_items *items, int64_t parameter, int32_t index, const tn_slot *slot, tn_error *err);
/* After all plans: default items, that boxes cover each matrix view once, owners, state. [main] */
int32_t tn_items_settle(tn_items *items, tn_error *err);
/* 1 if both planned the same items and slots; either may be unsettled: to compare a second plan with the first. */
int tn_items_same(const tn_items *a, const tn_items *b);

typedef struct tn_items_step {
    void *d; /* the layout's elements of the real type: what `update` left, replaced by the step */
    void *user;
    const tn_clock *(*clock)(void *user, int64_t parameter); /* of present ones; equal pointers for equal clocks */
    const void *(*k)(void *user, int64_t parameter);         /* likewise */
} tn_items_step;

/* Sums taps over the processes, brings d together, applies, spreads the results. Items of absent parameters are left
 * alone; of an absent bias too, its column is 0. Allocates nothing. Fails where comm, a product or a tap before it
 * does, on all processes together; d and the items' state are then rubbish. [main] */
int32_t tn_items_apply(tn_items *items, const tn_items_step *step, tn_error *err);

/* Which taps an item whose parameter has this clock wants, TN_TAP_*. [any] */
int32_t tn_items_wants(const tn_items *items, const tn_clock *clock);
/* Before a window: which taps the update wants that follows `clocks` (tn_chain_clocks), TN_TAP_*; sets the tapped
 * slots to 0. Forgets taps of a window whose update was skipped. `kind` is what links before this one want of it; an
 * item that wants another fails the next tn_items_apply. [main] */
int32_t tn_items_tapping(tn_items *items, const int64_t *clocks, int64_t update, int64_t attempt, int32_t kind);
/* One micro-batch of a layer, as tn_chain_tap. Passed over where no item of the link has this weight, or it wanted
 * none. A tensor of the wrong shape fails the next tn_items_apply. [main] */
void tn_items_tap(tn_items *items, int64_t weight, const tn_tensor *x, const tn_tensor *dy, double seed);

/* State that lies with this process, for checkpoints: all but `link` is set. A slot of the j-th of several items of a
 * parameter is named "slot.j". */
size_t tn_items_slot_count(const tn_items *items);
void tn_items_slot_at(const tn_items *items, size_t index, tn_chain_slot *ret);
/* Bytes of that state. */
int64_t tn_items_bytes(const tn_items *items);

#endif
