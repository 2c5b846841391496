/* SPDX-License-Identifier: Apache-2.0
 *
 * run.c: executes the steps of a batch: forward, loss, replays, backward.
 */
#include "host/base/error.h"
#include "host/graph/internal.h"

/* ---- steps ---- */

static int32_t forward_node(tn_graph *graph, const node *n, const tn_graph_run *run, int32_t pass, tn_error *err)
{
    execution e;
    uint32_t flags = (run->flags & (TN_TRAIN | TN_FREEZE)) | (pass == AGAIN ? TN_FREEZE : 0);
    tn_node_prepare(graph, n, run, pass, flags, &e);
    e.call.dy = e.call.dx = e.call.gradient = NULL; /* of backward */
    e.replay = pass == AGAIN;
    int32_t status = tn_node_rounds(&e, 0, err);
    if (status != TN_OK)
        return status;
    e.visit = tn_visit_forward;
    tn_node_run(&e);
    status = tn_shard_reduce_forward(graph, n, e.call.y, err);
    if (status != TN_OK)
        return status;
    tn_storage_round(graph, n->storage_key, run, e.call.y);
    return TN_OK;
}

static void show_tap(const node *n, const tn_graph_run *run)
{
    if (run->tap && n->taps)
        run->tap(run->user, n->parameter, &n->pass[AGAIN].x[0], &n->dout, run->seed);
}

/* What came to be added, and what is stored narrowly. */
static void finish_backward(const execution *e, const tn_graph_run *run)
{
    const tn_graph *graph = e->graph;
    const node *n = e->node;
    if (e->partial)
        tn_node_sum_partials(e, n->grad);
    for (int32_t k = 0; k < n->input_count; k++) {
        const node *source = &graph->nodes[n->input[k]];
        if (n->dx_extra[k] >= 0)
            tn_add(graph, source->dout.data, n->dx[k].data, tn_tensor_elements(&source->dout));
        tn_storage_round(graph, n->storage_key + 1 + (uint64_t)k, run, &source->dout);
    }
    for (int32_t k = 0; k < n->parameter_count && (e->call.flags & TN_WANT_DW); k++)
        tn_storage_round(graph, n->storage_key + 1 + MAX_PORTS + (uint64_t)k, run, &n->grad[k]);
}

static int32_t backward_node(tn_graph *graph, const node *n, const tn_graph_run *run, tn_error *err)
{
    tn_tensor x[MAX_PORTS], y = n->pass[AGAIN].out; /* without what was not kept: that memory is others' by now */
    execution e;
    int32_t wants_dw = n->parameter_count > 0 && !run->no_gradient;
    uint32_t flags = (run->flags & (TN_TRAIN | TN_ACCUMULATE | TN_FREEZE)) | (wants_dw ? TN_WANT_DW : 0);
    for (int32_t k = 0; k < n->input_count; k++) {
        flags |= n->dx[k].data ? TN_WANT_DX : 0;
        x[k] = n->pass[AGAIN].x[k];
        x[k].data = n->keeps_input ? x[k].data : NULL;
    }
    y.data = n->keeps_output ? y.data : NULL;
    show_tap(n, run);
    tn_node_prepare(graph, n, run, AGAIN, flags, &e);
    e.call.x = x;
    e.call.y = &y;
    int32_t status = tn_node_rounds(&e, 1, err);
    if (status != TN_OK)
        return status;
    e.visit = tn_visit_backward;
    e.partial = n->axis == AXIS_ROWS && wants_dw;
    tn_node_run(&e);
    status = tn_shard_reduce_backward(graph, n, err);
    if (status == TN_OK)
        finish_backward(&e, run);
    return status;
}

static void loss_step(tn_graph *graph, const tn_graph_run *run, tn_exact *sums)
{
    const node *output = &graph->nodes[graph->output];
    tn_loss_run(graph, run, sums);
    if (run->flags & TN_TRAIN)
        tn_storage_round(graph, graph->loss_key, run, &output->dout);
}

static int32_t one_step(tn_graph *graph, const step *s, const tn_graph_run *run, tn_exact *sums, tn_error *err)
{
    const node *n = &graph->nodes[s->node];
    switch (s->kind) {
    case STEP_FORWARD:
        return forward_node(graph, n, run, FIRST, err);
    case STEP_LOSS:
        loss_step(graph, run, sums);
        return TN_OK;
    case STEP_REPLAY:
        return forward_node(graph, n, run, AGAIN, err);
    default:
        return backward_node(graph, n, run, err);
    }
}

