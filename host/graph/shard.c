/* SPDX-License-Identifier: Apache-2.0
 *
 * shard.c: this process's part of split layers. A layer's own `infer` is asked again, with the hyper-parameters and
 * inputs of the part; what it plans must be the whole cut as its form says. Sums that are owed are all-reduced where
 * the flows (placement.h) say.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "host/base/error.h"
#include "host/base/memory.h"
#include "host/graph/internal.h"

#define INDEX_KEY 0xD1B54A32D192ED03u /* apart: parts of one tensor draw different numbers */

static int32_t parts_of(const tn_graph *graph) { return graph->options.parallel->mesh.tensor; }
static int32_t part_of(const tn_graph *graph) { return graph->options.parallel->place[TN_MESH_TENSOR]; }
static tn_comm *group_of(const tn_graph *graph) { return graph->options.parallel->group[TN_MESH_TENSOR]; }

/* ---- asking a layer for its part ---- */

typedef struct {
    tn_graph *graph;
    node *node;
    const tn_split *split;
    int32_t cut_output; /* 1: y is a part of the last extent */
    int32_t parameter, buffer, saved;
    tn_error *err;
    int32_t status;
} part_plan;

static int32_t differs(part_plan *plan, const char *what)
{
    if (plan->status == TN_OK)
        plan->status = tn_error_set(plan->err, TN_E_PLUGIN,
                                    "%s (%s): planned for a part, its %s is not the whole cut as its form says",
                                    plan->node->name, plan->node->instance->info->name, what);
    return plan->status;
}

/* Is `shape` `whole` with `axis` (-1: none) cut into equal parts? */
static int is_part(const part_plan *plan, int32_t ndim, const int64_t *shape, int32_t whole_ndim, const int64_t *whole,
                   int32_t axis)
{
    if (ndim != whole_ndim)
        return 0;
    for (int32_t i = 0; i < ndim; i++)
        if (shape[i] * (i == axis ? parts_of(plan->graph) : 1) != whole[i])
            return 0;
    return 1;
}

static int32_t part_output(void *host, int32_t ndim, const int64_t *shape)
{
    part_plan *plan = host;
    owned_tensor *output = &plan->node->output;
    if (!is_part(plan, ndim, shape, output->view.ndim, output->shape, plan->cut_output ? ndim - 1 : -1))
        return differs(plan, "output");
    tn_tensor_set(output, real_dtype(plan->graph), ndim, shape);
    output->view.shape = output->shape;
    output->view.strides = output->strides;
    return TN_OK;
}

static int32_t part_parameter(void *host, const tn_weight *weight)
{
    part_plan *plan = host;
    int32_t k = plan->parameter++, index = plan->node->parameter + k;
    if (k >= plan->node->parameter_count)
        return differs(plan, "count of parameters");
    tn_parameter *p = &plan->graph->parameters.list[index];
    int32_t axis = plan->split->split ? plan->split->axis[k] : -1;
    if (!is_part(plan, weight->ndim, weight->shape, p->ndim, p->shape, axis))
        return differs(plan, "parameter");
    if (axis < 0) {
        if (plan->split->split && part_of(plan->graph) > 0)
            plan->node->lent_zero |= 1u << k;
        return TN_OK;
    }
    p->shape[axis] = weight->shape[axis];
    p->n /= parts_of(plan->graph);
    p->tensor_axis = axis;
    p->tensor_count = parts_of(plan->graph);
    p->tensor_index = part_of(plan->graph);
    return TN_OK;
}

static int32_t part_buffer(void *host, const char *name, int32_t ndim, const int64_t *shape, double initial)
{
    part_plan *plan = host;
    int32_t index = plan->node->buffer + plan->buffer++;
    (void)name, (void)initial;
    if (index >= plan->node->buffer + plan->node->buffer_count)
        return differs(plan, "count of buffers");
    const owned_tensor *whole = &plan->graph->buffer_tensors[index];
    return is_part(plan, ndim, shape, whole->view.ndim, whole->shape, -1) ? TN_OK : differs(plan, "buffer");
}

static int32_t part_saved(void *host, tn_dtype dtype, int32_t ndim, const int64_t *shape)
{
    part_plan *plan = host;
    int32_t s = plan->saved++;
    if (s >= plan->node->saved_count)
        return differs(plan, "count of saved tensors");
    owned_tensor *saved = &plan->node->saved[s];
    if (ndim > TN_MAX_DIMS || tn_shape_check(plan->node->name, "a saved tensor", ndim, shape, plan->err) != TN_OK)
        return differs(plan, "saved tensor");
    tn_tensor_set(saved, dtype.bits ? dtype : real_dtype(plan->graph), ndim, shape);
    saved->view.shape = saved->shape;
    saved->view.strides = saved->strides;
    return TN_OK;
}

