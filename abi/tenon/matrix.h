/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/matrix.h: update rules that need a matrix whole. A tn_optimizer with grain "matrix" or "layer" and this table.
 *
 * `update` runs over pieces as always and leaves in d what the matrix step starts from, such as the momentum. Then the
 * host brings each item together on the one process that owns it and calls `apply`, which replaces d. So like-shaped
 * state is cut and sharded as for any rule; only d travels. Both come after the vote.
 *
 * Items. Grain matrix: what `plan` asked for with tn_slot_planner.item, or one item, the whole matrix view. A
 * parameter without a matrix view is refused: the experiment routes it to another rule with `on:`. Grain layer: one
 * item a layer that offers taps: the weight's matrix view, and the bias, if there is one, as one more column at its
 * end. Items of equal shape may come as one batch.
 *
 * Slot shapes of an item, in the real type: "item" (rows x columns), "left" (rows x rows), "right" (columns x columns).
 * They lie with the owner.
 *
 * Taps. A layer whose note says "tap": "linear" is y = x W^T + b in its parameters 0 and 1. When `tapping` wants it,
 * the host runs the window's backward once more and hands `tap` each micro-batch's x and dy, for slots with the flag
 * "tapped": set to 0 before the window, summed over its micro-batches, and over processes before `apply`.
 * Source: K-FAC, Martens and Grosse 2015, arXiv:1503.05671; Muon, Jordan et al. 2024.
 */
#ifndef TENON_MATRIX_H
#define TENON_MATRIX_H

#include <tenon/backend.h>
#include <tenon/optimizer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* FROZEN. A block of a matrix view. The boxes of an item have equal columns and stand one below the other. */
typedef struct tn_box {
    int64_t row, rows, column, columns;
} tn_box;
TN_SIZE(tn_box, 32);

typedef struct tn_matrix_call {
    uint32_t struct_size;
    int32_t count;         /* items: one after the other in d and in each slot */
    int64_t rows, columns; /* of each */
    const void *hyper;
    const void *k;
    const tn_clock *clock;
    const tn_context *context;
    const tn_compute *compute;     /* products over the host's threads */
    const tn_parameter *parameter; /* of the first item: of grain layer the weight */
    void *d;                       /* [count][rows][columns]: what `update` left, to be replaced by the step */
    void *const *slot;             /* item, left, right; others NULL */
    void *workspace;               /* count times what `workspace` asked for; 64-byte aligned */
    double tapped;                 /* samples, over all processes, in the tapped slots; 0: no taps this time */
} tn_matrix_call;
TN_AT(tn_matrix_call, hyper, 24);
TN_AT(tn_matrix_call, d, 72);
TN_AT(tn_matrix_call, tapped, 96);
TN_SIZE(tn_matrix_call, 104);

typedef struct tn_tap_call {
    uint32_t struct_size;
    int32_t bias; /* 1: the item's last column is the bias: x stands for x with a 1 appended */
    const void *hyper;
    const tn_context *context;
    const tn_compute *compute;
    int64_t n;           /* samples */
    const tn_tensor *x;  /* [n, columns without the bias], real type */
    const tn_tensor *dy; /* [n, rows]: `seed` times the gradient of each sample's loss */
    double seed;
    void *const *slot; /* tapped ones, to be added to; others NULL */
    void *workspace;   /* what `workspace` asked for */
} tn_tap_call;
TN_AT(tn_tap_call, n, 32);
TN_AT(tn_tap_call, seed, 56);
TN_SIZE(tn_tap_call, 80);

#define TN_TAP_NONE    0
#define TN_TAP_SAMPLED 1 /* targets drawn from the model's distribution (tn_loss.sample_targets): the Fisher matrix */
#define TN_TAP_TARGETS 2 /* the data's targets: the empirical Fisher matrix */

typedef struct tn_matrix {
    uint32_t struct_size;
    uint32_t reserved;
    /* Scratch for one item, in bytes. NULL: none. [load] */
    int64_t (*workspace)(const void *hyper, int64_t rows, int64_t columns);
    void (*apply)(const tn_matrix_call *call); /* [main] */
    /* Grain layer: which taps the update of this clock wants, TN_TAP_*. NULL: none. [any] */
    int32_t (*tapping)(const void *hyper, const tn_clock *clock);
    void (*tap)(const tn_tap_call *call); /* [main] */
} tn_matrix;
TN_AT(tn_matrix, apply, 16);
TN_SIZE(tn_matrix, 40);

#ifdef __cplusplus
}
#endif
#endif
