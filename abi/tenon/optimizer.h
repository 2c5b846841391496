/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/optimizer.h: links of an update chain. Interface "tenon.optimizer/0.1", behind the kinds optimizer,
 * transform, average and wrapper.
 *
 * An experiment's `update:` is a chain of links. The host drives the whole chain over cache-sized blocks of the
 * parameters: for one block it calls each link in turn, then adds d to p, so memory is passed once.
 *
 * Facts in the note's JSON text:
 *   stage    "source" | "gradient" | "rule" | "update" | "write" | "after": the order of links; one rule
 *   grain    "element" (default) | "block" | "row" | "tensor" | "matrix" | "layer" | "model"
 *   slots    [{name, shape, init, flags, doc}]: the state, unless `plan` says otherwise (tn_slot below)
 *   rounds   [{scope, scalars, rows, columns}]: reductions before the first write
 *   reports  [text]: scalars that fold hands to the log
 *   signals  [text]: what else it needs: "loss", "metric", "gradient2", "hvp", "sampled-gradient", "taps"
 *   view     the slot that holds the evaluation view of the parameters
 *
 * A step:  begin (once a group)  ->  per round: partial over all pieces, exact sum, fold (once a scope)
 *          ->  vote (skip if a sum is not finite)  ->  update over all pieces, the only writer.
 * Everything before the vote sees const state, so a skipped step needs no copy and changes no bit.
 */
#ifndef TENON_OPTIMIZER_H
#define TENON_OPTIMIZER_H

#include <tenon/parameter.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TN_OPTIMIZER "tenon.optimizer/0.1"

/* The chunk grid belongs to the logical tensor: runs of TN_CHUNK elements from its element 0. All cuts (threads,
 * shards, codec blocks) fall on chunks, so a sum over a chunk has the same bits however the work is split. */
#define TN_CHUNK         4096
#define TN_CONSTANTS_MAX 512 /* bytes */

/* Clocks advance on commit only, one per parameter: an absent gradient leaves state and clock alone. */
typedef struct tn_clock {
    uint32_t struct_size;
    uint32_t reserved;
    int64_t t;       /* the update being computed for these parameters: 1, 2, ... */
    int64_t update;  /* committed updates of the run, from 0 */
    int64_t attempt; /* tried updates of the run, from 0 */
} tn_clock;
TN_AT(tn_clock, t, 8);
TN_SIZE(tn_clock, 32);

/* One slot of state. Shape words: "like" (the parameter), "rows", "columns", "scalar", "group" and "global"
 * (one scalar a group, a run). Init words: "zero", "one", "identity", "parameter". Flags, words with blanks or commas
 * between them: "nonnegative", "transient" (not saved), "offloadable", "replicated", "owner", "signed" (says nothing
 * special). NULL: none. dtype: the real type. */
typedef struct tn_slot {
    uint32_t struct_size;
    uint32_t reserved;
    const char *name, *shape, *init, *flags, *doc;
} tn_slot;
TN_AT(tn_slot, name, 8);
TN_SIZE(tn_slot, 48);

/* Of the host, lent to `plan`. A refusal holds: it fails the link. [load] */
typedef struct tn_slot_planner {
    uint32_t struct_size;
    uint32_t reserved;
    void *host;
    int32_t (*slot)(void *host, const tn_slot *slot); /* copied; the order is the index in tn_piece.slot */
    int32_t (*scratch)(void *host, int64_t bytes);    /* for each `update`; 64-byte aligned; the largest call counts */
} tn_slot_planner;
TN_SIZE(tn_slot_planner, 32);

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
     * becomes, instead of scale * p + step (scale: the product of all `keep`, g: NULL); after: NULL */
    void *d;
    void *const *slot; /* const state in partial */
    void *scratch;
} tn_piece;
TN_AT(tn_piece, parameter, 8);
TN_AT(tn_piece, lo, 40);
TN_AT(tn_piece, scale, 56);
TN_AT(tn_piece, slot, 88);
TN_SIZE(tn_piece, 104);

/* Where partial leaves a piece's contributions; the host has set them to 0. Scalars are summed exactly
 * (fixed point), so order, threads and shards do not change them; rows and columns to tolerance only. */
typedef struct tn_partial {
    uint32_t struct_size;
    uint32_t reserved;
    double *scalars;
    double *rows;    /* of the piece's first row on */
    double *columns; /* all columns */
} tn_partial;
TN_SIZE(tn_partial, 32);

/* [any] for begin, keep, scale: pure functions of their arguments, also compiled for the device. */
typedef struct tn_optimizer {
    uint32_t struct_size;
    uint32_t constants_bytes; /* size of k, <= TN_CONSTANTS_MAX; 8-byte aligned, zeroed before begin */
    /* The slots for one parameter, where they depend on hyper-parameters or shape. NULL: the note's. [load] */
    int32_t (*plan)(const tn_parameter *parameter, const void *hyper, const tn_slot_planner *planner, tn_error *err);
    /* The step's constants for a (group, clock). NULL: none. */
    void (*begin)(const void *hyper, const tn_clock *clock, void *k);
    /* One piece's share of a round's sums. Reads only. [piece] */
    void (*partial)(const tn_piece *piece, const tn_partial *out);
    /* After a round: sums (the round's scalars over the scope, rounded once) into k; `report` takes the values that the
     * note's `reports` names, and holds the last ones. [any] */
    void (*fold)(const void *hyper, const tn_clock *clock, int32_t round, const double *sums, void *k, double *report);
    /* The work. NULL for a link that only scales or keeps. [piece] */
    void (*update)(const tn_piece *piece);
    /* stage gradient: the factor on the gradient, folded into the next read of it. NULL: 1. */
    double (*scale)(const void *k);
    /* Decoupled decay: p <- keep * p + d. NULL: 1. Factors of several links multiply. */
    double (*keep)(const void *k);
} tn_optimizer;
TN_AT(tn_optimizer, plan, 8);
TN_AT(tn_optimizer, update, 40);
TN_AT(tn_optimizer, keep, 56);
TN_SIZE(tn_optimizer, 64);

#ifdef __cplusplus
}
#endif
#endif
