/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c: lifetimes and the one arena. A place lives from the first step that touches it to the last. Places whose
 * lifetimes do not meet share memory; in-place layers share outright.
 */
#include <stdlib.h>
#include <string.h>

#include "host/base/error.h"
#include "host/base/memory.h"
#include "host/graph/internal.h"

#define SUMS_MOST ((int64_t)1 << 30) /* f64 sums of a round */

static int32_t no_memory(tn_error *err) { return tn_error_set(err, TN_E_MEMORY, "no memory for the graph's plan"); }

/* `bytes` for each set of activations, batches or sums, and 64; NULL also where that is more than can be counted. */
static void *alloc_sets(const tn_graph *graph, int64_t bytes)
{
    int64_t all;
    if (__builtin_mul_overflow(graph->sets, bytes, &all) || all > INT64_MAX - 64)
        return NULL;
    return tn_alloc_aligned((size_t)all + 64);
}

/* ---- places ---- */

static int32_t new_place(tn_graph *graph, const tn_tensor *tensor)
{
    place *p = &graph->places[graph->place_count];
    *p = (place){.bytes = round_up(tn_tensor_bytes(tensor), 64),
                 .first = graph->step_count,
                 .last = -1,
                 .shares = graph->place_count};
    return graph->place_count++;
}

static int32_t root_of(const tn_graph *graph, int32_t index)
{
    while (graph->places[index].shares != index)
        index = graph->places[index].shares;
    return index;
}

/* `with` was there first and ends where `index` begins. */
static void share(tn_graph *graph, int32_t index, int32_t with)
{
    place *mine = &graph->places[root_of(graph, index)], *theirs = &graph->places[root_of(graph, with)];
    if (mine == theirs)
        return;
    theirs->first = mine->first < theirs->first ? mine->first : theirs->first;
    theirs->last = mine->last > theirs->last ? mine->last : theirs->last;
    mine->shares = (int32_t)(theirs - graph->places);
}

static void make_places(tn_graph *graph, int32_t i)
{
    node *n = &graph->nodes[i];
    for (int32_t pass = FIRST; pass < PASSES; pass++) {
        int32_t own = pass == FIRST || n->replayed; /* a place of its own in this pass */
        n->y[pass] = i == 0 ? -1 : own ? new_place(graph, &n->output.view) : n->y[FIRST];
        for (int32_t s = 0; s < n->saved_count; s++)
            n->saved_place[pass][s] = own ? new_place(graph, &n->saved[s].view) : n->saved_place[FIRST][s];
    }
    n->dy = n->needs_gradient ? new_place(graph, &n->output.view) : -1;
    for (int32_t k = 0; k < n->input_count; k++) {
        const node *source = &graph->nodes[n->input[k]];
        int32_t first_use = k;
        for (int32_t e = 0; e < k; e++)
            if (n->input[e] == n->input[k])
                first_use = e;
        int32_t direct = source->last_consumer == i && first_use == k;
        n->dx_extra[k] = direct || source->dy < 0 ? -1 : new_place(graph, &source->output.view);
    }
}

/* ---- lifetimes ---- */

static void touch(tn_graph *graph, int32_t index, int32_t time)
{
    if (index < 0)
        return;
    place *p = &graph->places[index];
    p->first = time < p->first ? time : p->first;
    p->last = time > p->last ? time : p->last;
}

static void touch_forward(tn_graph *graph, const node *n, int32_t pass, int32_t time)
{
    for (int32_t k = 0; k < n->input_count; k++)
        touch(graph, graph->nodes[n->input[k]].y[pass], time);
    touch(graph, n->y[pass], time);
    for (int32_t s = 0; s < n->saved_count; s++)
        touch(graph, n->saved_place[pass][s], time);
}

static void touch_backward(tn_graph *graph, const node *n, int32_t time)
{
    touch(graph, n->dy, time);
    if (n->keeps_output)
        touch(graph, n->y[AGAIN], time);
    for (int32_t s = 0; s < n->saved_count; s++)
        touch(graph, n->saved_place[AGAIN][s], time);
    for (int32_t k = 0; k < n->input_count; k++) {
        touch(graph, graph->nodes[n->input[k]].dy, time);
        touch(graph, n->dx_extra[k], time);
        if (n->keeps_input)
            touch(graph, graph->nodes[n->input[k]].y[AGAIN], time);
    }
}