/* ---- a batch ---- */

static void set_batch(tn_graph *graph, int64_t n)
{
    for (int32_t i = 0; i < graph->node_count; i++)
        graph->nodes[i].output.shape[0] = n; /* every tensor of this output points at these extents */
    graph->target_tensor.shape[0] = n;
}

static int32_t check_layers(const tn_graph *graph, uint32_t flags, tn_error *err)
{
    tn_tensor x[MAX_PORTS];
    uint32_t joint = tn_comm_size(graph->options.data) > 1 ? TN_JOINT : 0;
    for (int32_t i = 1; i < graph->node_count; i++) {
        const node *layer = &graph->nodes[i];
        if (!layer->table.check)
            continue;
        for (int32_t k = 0; k < layer->input_count; k++) {
            x[k] = layer->pass[FIRST].x[k];
            x[k].data = NULL; /* shapes only */
        }
        tn_error_clear(err);
        int32_t status = layer->table.check(layer->instance->hyper, x, (flags & TN_TRAIN) | joint, err);
        if (status != TN_OK)
            return tn_error_wrap(err, status, "%s", layer->name);
    }
    return TN_OK;
}

static int32_t check_size(const tn_graph *graph, int64_t n, tn_error *err)
{
    if (n >= 1 && n <= graph->options.batch)
        return TN_OK;
    return tn_error_set(err, TN_E_INVALID, "a batch of %lld samples; the graph was planned for 1 to %lld", (long long)n,
                        (long long)graph->options.batch);
}

int32_t tn_graph_check(tn_graph *graph, int64_t n, uint32_t flags, tn_error *err)
{
    int64_t shown = graph->target_tensor.shape[0];
    int32_t status = check_size(graph, n, err);
    if (status != TN_OK)
        return status;
    set_batch(graph, n);
    status = check_layers(graph, flags, err);
    set_batch(graph, shown); /* the output still shows the last run */
    return status;
}

static void use_parameters(tn_graph *graph, const void *p)
{
    const char *base = p ? p : graph->parameters.p;
    for (int32_t i = 1; i < graph->node_count; i++) {
        node *n = &graph->nodes[i];
        for (int32_t k = 0; k < n->parameter_count; k++)
            n->param[k].data = n->lent_zero >> k & 1
                                   ? graph->zeros
                                   : (void *)(base + graph->parameters.at[n->parameter + k] * real_bytes(graph));
    }
}

int32_t tn_graph_begin(tn_graph *graph, const tn_graph_run *run, tn_error *err)
{
    int32_t status = check_size(graph, run->n, err);
    if (status == TN_OK && run->sampled)
        status = tn_graph_offers_samples(graph, err);
    if (status != TN_OK)
        return status;
    set_batch(graph, run->n);
    status = check_layers(graph, run->flags, err);
    if (status != TN_OK)
        return status;
    use_parameters(graph, run->p);
    graph->compute_host.failed = TN_OK;
    return TN_OK;
}

int32_t tn_graph_end(tn_graph *graph, int32_t status, tn_error *err)
{
    return status ? status : tn_compute_take_failure(&graph->compute_host, err);
}

int32_t tn_graph_run_steps(tn_graph *graph, const tn_graph_run *run, int32_t from, int32_t to, tn_exact *sums,
                           tn_error *err)
{
    int32_t status = tn_graph_begin(graph, run, err);
    for (int32_t i = from; i < to && status == TN_OK; i++)
        status = one_step(graph, &graph->steps[i], run, sums, err);
    return tn_graph_end(graph, status, err);
}

int32_t tn_graph_run_batch(tn_graph *graph, const tn_graph_run *run, tn_exact sums[TN_SUMS_MAX], tn_error *err)
{
    int32_t loss = graph->last == graph->output, to = graph->forward_steps + loss;
    if (run->forward_only)
        to = graph->forward_steps;
    else if (run->flags & TN_TRAIN)
        to = graph->step_count;
    return tn_graph_run_steps(graph, run, 0, to, sums, err);
}
