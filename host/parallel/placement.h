/* SPDX-License-Identifier: Apache-2.0
 *
 * placement.h: from where parameters lie to how each layer runs and which collectives go where. Pure.
 *
 * A tensor between layers lies on the processes of a tensor group in one of three ways: whole on each, a part of its
 * last extent on each, or as a sum that is owed. What a layer leaves and what the next one needs differ: then a
 * collective goes between, and its conjugate in backward, where gradients flow the other way:
 *
 *   forward                                    backward, on the gradient
 *   partial -> whole: all-reduce               whole: nothing
 *   whole -> whole into a split layer: nothing partial -> whole: all-reduce
 *   whole -> part: slice                       part -> whole: all-gather
 *   part -> whole: all-gather                  partial -> part: reduce-scatter; whole -> part: slice
 */
#ifndef TENON_HOST_PARALLEL_PLACEMENT_H
#define TENON_HOST_PARALLEL_PLACEMENT_H

#include <jansson.h>

#include <tenon/parallel.h>
#include <tenon/strategy.h>

#include "host/base/error.h"

#define TN_FLOW_PORTS 8

/* Besides TN_ALL_REDUCE, TN_REDUCE_SCATTER, TN_ALL_GATHER. */
#define TN_FLOW_NONE  (-1)
#define TN_FLOW_SLICE (-2) /* takes its part; moves nothing */

/* How a layer is split; all zero: not at all. x, y: TN_PLACE_*. */
typedef struct tn_split {
    int32_t split, x, y;
    int32_t parameters;
    int32_t axis[TN_FLOW_PORTS]; /* of each parameter; -1: whole, added once */
    const json_t *rows;          /* names of hyper-parameters to divide; NULL: none */
} tn_split;

/* Which form of the fact `split` (NULL: none) the rows for parameters [first, first + count) mean. Refuses rows that
 * no form has, naming the layer. `forms` must outlive *ret. [load] */
int32_t tn_split_choose(const char *layer, const json_t *forms, const tn_placement *rows, int64_t row_count,
                        int32_t first, int32_t count, tn_split *ret, tn_error *err);

/* A node as far as placements matter; node 0 is the batch, whole everywhere. */
typedef struct tn_flow_node {
    int32_t inputs, input[TN_FLOW_PORTS]; /* earlier nodes */
    int32_t elementwise;                  /* takes whole tensors or parts alike */
    int32_t needs_gradient;
    tn_split split;
} tn_flow_node;

typedef struct tn_flow {
    int32_t y;                       /* TN_PLACE_*: what later nodes find */
    int32_t after;                   /* on y, after the call */
    int32_t before[TN_FLOW_PORTS];   /* on each input, before the call */
    int32_t gradient[TN_FLOW_PORTS]; /* on the gradient of each input, after backward */
} tn_flow;

/* ret: one a node, then one for the reader of node `output`, the loss, as input 0. [any] */
void tn_flow_derive(const tn_flow_node *nodes, int32_t count, int32_t output, tn_flow *ret);
/* "all-reduce", "slice", ... */
const char *tn_flow_name(int32_t collective);

#endif
