/* SPDX-License-Identifier: Apache-2.0
 *
 * run.c: executes the plan: forward, loss, backward, in pieces that depend on shapes only.
 */
#include <string.h>

#include "host/base/error.h"
#include "host/graph/internal.h"

/* Below this many output elements a call stays on the calling thread: waking others would cost more. */
#define INLINE_ELEMENTS 4096

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

int64_t tn_node_pieces(const node *n, int64_t batch, int64_t *ret_extent, int64_t *ret_total)
{
    const tn_tensor *y = &n->output.view;
    int64_t row = larger(1, tn_tensor_elements(y) / larger(1, y->shape[0])), extent = 1, total = 1;
    switch (n->axis) {
    case AXIS_WHOLE:
        break;
    case AXIS_ROWS:
        total = batch;
        extent = larger(ceil_div(PIECE_ELEMENTS, row), ceil_div(total, PIECES_MAX));
        break;
    case AXIS_COLUMNS:
        total = y->shape[y->ndim - 1];
        extent = round_up(larger(16, ceil_div(PIECE_ELEMENTS, larger(1, batch * row / larger(1, total)))), 16);
        break;
    case AXIS_ELEMENTS:
        total = batch * row;
        extent = PIECE_ELEMENTS;
        break;
    }
    *ret_extent = extent;
    *ret_total = total;
    return larger(1, ceil_div(total, extent));
}

/* ---- one node's call ---- */

typedef struct {
    const tn_graph *graph;
    const node *node;
    void (*function)(const tn_layer_call *call);
    tn_layer_call call;
    int64_t extent, total;
    int32_t partial; /* gradients go to this piece's partials */
} execution;

/* This piece's share of the partials, as tensors of the parameters' shapes. */
static void partial_gradients(const execution *e, int64_t piece, tn_tensor *gradient)
{
    int64_t bytes = real_bytes(e->graph), at = piece * e->node->partial_elements;
    for (int32_t k = 0; k < e->node->parameter_count; k++) {
        gradient[k] = e->node->grad[k];
        gradient[k].data = e->graph->partials + at * bytes;
        at += round_up(e->graph->parameters.list[e->node->parameter + k].n, 16);
    }
}

static void one_piece(void *arg, int64_t index, int32_t thread)
{
    const execution *e = arg;
    tn_layer_call call = e->call;
    tn_tensor gradient[MAX_PORTS];
    call.lo = index * e->extent;
    call.n = e->total - call.lo < e->extent ? e->total - call.lo : e->extent;
    call.piece = (int32_t)index;
    call.workspace = e->graph->workspace + thread * e->graph->workspace_bytes;
    if (e->partial) {
        partial_gradients(e, index, gradient);
        call.gradient = gradient;
        call.flags &= ~TN_ACCUMULATE;
    }
    e->function(&call);
}

static void run_pieces(execution *e)
{
    int64_t batch = e->node->out.shape[0], pieces = tn_node_pieces(e->node, batch, &e->extent, &e->total);
    if (e->node->axis == AXIS_WHOLE)
        e->extent = e->total = batch;
    e->call.pieces = (int32_t)pieces;
    if (pieces == 1 || tn_tensor_elements(&e->node->out) < INLINE_ELEMENTS)
        for (int64_t i = 0; i < pieces; i++)
            one_piece(e, i, 0);
    else
        tn_pool_run(e->graph->options.pool, one_piece, e, pieces);
}

static execution prepare(const tn_graph *graph, const node *n, const tn_context *context, uint32_t flags)
{
    execution e = {.graph = graph, .node = n};
    e.call = (tn_layer_call){.struct_size = sizeof e.call,
                             .flags = flags,
                             .hyper = n->instance->hyper,
                             .context = context,
                             .compute = n->axis == AXIS_WHOLE ? &graph->compute : NULL,
                             .x = n->x,
                             .y = &n->out,
                             .dy = &n->dout,
                             .dx = n->dx,
                             .parameter = n->param,
                             .gradient = n->grad,
                             .buffer = n->state,
                             .saved = n->keep};
    return e;
}

/* Each micro-batch of a window draws its own numbers under one attempt: its number is mixed into the key. */
static tn_context context_of(const tn_graph *graph, uint64_t key, const tn_graph_run *run)
{
    key ^= (uint64_t)run->micro * 0x9E3779B97F4A7C15u;
    return (tn_context){sizeof(tn_context), 0, run->attempt, run->update, key, graph->options.services};
}

static void forward(tn_graph *graph, const tn_graph_run *run)
{
    for (int32_t i = 1; i < graph->node_count; i++) {
        const node *n = &graph->nodes[i];
        tn_context context = context_of(graph, n->key, run);
        execution e = prepare(graph, n, &context, run->flags & TN_TRAIN);
        e.function = n->table.forward;
        run_pieces(&e);
    }
}

/* ---- gradients ---- */

