/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c: lifetimes and the one arena. The clock of a step with N nodes: forward of node i at i, the loss at N,
 * backward of node i at 2N - i. Buffers whose lifetimes do not meet share memory; in-place layers share outright.
 */
#include <stdlib.h>
#include <string.h>

#include "host/base/error.h"
#include "host/base/memory.h"
#include "host/graph/internal.h"

static int32_t no_memory(tn_error *err) { return tn_error_set(err, TN_E_MEMORY, "no memory for the graph's plan"); }

/* ---- places ---- */

static int32_t new_place(tn_graph *graph, int64_t bytes, int32_t first, int32_t last)
{
    place *p = &graph->places[graph->place_count];
    *p = (place){.bytes = round_up(bytes, 64), .first = first, .last = last, .shares = graph->place_count};
    return graph->place_count++;
}

static int32_t root_of(const tn_graph *graph, int32_t index)
{
    while (graph->places[index].shares != index)
        index = graph->places[index].shares;
    return index;
}

static void share(tn_graph *graph, int32_t index, int32_t with)
{
    place *mine = &graph->places[root_of(graph, index)], *theirs = &graph->places[root_of(graph, with)];
    if (mine == theirs)
        return;
    theirs->first = mine->first < theirs->first ? mine->first : theirs->first;
    theirs->last = mine->last > theirs->last ? mine->last : theirs->last;
    mine->shares = (int32_t)(theirs - graph->places);
}

/* The last moment at which node i's output is read. */
static int32_t output_dies(const tn_graph *graph, int32_t i)
{
    int32_t n = graph->node_count, last = i;
    if (i == graph->output)
        return 2 * n; /* the caller may look at predictions */
    if (graph->nodes[i].keeps_output && graph->nodes[i].needs_gradient)
        last = 2 * n - i;
    for (int32_t j = i + 1; j < n; j++)
        for (int32_t k = 0; k < graph->nodes[j].input_count; k++)
            if (graph->nodes[j].input[k] == i) {
                int32_t until = graph->nodes[j].keeps_input && graph->nodes[j].needs_gradient ? 2 * n - j : j;
                last = until > last ? until : last;
            }
    return last;
}

static int32_t born_gradient(const tn_graph *graph, int32_t i)
{
    return i == graph->output ? graph->node_count : 2 * graph->node_count - graph->nodes[i].last_consumer;
}

/* May node i write its output over its input? */
static int32_t forward_in_place(const tn_graph *graph, const node *n)
{
    const node *source = &graph->nodes[n->input[0]];
    return n->in_place && n->input_count == 1 && n->input[0] > 0 && source->consumers == 1 && !n->keeps_input &&
           !source->keeps_output && tn_tensor_bytes(&source->output.view) == tn_tensor_bytes(&n->output.view);
}

static int32_t backward_in_place(const tn_graph *graph, const node *n)
{
    const node *source = &graph->nodes[n->input[0]];
    return n->in_place && n->input_count == 1 && source->consumers == 1 && source->dy >= 0 &&
           tn_tensor_bytes(&source->output.view) == tn_tensor_bytes(&n->output.view);
}

static void place_node(tn_graph *graph, int32_t i)
{
    node *n = &graph->nodes[i];
    int32_t back = 2 * graph->node_count - i;
    int64_t bytes = tn_tensor_bytes(&n->output.view);
    n->y = i == 0 ? -1 : new_place(graph, bytes, i, output_dies(graph, i));
    n->dy = n->needs_gradient ? new_place(graph, bytes, born_gradient(graph, i), back) : -1;
    for (int32_t s = 0; s < n->saved_count; s++)
        n->saved_place[s] = new_place(graph, tn_tensor_bytes(&n->saved[s].view), i, back);
    for (int32_t k = 0; k < n->input_count; k++) {
        const node *source = &graph->nodes[n->input[k]];
        int32_t first_use = k;
        for (int32_t e = 0; e < k; e++)
            if (n->input[e] == n->input[k])
                first_use = e;
        int32_t direct = source->last_consumer == i && first_use == k;
        n->dx_extra[k] =
            direct || source->dy < 0 ? -1 : new_place(graph, tn_tensor_bytes(&source->output.view), back, back);
    }
    if (i > 0 && forward_in_place(graph, n))
        share(graph, n->y, graph->nodes[n->input[0]].y);
    if (i > 0 && n->dy >= 0 && backward_in_place(graph, n))
        share(graph, n->dy, graph->nodes[n->input[0]].dy);
}

/* ---- offsets: largest first, each at the lowest offset that is free during its life ---- */

static int by_size(const void *a, const void *b, void *places)
{
    const place *sorting = places, *x = &sorting[*(const int32_t *)a], *y = &sorting[*(const int32_t *)b];
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return *(const int32_t *)a < *(const int32_t *)b ? -1 : 1;
}

