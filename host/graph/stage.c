/* SPDX-License-Identifier: Apache-2.0
 *
 * stage.c: forward and backward apart, on a chosen set.
 */
#include "host/graph/stage.h"

#include "host/graph/internal.h"

void tn_graph_choose_set(tn_graph *graph, int32_t set) { tn_graph_use_set(graph, set); }

/* Bytes of one sample. */
static int64_t sample_bytes(const node *n)
{
    int64_t bytes = n->output.view.dtype.bits / 8;
    for (int32_t i = 1; i < n->output.view.ndim; i++)
        bytes *= n->output.shape[i];
    return bytes;
}

tn_stage_ends tn_graph_ends(tn_graph *graph)
{
    const node *entry = &graph->nodes[graph->entry], *last = &graph->nodes[graph->last];
    tn_stage_ends ends = {.input_bytes = sample_bytes(entry), .output_bytes = sample_bytes(last)};
    if (graph->entry > 0) {
        ends.input = entry->pass[FIRST].out.data;
        ends.input_gradient = entry->dout.data;
    }
    if (graph->last < graph->output) {
        ends.output = last->pass[FIRST].out.data;
        ends.output_gradient = last->dout.data;
    }
    return ends;
}

int32_t tn_graph_run_forward(tn_graph *graph, const tn_graph_run *run, tn_exact sums[TN_SUMS_MAX], tn_error *err)
{
    int32_t loss = graph->last == graph->output;
    return tn_graph_run_steps(graph, run, 0, graph->forward_steps + loss, sums, err);
}

int32_t tn_graph_run_backward(tn_graph *graph, const tn_graph_run *run, tn_error *err)
{
    int32_t loss = graph->last == graph->output;
    return tn_graph_run_steps(graph, run, graph->forward_steps + loss, graph->step_count, NULL, err);
}

void tn_graph_reductions(const tn_graph *graph, int64_t *ret_forward, int64_t *ret_backward)
{
    *ret_forward = graph->reductions[0];
    *ret_backward = graph->reductions[1];
}