static int32_t part_workspace(void *host, int64_t bytes)
{
    part_plan *plan = host;
    if (bytes < 0 || bytes > ELEMENTS_MAX)
        return differs(plan, "scratch");
    plan->node->workspace = bytes > plan->node->workspace ? bytes : plan->node->workspace;
    return TN_OK;
}

static int32_t infer_part(tn_graph *graph, node *n, const tn_split *split, int32_t y, tn_error *err)
{
    tn_tensor x[MAX_PORTS];
    part_plan plan = {.graph = graph, .node = n, .split = split, .cut_output = y == TN_PLACE_SHARD, .err = err};
    tn_layer_planner planner = {sizeof planner, 0,           &plan,      part_output,
                                part_parameter, part_buffer, part_saved, part_workspace};
    for (int32_t k = 0; k < n->input_count; k++)
        x[k] = graph->nodes[n->input[k]].output.view;
    tn_error_clear(err);
    int32_t status = n->table.infer(n->instance->hyper, x, n->input_count, &planner, err);
    if (plan.status != TN_OK)
        return plan.status;
    if (status != TN_OK)
        return tn_error_wrap(err, status, "%s (%s), a part of it", n->name, n->instance->info->name);
    if (plan.parameter != n->parameter_count || plan.buffer != n->buffer_count || plan.saved != n->saved_count)
        return differs(&plan, "count of parameters, buffers or saved tensors");
    return TN_OK;
}

/* ---- hyper-parameters ---- */

static int32_t divide_row(tn_graph *graph, node *n, const char *name, tn_error *err)
{
    const tn_row *row = name ? tn_instance_row(n->instance, name) : NULL;
    int64_t value = row && row->type == TN_TYPE_INTEGER ? tn_instance_integer(n->instance, row) : 0;
    char text[24];
    if (!row || row->type != TN_TYPE_INTEGER)
        return tn_error_set(err, TN_E_PLUGIN, "%s (%s): a form divides the row '%s', needed an integer row", n->name,
                            n->instance->info->name, name ? name : "?");
    if (value % parts_of(graph))
        return tn_error_set(err, TN_E_INVALID, "%s (%s): %s is %lld, needed a multiple of %d to be split", n->name,
                            n->instance->info->name, name, (long long)value, parts_of(graph));
    snprintf(text, sizeof text, "%lld", (long long)(value / parts_of(graph)));
    return tn_instance_set(n->instance, graph->options.registry, name, text, err);
}

/* The layer's instance then is of the part: it must be this node's own. */
static int32_t divide_rows(tn_graph *graph, node *n, const tn_split *split, tn_error *err)
{
    int32_t status = TN_OK;
    if (json_array_size(split->rows) && !n->owned)
        return tn_error_set(err, TN_E_UNSUPPORTED,
                            "%s (%s): is to be split, but is a component of the experiment, which other layers may "
                            "share",
                            n->name, n->instance->info->name);
    for (size_t i = 0; i < json_array_size(split->rows) && status == TN_OK; i++)
        if (json_is_string(json_array_get(split->rows, i)))
            status = divide_row(graph, n, json_string_value(json_array_get(split->rows, i)), err);
    return status;
}

/* ---- the graph ---- */

static int32_t undriven(const tn_graph *graph, const node *n, int32_t k, int32_t collective, tn_error *err)
{
    const char *from = k < 0         ? graph->nodes[graph->output].name
                       : n->input[k] ? graph->nodes[n->input[k]].name
                                     : "the batch";
    return tn_error_set(err, TN_E_UNSUPPORTED,
                        "%s behind %s needs %s %s, which this host does not drive yet; let parts begin and end "
                        "with a layer that takes and leaves whole tensors",
                        n ? n->name : "the loss", from, collective == TN_ALL_GATHER ? "an" : "a",
                        tn_flow_name(collective));
}

/* This host drives all-reduces: nothing else moves, shapes stay. */
static int32_t check_flow(const tn_graph *graph, const node *n, const tn_flow *flow, tn_error *err)
{
    for (int32_t k = 0; k < n->input_count; k++) {
        if (flow->before[k] != TN_FLOW_NONE)
            return undriven(graph, n, k, flow->before[k], err);
        if (flow->gradient[k] != TN_FLOW_NONE && flow->gradient[k] != TN_ALL_REDUCE)
            return undriven(graph, n, k, flow->gradient[k], err);
    }
    return TN_OK;
}