static int meet(const place *a, const place *b) { return a->first <= b->last && b->first <= a->last; }

static int64_t lowest_free(const tn_graph *graph, const int32_t *placed, int32_t count, const place *p)
{
    int64_t offset = 0;
    for (int moved = 1; moved;) {
        moved = 0;
        for (int32_t i = 0; i < count; i++) {
            const place *other = &graph->places[placed[i]];
            if (meet(other, p) && offset < other->offset + other->bytes && other->offset < offset + p->bytes) {
                offset = other->offset + other->bytes;
                moved = 1;
            }
        }
    }
    return offset;
}

static int32_t assign_offsets(tn_graph *graph, tn_error *err)
{
    int32_t *order = tn_alloc((size_t)graph->place_count + 1, sizeof *order), count = 0;
    if (!order)
        return no_memory(err);
    for (int32_t i = 0; i < graph->place_count; i++)
        if (graph->places[i].shares == i)
            order[count++] = i;
    qsort_r(order, (size_t)count, sizeof *order, by_size, graph->places);
    for (int32_t i = 0; i < count; i++) {
        place *p = &graph->places[order[i]];
        p->offset = lowest_free(graph, order, i, p);
        if (p->offset + p->bytes > graph->arena_bytes)
            graph->arena_bytes = p->offset + p->bytes;
        graph->unshared_bytes += p->bytes;
    }
    tn_free(order);
    return TN_OK;
}

static int32_t plan_activations(tn_graph *graph, tn_error *err)
{
    int32_t room = 0;
    for (int32_t i = 0; i < graph->node_count; i++)
        room += 2 + graph->nodes[i].saved_count + graph->nodes[i].input_count;
    graph->places = tn_alloc((size_t)room, sizeof *graph->places);
    if (!graph->places)
        return no_memory(err);
    for (int32_t i = 0; i < graph->node_count; i++)
        place_node(graph, i);
    int32_t status = assign_offsets(graph, err);
    if (status != TN_OK)
        return status;
    graph->arena = tn_alloc_aligned((size_t)graph->arena_bytes + 64);
    return graph->arena
               ? TN_OK
               : tn_error_set(err, TN_E_MEMORY, "no memory for %lld bytes of activations; a smaller batch needs less",
                              (long long)graph->arena_bytes);
}

/* ---- parameters, buffers, scratch ---- */

static int32_t plan_parameters(tn_graph *graph, tn_error *err)
{
    tn_parameters *all = &graph->parameters;
    size_t count = (size_t)all->count + 1;
    all->real = graph->options.real;
    all->at = tn_alloc(count, sizeof *all->at);
    all->present = tn_alloc(count, 1);
    graph->parameter_tensors = tn_alloc(count, sizeof *graph->parameter_tensors);
    if (!all->at || !all->present || !graph->parameter_tensors)
        return no_memory(err);
    for (int64_t i = 0; i < all->count; i++) {
        all->at[i] = all->elements;
        all->elements += round_up(all->list[i].n, TN_ALIGN_ELEMENTS);
        all->present[i] = 1;
        tn_tensor_set(&graph->parameter_tensors[i], real_dtype(graph), all->list[i].ndim, all->list[i].shape);
        graph->parameter_tensors[i].view.shape = graph->parameter_tensors[i].shape;
        graph->parameter_tensors[i].view.strides = graph->parameter_tensors[i].strides;
    }
    size_t bytes = (size_t)(all->elements * real_bytes(graph)) + 64;
    all->p = tn_alloc_aligned(bytes);
    all->g = tn_alloc_aligned(bytes);
    return all->p && all->g ? TN_OK
                            : tn_error_set(err, TN_E_MEMORY, "no memory for %lld parameters", (long long)all->elements);
}

static int32_t plan_buffers(tn_graph *graph, tn_error *err)
{
    for (int32_t i = 0; i < graph->buffer_count; i++)
        graph->buffer_bytes += round_up(tn_tensor_bytes(&graph->buffer_tensors[i].view), 64);
    graph->buffer_arena = tn_alloc_aligned((size_t)graph->buffer_bytes + 64);
    if (!graph->buffer_arena)
        return no_memory(err);
    unsigned char *next = graph->buffer_arena;
    for (int32_t i = 0; i < graph->buffer_count; i++) {
        graph->buffer_tensors[i].view.data = next;
        graph->buffers[i].tensor = graph->buffer_tensors[i].view;
        next += round_up(tn_tensor_bytes(&graph->buffer_tensors[i].view), 64);
    }
    return TN_OK;
}

