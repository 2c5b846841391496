/* SPDX-License-Identifier: Apache-2.0
 *
 * call.c: one call of a node: its pieces, whose cuts depend on shapes only, its rounds and its partial gradients.
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

/* ---- pieces ---- */

/* A piece's share of the partials, as tensors of the parameters' shapes. */
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
    e->visit(e, &call);
}

void tn_node_run(execution *e)
{
    int64_t batch = e->call.y->shape[0], pieces = tn_node_pieces(e->node, batch, &e->extent, &e->total);
    if (e->node->axis == AXIS_WHOLE)
        e->extent = e->total = batch;
    e->call.pieces = (int32_t)pieces;
    if (pieces == 1 || tn_tensor_elements(e->call.y) < INLINE_ELEMENTS)
        for (int64_t i = 0; i < pieces; i++)
            one_piece(e, i, 0);
    else
        tn_pool_run(e->graph->options.pool, one_piece, e, pieces);
}

void tn_visit_forward(const execution *e, const tn_layer_call *piece) { e->node->table.forward(piece); }
void tn_visit_backward(const execution *e, const tn_layer_call *piece) { e->node->table.backward(piece); }

tn_context tn_run_context(const tn_graph *graph, uint64_t key, const tn_graph_run *run)
{
    key ^= (uint64_t)run->micro * 0x9E3779B97F4A7C15u;
    return (tn_context){sizeof(tn_context), 0, run->attempt, run->update, key, graph->options.services};
}

void tn_node_prepare(const tn_graph *graph, const node *n, const tn_graph_run *run, int32_t pass, uint32_t flags,
                     execution *ret)
{
    const node_pass *seen = &n->pass[pass];
    *ret = (execution){.graph = graph, .node = n, .context = tn_run_context(graph, n->key, run)};
    ret->call = (tn_layer_call){.struct_size = sizeof ret->call,
                                .flags = flags,
                                .hyper = n->instance->hyper,
                                .context = &ret->context,
                                .compute = n->axis == AXIS_WHOLE ? &graph->compute : NULL,
                                .x = seen->x,
                                .y = &seen->out,
                                .dy = &n->dout,
                                .dx = n->dx,
                                .parameter = n->param,
                                .gradient = n->grad,
                                .buffer = n->state[run->view],
                                .saved = seen->keep,
                                .refresh = flags & TN_TRAIN ? run->refresh : 0};
}

/* ---- partial gradients ---- */

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

void tn_add(const tn_graph *graph, void *to, const void *from, int64_t n)
{
    if (graph->options.real == 64)
        add_f64(to, from, n);
    else
        add_f32(to, from, n);
}

void tn_node_sum_partials(const execution *e, const tn_tensor *gradient)
{
    tn_tensor piece[MAX_PORTS];
    for (int64_t i = 0; i < e->call.pieces; i++) {
        partial_gradients(e, i, piece);
        for (int32_t k = 0; k < e->node->parameter_count; k++) {
            int64_t n = e->graph->parameters.list[e->node->parameter + k].n;
            if (i == 0 && !(e->call.flags & TN_ACCUMULATE))
                memcpy(gradient[k].data, piece[k].data, (size_t)(n * real_bytes(e->graph)));
            else
                tn_add(e->graph, gradient[k].data, piece[k].data, n);
        }
    }
}

/* ---- rounds ---- */

typedef struct {
    int32_t round;
    double *sums; /* of this round */
} round_execution;

static void visit_partial(const execution *e, const tn_layer_call *piece)
{
    const round_execution *r = e->arg;
    e->node->rounds.partial(piece, r->round, r->sums);
}

static int32_t one_round(execution *e, double *all, int32_t round, int64_t count, tn_error *err)
{
    round_execution r = {round, all + round * count};
    memset(r.sums, 0, (size_t)count * sizeof *r.sums);
    e->call.sums = all;
    e->visit = visit_partial;
    e->arg = &r;
    tn_node_run(e);
    int32_t status =
        tn_comm_all_reduce(e->graph->options.data, (tn_dtype){TN_FLOAT, 64, 1}, r.sums, count, TN_REDUCE_SUM, err);
    return status == TN_OK ? status : tn_error_wrap(err, status, "%s: sums of round %d", e->node->name, round);
}

int32_t tn_node_rounds(execution *e, int32_t backward, tn_error *err)
{
    const node *n = e->node;
    const tn_layer_rounds *rounds = &n->rounds;
    int64_t count = rounds->count ? rounds->count(n->instance->hyper, e->call.x, e->call.flags & TN_TRAIN) : 0;
    int32_t status = TN_OK, many = backward ? rounds->backward : rounds->forward, partial = e->partial;
    double *all =
        e->graph->round_sums + e->graph->set * e->graph->set_sums + (backward ? e->graph->backward_sums : n->sums);
    if (count <= 0 || many == 0)
        return TN_OK;
    if (count > n->sums_count)
        return tn_error_set(err, TN_E_PLUGIN, "%s: asks for %lld sums a round, more than the %lld it planned", n->name,
                            (long long)count, (long long)n->sums_count);
    e->partial = 0;
    for (int32_t r = 0; r < many && status == TN_OK && !e->replay; r++)
        status = one_round(e, all, r, count, err);
    e->partial = partial;
    e->call.sums = all;
    return status;
}
