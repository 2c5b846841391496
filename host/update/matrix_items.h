/* SPDX-License-Identifier: Apache-2.0
 *
 * matrix_items.h: what matrix.c, which makes the items, and matrix_step.c, which moves them, share.
 */
#ifndef TENON_HOST_UPDATE_MATRIX_ITEMS_H
#define TENON_HOST_UPDATE_MATRIX_ITEMS_H

#include "host/update/internal.h"
#include "host/update/matrix.h"

/* What one process holds of a parameter. */
typedef struct tn_held {
    int64_t lo, n;
    int32_t first; /* 1: of the processes that hold this slice it has the lowest rank */
} tn_held;

typedef struct tn_item_slot {
    char *name;
    const char *shape; /* "item", "left" or "right" */
    int32_t index;     /* in tn_matrix_call.slot */
    int32_t ones, persistent, tapped;
} tn_item_slot;

/* What `plan` said of one parameter. */
typedef struct tn_item_plan {
    tn_item_slot slot[TN_CHAIN_SLOTS];
    int32_t count;
} tn_item_plan;

typedef struct tn_item {
    int64_t weight, bias; /* parameters; bias -1: none, else one more column */
    tn_box *boxes;
    int32_t box_count;
    int32_t planned;       /* 0: the default */
    int64_t number, of;    /* the number-th of so many of its parameter */
    int64_t rows, columns; /* with the bias */
    int64_t plan;          /* the first parameter whose plan is the same */
    int32_t owner;
    int32_t wants;  /* 1: taps, in this window */
    double samples; /* tapped so far; after the sum: over all processes */
} tn_item;

/* Items of one shape, plan and owner, next to each other in `list`, d and slots. */
typedef struct tn_batch {
    size_t first, count;
    int32_t owner;
    const tn_item_plan *plan;
    char *d;                    /* [count][rows][columns]; NULL: not the owner */
    char *slot[TN_CHAIN_SLOTS]; /* by place in the plan; NULL: not held here */
} tn_batch;

struct tn_items {
    tn_items_options options;
    tn_matrix table;
    tn_compute compute; /* of options.compute */
    size_t real;        /* bytes */
    int32_t rank, size;
    tn_held *held;      /* [size][parameters] */
    int64_t *bias;      /* [parameters]: of grain layer: the bias that goes with a weight; -1: none */
    tn_item_plan *plan; /* [parameters] */
    tn_item *list;
    size_t count, capacity;

    tn_batch *batches;
    size_t batch_count;
    char *d, *message; /* of own batches; of one batch: NULL with one process */
    void *workspace;
    double *samples; /* [count] for their sum */
    tn_chain_slot *slots;
    size_t slot_count;
    int64_t bytes;
    tn_error failed; /* of a tap */
};

static inline const tn_held *tn_held_by(const tn_items *s, int32_t rank, int64_t parameter)
{
    return &s->held[(int64_t)rank * s->options.parameters->count + parameter];
}

/* Elements of a slot of one item. */
static inline int64_t tn_item_extent(const tn_item *item, const char *shape)
{
    return shape[0] == 'i' ? item->rows * item->columns
                           : (shape[0] == 'l' ? item->rows * item->rows : item->columns * item->columns);
}

#endif