static int32_t plan_scratch(tn_graph *graph, tn_error *err)
{
    for (int32_t i = 1; i < graph->node_count; i++) {
        node *n = &graph->nodes[i];
        graph->workspace_bytes = n->workspace > graph->workspace_bytes ? n->workspace : graph->workspace_bytes;
        if (n->axis != AXIS_ROWS)
            continue;
        for (int32_t k = 0; k < n->parameter_count; k++)
            n->partial_elements += round_up(graph->parameters.list[n->parameter + k].n, 16);
        /* A smaller batch may fall into more pieces than the largest one, but never into more than these. */
        int64_t pieces = graph->options.batch < PIECES_MAX ? graph->options.batch : PIECES_MAX;
        int64_t bytes = pieces * n->partial_elements * real_bytes(graph);
        graph->partial_bytes = bytes > graph->partial_bytes ? bytes : graph->partial_bytes;
    }
    graph->workspace_bytes = round_up(graph->workspace_bytes, 64);
    graph->partials = tn_alloc_aligned((size_t)graph->partial_bytes + 64);
    graph->workspace = tn_alloc_aligned((size_t)(graph->workspace_bytes * tn_pool_threads(graph->options.pool)) + 64);
    return graph->partials && graph->workspace ? TN_OK : no_memory(err);
}

static int32_t plan_batch(tn_graph *graph, tn_error *err)
{
    const tn_graph_options *o = &graph->options;
    int64_t shape[TN_MAX_DIMS] = {o->batch};
    tn_dtype dtype = o->classes > 0 ? (tn_dtype){TN_INT, 32, 1} : real_dtype(graph);
    for (int32_t i = 0; i < o->target_ndim; i++)
        shape[1 + i] = o->target_shape[i];
    int32_t status = tn_shape_check("data", "a batch of targets", o->target_ndim + 1, shape, err);
    if (status != TN_OK)
        return status;
    tn_tensor_set(&graph->target_tensor, dtype, o->target_ndim + 1, shape);
    graph->target_tensor.view.shape = graph->target_tensor.shape;
    graph->target_tensor.view.strides = graph->target_tensor.strides;
    graph->input_bytes = tn_tensor_bytes(&graph->nodes[0].output.view);
    graph->input = tn_alloc_aligned((size_t)graph->input_bytes + 64);
    graph->target = tn_alloc_aligned((size_t)tn_tensor_bytes(&graph->target_tensor.view) + 64);
    graph->target_tensor.view.data = graph->target;
    return graph->input && graph->target ? TN_OK : no_memory(err);
}

/* ---- the tensors that calls see ---- */

static void *memory_of(const tn_graph *graph, int32_t index)
{
    return index < 0 ? NULL : graph->arena + graph->places[root_of(graph, index)].offset;
}

static tn_tensor with_data(tn_tensor tensor, void *data)
{
    tensor.data = data;
    return tensor;
}

static void wire_node(tn_graph *graph, int32_t i)
{
    node *n = &graph->nodes[i];
    n->out = with_data(n->output.view, i == 0 ? graph->input : memory_of(graph, n->y));
    n->dout = with_data(n->output.view, memory_of(graph, n->dy));
    for (int32_t k = 0; k < n->input_count; k++) {
        const node *source = &graph->nodes[n->input[k]];
        n->x[k] = source->out;
        n->dx[k] = with_data(source->out, memory_of(graph, n->dx_extra[k] >= 0 ? n->dx_extra[k] : source->dy));
    }
    for (int32_t k = 0; k < n->parameter_count; k++) {
        char *g = (char *)graph->parameters.g + graph->parameters.at[n->parameter + k] * real_bytes(graph);
        n->param[k] = graph->parameter_tensors[n->parameter + k].view;
        n->grad[k] = with_data(n->param[k], g);
    }
    for (int32_t k = 0; k < n->buffer_count; k++)
        n->state[k] = graph->buffers[n->buffer + k].tensor;
    for (int32_t k = 0; k < n->saved_count; k++)
        n->keep[k] = with_data(n->saved[k].view, memory_of(graph, n->saved_place[k]));
}

int32_t tn_graph_plan(tn_graph *graph, tn_error *err)
{
    for (int32_t i = 1; i < graph->node_count; i++)
        if (graph->nodes[i].consumers == 0 && i != graph->output)
            return tn_error_set(err, TN_E_INVALID,
                                "the model's layer \"%s\" feeds nothing; its output must be used or be the model's",
                                graph->nodes[i].name);
    if (!graph->nodes[graph->output].needs_gradient)
        return tn_error_set(err, TN_E_INVALID, "the model has no parameters to train");
    int32_t (*const steps[])(tn_graph *, tn_error *) = {plan_parameters, plan_buffers, plan_batch, plan_activations,
                                                        plan_scratch};
    int32_t status = TN_OK;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && status == TN_OK; i++)
        status = steps[i](graph, err);
    for (int32_t i = 0; i < graph->node_count && status == TN_OK; i++)
        wire_node(graph, i);
    if (status == TN_OK)
        graph->loss_dx = graph->nodes[graph->output].dout;
    return status;
}