static void add_f32(float *restrict to, const float *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

static void add_f64(double *restrict to, const double *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

static void add(const tn_graph *graph, void *to, const void *from, int64_t n)
{
    if (graph->options.real == 64)
        add_f64(to, from, n);
    else
        add_f32(to, from, n);
}

/* Partials into gradients, in the order of the pieces. */
static void sum_partials(const execution *e)
{
    tn_tensor piece[MAX_PORTS];
    for (int64_t i = 0; i < e->call.pieces; i++) {
        partial_gradients(e, i, piece);
        for (int32_t k = 0; k < e->node->parameter_count; k++) {
            int64_t n = e->graph->parameters.list[e->node->parameter + k].n;
            if (i == 0 && !(e->call.flags & TN_ACCUMULATE))
                memcpy(e->node->grad[k].data, piece[k].data, (size_t)(n * real_bytes(e->graph)));
            else
                add(e->graph, e->node->grad[k].data, piece[k].data, n);
        }
    }
}

static void backward_node(const tn_graph *graph, const node *n, const tn_graph_run *run)
{
    tn_tensor x[MAX_PORTS], y = n->out; /* without what was not kept: that memory is others' by now */
    tn_context context = context_of(graph, n->key, run);
    uint32_t flags = (run->flags & (TN_TRAIN | TN_ACCUMULATE)) | (n->parameter_count ? TN_WANT_DW : 0);
    for (int32_t k = 0; k < n->input_count; k++)
        flags |= n->dx[k].data ? TN_WANT_DX : 0;
    execution e = prepare(graph, n, &context, flags);
    for (int32_t k = 0; k < n->input_count; k++) {
        x[k] = n->x[k];
        x[k].data = n->keeps_input ? x[k].data : NULL;
    }
    y.data = n->keeps_output ? y.data : NULL;
    e.call.x = x;
    e.call.y = &y;
    e.function = n->table.backward;
    e.partial = n->axis == AXIS_ROWS && n->parameter_count > 0;
    run_pieces(&e);
    if (e.partial)
        sum_partials(&e);
    for (int32_t k = 0; k < n->input_count; k++)
        if (n->dx_extra[k] >= 0) {
            const node *source = &graph->nodes[n->input[k]];
            add(graph, source->dout.data, n->dx[k].data, tn_tensor_elements(&source->out));
        }
}

static void backward(tn_graph *graph, const tn_graph_run *run)
{
    for (int32_t i = graph->node_count - 1; i > 0; i--)
        if (graph->nodes[i].needs_gradient)
            backward_node(graph, &graph->nodes[i], run);
}

/* ---- loss ---- */

typedef struct {
    tn_graph *graph;
    tn_loss_call call;
    int64_t extent, total;
} loss_execution;

static void loss_piece(void *arg, int64_t index, int32_t thread)
{
    loss_execution *e = arg;
    tn_loss_call call = e->call;
    (void)thread;
    call.lo = index * e->extent;
    call.n = e->total - call.lo < e->extent ? e->total - call.lo : e->extent;
    call.sums = e->graph->loss_sums[index];
    e->graph->loss.evaluate(&call);
}

static void run_loss(tn_graph *graph, const tn_graph_run *run, tn_exact *sums)
{
    const node *output = &graph->nodes[graph->output];
    tn_context context = context_of(graph, graph->loss_key, run);
    int64_t row = larger(1, tn_tensor_elements(&output->out) / larger(1, run->n));
    loss_execution e = {.graph = graph, .total = run->n};
    e.extent = larger(ceil_div(PIECE_ELEMENTS, row), ceil_div(run->n, PIECES_MAX));
    e.call = (tn_loss_call){.struct_size = sizeof e.call,
                            .hyper = graph->options.loss->hyper,
                            .context = &context,
                            .x = &output->out,
                            .target = &graph->target_tensor.view,
                            .dx = run->flags & TN_TRAIN ? &graph->loss_dx : NULL,
                            .seed = run->seed};
    int64_t pieces = larger(1, ceil_div(e.total, e.extent));
    tn_pool_run(graph->options.pool, loss_piece, &e, pieces);
    for (int64_t i = 0; i < pieces; i++)
        for (size_t s = 0; s < TN_SUM_FIRST + graph->metric_count; s++)
            tn_exact_add(&sums[s], graph->loss_sums[i][s]);
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
    for (int32_t i = 1; i < graph->node_count; i++) {
        const node *layer = &graph->nodes[i];
        if (!layer->table.check)
            continue;
        for (int32_t k = 0; k < layer->input_count; k++) {
            x[k] = layer->x[k];
            x[k].data = NULL; /* shapes only */
        }
        tn_error_clear(err);
        int32_t status = layer->table.check(layer->instance->hyper, x, flags & TN_TRAIN, err);
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
    for (int32_t i = 1; i < graph->node_count; i++)
        for (int32_t k = 0; k < graph->nodes[i].parameter_count; k++)
            graph->nodes[i].param[k].data =
                (void *)(base + graph->parameters.at[graph->nodes[i].parameter + k] * real_bytes(graph));
}

int32_t tn_graph_run_batch(tn_graph *graph, const tn_graph_run *run, tn_exact sums[TN_SUMS_MAX], tn_error *err)
{
    int32_t status = check_size(graph, run->n, err);
    if (status != TN_OK)
        return status;
    set_batch(graph, run->n);
    status = check_layers(graph, run->flags, err);
    if (status != TN_OK)
        return status;
    use_parameters(graph, run->p);
    graph->compute_host.failed = TN_OK;
    forward(graph, run);
    run_loss(graph, run, sums);
    if (run->flags & TN_TRAIN)
        backward(graph, run);
    if (graph->compute_host.failed)
        return tn_error_set(err, graph->compute_host.failed, "%s", graph->compute_host.error.msg);
    return TN_OK;
}