static int32_t shard_node(tn_graph *graph, int32_t i, const tn_split *split, const tn_flow *flow, tn_error *err)
{
    node *n = &graph->nodes[i];
    int32_t status = check_flow(graph, n, flow, err), part = split->split || flow->y == TN_PLACE_SHARD;
    if (status != TN_OK || !part)
        return status;
    status = divide_rows(graph, n, split, err);
    if (status == TN_OK)
        status = infer_part(graph, n, split, flow->y, err);
    n->reduce_y = flow->after == TN_ALL_REDUCE;
    for (int32_t k = 0; k < n->input_count; k++)
        n->reduce_dx[k] = flow->gradient[k] == TN_ALL_REDUCE;
    if (flow->y == TN_PLACE_SHARD)
        n->key ^= (uint64_t)part_of(graph) * INDEX_KEY;
    return status;
}

static int32_t make_zeros(tn_graph *graph, tn_error *err)
{
    int64_t most = 0;
    for (int32_t i = 1; i < graph->node_count; i++)
        for (int32_t k = 0; k < graph->nodes[i].parameter_count; k++) {
            int64_t n = graph->parameters.list[graph->nodes[i].parameter + k].n;
            most = graph->nodes[i].lent_zero >> k & 1 && n > most ? n : most;
        }
    graph->zeros = tn_alloc_aligned((size_t)(most * real_bytes(graph)) + 64);
    return graph->zeros ? TN_OK : tn_error_set(err, TN_E_MEMORY, "no memory for %lld zeros", (long long)most);
}

int32_t tn_graph_shard(tn_graph *graph, const tn_split *splits, const tn_flow *flows, tn_error *err)
{
    size_t count = (size_t)graph->parameters.count;
    int32_t status = TN_OK, loss = flows[graph->node_count].before[0];
    graph->wholes = tn_alloc(count + 1, sizeof *graph->wholes);
    if (!graph->wholes)
        return tn_error_set(err, TN_E_MEMORY, "no memory for the parameters' shapes");
    if (count)
        memcpy(graph->wholes, graph->parameters.list, count * sizeof *graph->wholes);
    for (int32_t i = 1; i < graph->node_count && status == TN_OK; i++)
        status = shard_node(graph, i, &splits[i], &flows[i], err);
    if (status == TN_OK && loss != TN_FLOW_NONE)
        status = undriven(graph, NULL, -1, loss, err);
    return status == TN_OK ? make_zeros(graph, err) : status;
}

void tn_shard_copy(const tn_graph *graph, int64_t index, const void *whole, void *ret)
{
    const tn_parameter *w = &graph->wholes[index], *p = &graph->parameters.list[index];
    int64_t outer = 1, inner = real_bytes(graph);
    for (int32_t i = 0; i < p->ndim; i++) {
        outer *= i < p->tensor_axis ? p->shape[i] : 1;
        inner *= i > p->tensor_axis ? p->shape[i] : 1;
    }
    int64_t run = p->shape[p->tensor_axis] * inner, stride = w->shape[p->tensor_axis] * inner;
    for (int64_t i = 0; i < outer; i++)
        memcpy((char *)ret + i * run, (const char *)whole + i * stride + p->tensor_index * run, (size_t)run);
}

/* ---- collectives ---- */

static int32_t reduce(tn_graph *graph, const node *n, const tn_tensor *tensor, int32_t backward, tn_error *err)
{
    int32_t status = tn_comm_all_reduce(group_of(graph), real_dtype(graph), tensor->data, tn_tensor_elements(tensor),
                                        TN_REDUCE_SUM, err);
    graph->reductions[backward]++;
    return status == TN_OK ? status : tn_error_wrap(err, status, "%s: summing its parts", n->name);
}

int32_t tn_shard_reduce_forward(tn_graph *graph, const node *n, const tn_tensor *y, tn_error *err)
{
    return n->reduce_y ? reduce(graph, n, y, 0, err) : TN_OK;
}

int32_t tn_shard_reduce_backward(tn_graph *graph, const node *n, tn_error *err)
{
    int32_t status = TN_OK;
    for (int32_t k = 0; k < n->input_count && status == TN_OK; k++)
        if (n->reduce_dx[k] && n->dx[k].data)
            status = reduce(graph, n, &n->dx[k], 1, err);
    return status;
}