static void find_lifetimes(tn_graph *graph)
{
    for (int32_t time = 0; time < graph->step_count; time++) {
        const step *s = &graph->steps[time];
        const node *n = &graph->nodes[s->node];
        switch (s->kind) {
        case STEP_FORWARD:
            touch_forward(graph, n, FIRST, time);
            break;
        case STEP_REPLAY:
            touch_forward(graph, n, AGAIN, time);
            break;
        case STEP_LOSS:
            touch(graph, n->y[FIRST], time);
            touch(graph, n->dy, time);
            break;
        case STEP_BACKWARD:
            touch_backward(graph, n, time);
            break;
        }
    }
    if (graph->last == graph->output)
        touch(graph, graph->nodes[graph->output].y[FIRST], graph->step_count); /* the caller may look at predictions */
    else
        touch(graph, graph->nodes[graph->last].dy, graph->forward_steps); /* received before anything runs backward */
}

/* ---- in place ---- */

static int one_to_one(const tn_graph *graph, const node *n)
{
    return n->in_place && n->input_count == 1 &&
           tn_tensor_bytes(&graph->nodes[n->input[0]].output.view) == tn_tensor_bytes(&n->output.view);
}

/* y over x where nobody reads x afterwards. */
static void share_forward(tn_graph *graph, const node *n, int32_t pass, int32_t time)
{
    int32_t x = graph->nodes[n->input[0]].y[pass];
    if (one_to_one(graph, n) && x >= 0 && graph->places[root_of(graph, x)].last == time)
        share(graph, n->y[pass], x);
}

/* dx over dy where dx is the first there. */
static void share_backward(tn_graph *graph, const node *n, int32_t time)
{
    int32_t dx = graph->nodes[n->input[0]].dy;
    if (one_to_one(graph, n) && dx >= 0 && graph->places[root_of(graph, dx)].first == time)
        share(graph, n->dy, dx);
}

static void share_in_place(tn_graph *graph)
{
    for (int32_t time = 0; time < graph->step_count; time++) {
        const step *s = &graph->steps[time];
        const node *n = &graph->nodes[s->node];
        if (s->kind == STEP_FORWARD)
            share_forward(graph, n, FIRST, time);
        else if (s->kind == STEP_REPLAY)
            share_forward(graph, n, AGAIN, time);
        else if (s->kind == STEP_BACKWARD)
            share_backward(graph, n, time);
    }
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
        if (graph->places[i].shares == i && graph->places[i].first <= graph->places[i].last)
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
        room += 1 + PASSES * (1 + graph->nodes[i].saved_count) + graph->nodes[i].input_count;
    graph->places = tn_alloc((size_t)room, sizeof *graph->places);
    if (!graph->places)
        return no_memory(err);
    for (int32_t i = 0; i < graph->node_count; i++)
        make_places(graph, i);
    find_lifetimes(graph);
    share_in_place(graph);
    int32_t status = assign_offsets(graph, err);
    if (status != TN_OK)
        return status;
    graph->arena = alloc_sets(graph, graph->arena_bytes);
    return graph->arena ? TN_OK
                        : tn_error_set(err, TN_E_MEMORY,
                                       "no memory for %d times %lld bytes of activations; a smaller batch needs less",
                                       graph->sets, (long long)graph->arena_bytes);
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
    graph->buffer_arena = tn_alloc_aligned(2 * (size_t)graph->buffer_bytes + 64);
    if (!graph->buffer_arena)
        return no_memory(err);
    unsigned char *next = graph->buffer_arena;
    for (int32_t i = 0; i < graph->buffer_count; i++) {
        graph->buffers[i].tensor = graph->buffers[i].eval = graph->buffer_tensors[i].view;
        graph->buffers[i].tensor.data = next;
        graph->buffers[i].eval.data = next + graph->buffer_bytes;
        next += round_up(tn_tensor_bytes(&graph->buffer_tensors[i].view), 64);
    }
    return TN_OK;
}

/* Room for the sums of each node's rounds. */
static int32_t plan_rounds(tn_graph *graph, tn_error *err)
{
    int64_t backward = 0;
    for (int32_t i = 1; i < graph->node_count; i++) {
        node *n = &graph->nodes[i];
        tn_tensor x[MAX_PORTS];
        for (int32_t k = 0; k < n->input_count; k++)
            x[k] = graph->nodes[n->input[k]].output.view;
        for (uint32_t train = 0; train <= TN_TRAIN && n->rounds.count; train += TN_TRAIN) {
            int64_t count = n->rounds.count(n->instance->hyper, x, train);
            if (count < 0 || count > SUMS_MOST)
                return tn_error_set(err, TN_E_PLUGIN, "%s: asks for %lld sums a round, needed 0 to 2^30", n->name,
                                    (long long)count);
            n->sums_count = count > n->sums_count ? count : n->sums_count;
        }
        n->sums = graph->backward_sums;
        graph->backward_sums += n->rounds.forward * n->sums_count;
        backward = n->rounds.backward * n->sums_count > backward ? n->rounds.backward * n->sums_count : backward;
    }
    graph->set_sums = graph->backward_sums + backward;
    graph->round_sums = alloc_sets(graph, graph->set_sums * (int64_t)sizeof *graph->round_sums);
    return graph->round_sums ? TN_OK : no_memory(err);
}

