/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/optimizer.h: links of an update chain. Interface "tenon.optimizer/0.2", behind the kinds optimizer,
 * transform, average and wrapper.
 *
 * An experiment's `update:` is a chain of links. The host drives the whole chain over cache-sized blocks of the
 * parameters: for one block it calls each link in turn, then adds d to p, so memory is passed once.
 *
 * Facts in the note's JSON text:
 *   stage    "source" | "gradient" | "rule" | "update" | "write" | "after": the order of links; one rule a parameter
 *   grain    "element" (default) | "tensor" | "matrix", "layer": see matrix.h
 *   slots    [{name, shape, init, flags, doc}]: the state, unless `plan` says otherwise (tn_slot below)
 *   rounds   [{scope, reduce, scalars, rows, columns}]: reductions before the first write; scope "tensor" or "model",
 *            which is all parameters that the link is on; reduce "sum" (default) or "max", see tn_partial. Rows and
 *            columns, with scope "tensor": how many vectors along the matrix view. 0 to 1024 each, default 0, not all 0
 *   reports  [text]: scalars that fold hands to the log
 *   signals  [text]: what else it needs: "gradient2", "taps"
 *   view     the slot that holds the evaluation view of the parameters
 *
 * A step:  begin (once a group)  ->  per round: partial over all pieces, exact sum, fold (once a scope)
 *          ->  vote (skip if a result is not finite)  ->  update over all pieces, the only writer.
 * Everything before the vote sees const state or copies, so a skipped step changes no bit. A round sees the gradient,
 * and behind a rule the step, as the links before it leave them: they run dry, on copies of a piece's slots.
 * Matrix view of a parameter: rows = shape[0], columns = the product of the rest. It needs two axes.
 */
#ifndef TENON_OPTIMIZER_H
#define TENON_OPTIMIZER_H

#include <tenon/parameter.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TN_OPTIMIZER "tenon.optimizer/0.2"

#define TN_CONSTANTS_MAX 512 /* bytes */

/* One slot of state. Shape words: "like" (the parameter), "rows", "columns", "scalar" (a tensor's), "global" (the
 * link's) and those of matrix.h. Init words: "zero", "one", "parameter". Flags, words with blanks or commas between
 * them: "nonnegative", "transient" (not saved), "offloadable", "signed" (says nothing special), "tapped" (matrix.h).
 * NULL: none. dtype: the real type; scalar and global: f64. */
typedef struct tn_slot {
    uint32_t struct_size;
    int32_t count; /* scalar and global: how many f64; 0: one */
    const char *name, *shape, *init, *flags, *doc;
} tn_slot;
TN_AT(tn_slot, name, 8);
TN_SIZE(tn_slot, 48);

struct tn_box;
struct tn_matrix;

/* Of the host, lent to `plan`. A refusal holds: it fails the link. [load] */
typedef struct tn_slot_planner {
    uint32_t struct_size;
    uint32_t reserved;
    void *host;
    int32_t (*slot)(void *host, const tn_slot *slot); /* copied; the order is the index in tn_piece.slot */
    int32_t (*scratch)(void *host, int64_t bytes);    /* for each `update`; 64-byte aligned; the largest call counts */
    int32_t (*item)(void *host, const struct tn_box *boxes, int32_t count); /* grain matrix only, see matrix.h */
} tn_slot_planner;
TN_SIZE(tn_slot_planner, 40);

/* A piece of work: n elements of one parameter from element lo of the logical tensor, in the component's real
 * type, arrays aligned to 64 bytes. `update` may be handed up to 15 elements past the tensor's end: padding
 * that no one reads. `partial` never is. Absent arrays are NULL. */
