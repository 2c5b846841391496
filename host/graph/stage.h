/* SPDX-License-Identifier: Apache-2.0
 *
 * stage.h: running a graph that is one stage of a pipeline: forward and backward of a micro-batch apart, each
 * micro-batch on a set of activations of its own (tn_graph_options.micro_batches sets). A graph without a mesh is one
 * stage with everything.
 */
#ifndef TENON_HOST_GRAPH_STAGE_H
#define TENON_HOST_GRAPH_STAGE_H

#include "host/graph/graph.h"

/* Where a set's data meets other stages. NULL where there is no other stage, or no gradient to pass. */
typedef struct tn_stage_ends {
    void *input, *input_gradient;      /* of the first node: what the stage before sends, and is sent */
    void *output, *output_gradient;    /* of the last node */
    int64_t input_bytes, output_bytes; /* of one sample */
} tn_stage_ends;

/* Makes set `set` the one that tn_graph_input, tn_graph_target and runs mean. [main] */
void tn_graph_choose_set(tn_graph *graph, int32_t set);
/* Of the chosen set. [main] */
tn_stage_ends tn_graph_ends(tn_graph *graph);
/* Forward of the stage, with the loss if it has it; then `sums` are added to. [main] */
int32_t tn_graph_run_forward(tn_graph *graph, const tn_graph_run *run, tn_exact sums[TN_SUMS_MAX], tn_error *err);
/* Backward of what the set's last forward left, with an equal `run`. [main] */
int32_t tn_graph_run_backward(tn_graph *graph, const tn_graph_run *run, tn_error *err);
/* All-reduces over the tensor group so far. */
void tn_graph_reductions(const tn_graph *graph, int64_t *ret_forward, int64_t *ret_backward);

#endif