static int32_t plan_scratch(tn_graph *graph, tn_error *err)
{
    size_t threads = (size_t)tn_pool_threads(graph->options.pool);
    for (int32_t i = 1; i < graph->node_count; i++) {
        node *n = &graph->nodes[i];
        if (n->elsewhere)
            continue;
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
    graph->workspace = tn_alloc_aligned((size_t)graph->workspace_bytes * threads + 64);
    graph->stored_bytes = tn_storage_bytes(&graph->options);
    graph->stored = tn_alloc_aligned((size_t)graph->stored_bytes * threads + 64);
    return graph->partials && graph->workspace && graph->stored ? TN_OK : no_memory(err);
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
    graph->sets = o->micro_batches > 1 ? o->micro_batches : 1;
    graph->input_bytes = graph->entry == 0 ? round_up(tn_tensor_bytes(&graph->nodes[0].output.view), 64) : 0;
    graph->target_bytes = graph->last == graph->output ? round_up(tn_tensor_bytes(&graph->target_tensor.view), 64) : 0;
    graph->inputs = alloc_sets(graph, graph->input_bytes);
    graph->targets = alloc_sets(graph, graph->target_bytes);
    return graph->inputs && graph->targets ? TN_OK : no_memory(err);
}

/* ---- the tensors that calls see ---- */

static void *memory_of(const tn_graph *graph, int32_t index)
{
    if (index < 0)
        return NULL;
    const place *p = &graph->places[root_of(graph, index)];
    return p->first <= p->last ? graph->arena + graph->set * graph->arena_bytes + p->offset : NULL;
}

static tn_tensor with_data(tn_tensor tensor, void *data)
{
    tensor.data = data;
    return tensor;
}

static void wire_pass(tn_graph *graph, int32_t i, int32_t pass)
{
    node *n = &graph->nodes[i];
    n->pass[pass].out = with_data(n->output.view, i == 0 ? graph->input : memory_of(graph, n->y[pass]));
    for (int32_t k = 0; k < n->input_count; k++)
        n->pass[pass].x[k] = graph->nodes[n->input[k]].pass[pass].out;
    for (int32_t k = 0; k < n->saved_count; k++)
        n->pass[pass].keep[k] = with_data(n->saved[k].view, memory_of(graph, n->saved_place[pass][k]));
}

static void wire_node(tn_graph *graph, int32_t i)
{
    node *n = &graph->nodes[i];
    wire_pass(graph, i, FIRST);
    wire_pass(graph, i, AGAIN);
    n->dout = with_data(n->output.view, memory_of(graph, n->dy));
    for (int32_t k = 0; k < n->input_count; k++) {
        const node *source = &graph->nodes[n->input[k]];
        n->dx[k] = with_data(source->output.view, memory_of(graph, n->dx_extra[k] >= 0 ? n->dx_extra[k] : source->dy));
    }
    for (int32_t k = 0; k < n->parameter_count; k++) {
        char *g = (char *)graph->parameters.g + graph->parameters.at[n->parameter + k] * real_bytes(graph);
        n->param[k] = graph->parameter_tensors[n->parameter + k].view;
        n->grad[k] = with_data(n->param[k], g);
    }
    for (int32_t k = 0; k < n->buffer_count; k++) {
        n->state[TN_VIEW_TRAIN][k] = graph->buffers[n->buffer + k].tensor;
        n->state[TN_VIEW_EVAL][k] = graph->buffers[n->buffer + k].eval;
    }
}

static void wire(tn_graph *graph)
{
    graph->input = graph->inputs + graph->set * graph->input_bytes;
    graph->target = graph->targets + graph->set * graph->target_bytes;
    graph->target_tensor.view.data = graph->target;
    for (int32_t i = 0; i < graph->node_count; i++)
        wire_node(graph, i);
}

void tn_graph_use_set(tn_graph *graph, int32_t set)
{
    if (set == graph->set)
        return;
    graph->set = set;
    wire(graph);
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
    int32_t (*const steps[])(tn_graph *, tn_error *) = {
        plan_parameters, plan_buffers, plan_batch, tn_graph_list_steps, plan_activations, plan_rounds, plan_scratch};
    int32_t status = TN_OK;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && status == TN_OK; i++)
        status = steps[i](graph, err);
    if (status == TN_OK)
        wire(graph);
    return status;
}