typedef struct tn_piece {
    uint32_t struct_size;
    int32_t round; /* in partial */
    const tn_parameter *parameter;
    const tn_context *context;
    const void *hyper; /* the component's hyper-parameters, schedules applied */
    const void *k;     /* the step's constants: begin's and fold's output */
    int64_t lo, n;
    double scale;  /* the gradient is scale * g */
    const void *g; /* NULL in stage "after" */
    const void *p; /* in stage "after": already updated */
    /* rule: set the step; update: change it; gradient: set the new gradient; write: holds the step, set it to what p
     * becomes, instead of scale * p + step (scale: the product of all `keep`, g: NULL); after: NULL; source: set how
     * far from p the gradient is taken again. In partial: the step so far, or NULL */
    void *d;
    void *const *slot; /* like: from element lo on; others: whole, const, as fold left them. In partial all const */
    void *scratch;
} tn_piece;
TN_AT(tn_piece, parameter, 8);
TN_AT(tn_piece, lo, 40);
TN_AT(tn_piece, scale, 56);
TN_AT(tn_piece, slot, 88);
TN_SIZE(tn_piece, 104);

/* Where partial leaves a piece's contributions; the host has set them to 0. Scalars are summed exactly (fixed point):
 * order, threads and shards do not change them; rows and columns to tolerance only. reduce "max": scalars, rows and
 * columns alike are the largest numbers of all pieces, in any order the same bits; what is below 0 counts as 0. NaN or
 * inf in any of them skips the step; of what a piece leaves in none of them, the host sees nothing: so NaN that a link
 * reads shows in a sum, or in the step, or in a slot. */
typedef struct tn_partial {
    uint32_t struct_size;
    uint32_t reserved;
    double *scalars; /* [scalars]; where the round has none, neither this nor tn_fold.sums is to be touched */
    double *rows;    /* [row][vector] from the row of element lo on; NULL where the parameter has no matrix view */
    double *columns; /* [column][vector], all columns; NULL as rows */
} tn_partial;
TN_SIZE(tn_partial, 32);

/* After a round: the results over the scope, sums rounded once. fold sets k, and writes slots that are not like-shaped:
 * copies until the step commits. At scope "model" it is called once for each clock in use, with equal copies. */
typedef struct tn_fold {
    uint32_t struct_size;
    int32_t round;
    const void *hyper;
    const tn_clock *clock;
    const tn_parameter *parameter; /* NULL at scope "model" */
    const double *sums, *rows, *columns;
    void *k;
    void *const *slot; /* whole; like-shaped ones, and at scope "model" all but global ones, are NULL */
    double *report;    /* the values that the note's `reports` names; holds the last ones */
} tn_fold;
TN_AT(tn_fold, parameter, 24);
TN_AT(tn_fold, k, 56);
TN_SIZE(tn_fold, 80);

/* [any] for begin, fold, keep, scale: pure functions of their arguments, also compiled for the device. */
typedef struct tn_optimizer {
    uint32_t struct_size;
    uint32_t constants_bytes; /* size of k, <= TN_CONSTANTS_MAX; 8-byte aligned, zeroed before begin */
    /* The slots for one parameter, where they depend on hyper-parameters or shape. NULL: the note's. [load] */
    int32_t (*plan)(const tn_parameter *parameter, const void *hyper, const tn_slot_planner *planner, tn_error *err);
    /* The step's constants for a clock. NULL: none. */
    void (*begin)(const void *hyper, const tn_clock *clock, void *k);
    /* One piece's share of a round's sums. Reads only. [piece] */
    void (*partial)(const tn_piece *piece, const tn_partial *out);
    void (*fold)(const tn_fold *fold);
    /* The work. NULL for a link that only scales or keeps. [piece] */
    void (*update)(const tn_piece *piece);
    /* stage gradient: the factor on the gradient, folded into the next read of it. NULL: 1. */
    double (*scale)(const void *k);
    /* Decoupled decay: p <- keep * p + d. NULL: 1. Factors of several links multiply. */
    double (*keep)(const void *k);
    const struct tn_matrix *matrix; /* grains matrix and layer; else NULL */
} tn_optimizer;
TN_AT(tn_optimizer, plan, 8);
TN_AT(tn_optimizer, update, 40);
TN_AT(tn_optimizer, keep, 56);
TN_SIZE(tn_optimizer, 72);

#ifdef __cplusplus
}
#endif
#endif
