/* SPDX-License-Identifier: Apache-2.0
 *
 * motion_link.h: one link of an update chain by itself: what motion_plan.c lays out and motion_link.c drives.
 */
#ifndef TENON_HOST_CHECK_MOTION_LINK_H
#define TENON_HOST_CHECK_MOTION_LINK_H

#include <tenon/matrix.h>

#include "host/check/motion.h"
#include "host/base/compute.h"
#include "host/plugin/slot.h"

#define LINK_SLOTS  16
#define LINK_ROUNDS 8
#define LINK_BOXES  16

enum { LINK_SOURCE, LINK_GRADIENT, LINK_RULE, LINK_UPDATE, LINK_WRITE, LINK_AFTER };

typedef struct link_slot {
    char name[64];
    char init[16];
    int32_t shape, flags, count; /* TN_SHAPE_*, TN_SLOT_*, f64 of scalar and global */
    int32_t is_shared;           /* global: the memory is another cell's */
    size_t bytes;                /* without padding */
    char *data;
    char *copy; /* what is whole: what fold writes, the state from the commit on */
} link_slot;

typedef struct link_round {
    int32_t tensor, max, scalars, rows, columns;
} link_round;

/* A parameter. Arrays are padded to 16 elements. */
typedef struct link_cell {
    tn_parameter parameter, slice[2];
    int64_t part_rows[3];
    char name[32], layer[32];
    int64_t index, n, padded, rows, columns; /* of the matrix view; 0 and 0: none */
    int32_t slices;
    char *p, *g, *d;
    char *step; /* what a rule before the link would have left in d */
    link_slot slot[LINK_SLOTS];
    int32_t slots, items;
    char *k;                               /* perhaps of all */
    double *sums, *row_sums, *column_sums; /* of a round */
} link_cell;

/* A piece of work: of `partial` whole chunks, of `update` what the options say. */
typedef struct link_piece {
    link_cell *cell;
    int64_t lo, n;
    int64_t row, rows;                        /* of the matrix view that it touches */
    double *scalars, *sum_rows, *sum_columns; /* of partial */
} link_piece;

/* A matrix that is brought together; its slots are numbered as its weight's. */
typedef struct link_item {
    link_cell *weight, *bias;
    tn_box box[LINK_BOXES];
    int32_t boxes;
    int64_t rows, columns;
    char *slot[LINK_SLOTS];
    double tapped;
} link_item;

typedef struct link_work {
    tn_motion *m;
    tn_optimizer table;
    tn_matrix matrix;
    tn_backend backend;
    tn_compute_host compute;
    uint32_t real;
    size_t each; /* bytes of the real type */
    int32_t stage, is_matrix, is_layer, per_tensor, has_partial;
    link_round round[LINK_ROUNDS];
    int32_t rounds;
    link_cell *cells;
    int64_t count;
    link_piece *chunks, *pieces;
    int64_t chunk_count, piece_count;
    link_item *items;
    size_t item_count, item_capacity;
    int64_t scratch;
    char *k;
    size_t k_bytes;
    double *report;
    int64_t reports;
    int32_t at_round;
    void **blocks; /* all that is to be freed */
    size_t block_count, block_capacity;
} link_work;

/* motion_plan.c: the parameters, the plugin's plan for them, memory. */
int32_t tn_motion_link_plan(link_work *link, tn_error *err);
void *tn_motion_link_block(link_work *link, size_t bytes);
/* Bytes of a slot of an item. */
size_t tn_motion_item_bytes(const link_work *link, const link_item *item, int32_t shape);

/* After a step with options.mix: the first parameter that shows nothing of it, neither in a sum nor in its numbers and
 * slots; NULL: all do. */
const char *tn_motion_link_lost(const tn_motion *motion);
/* True if it has what only a rule of grain matrix or layer has. */
bool tn_motion_link_is_matrix(const tn_motion *motion);

#endif
