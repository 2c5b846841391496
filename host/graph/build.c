/* SPDX-License-Identifier: Apache-2.0
 *
 * build.c: the model's calls -> nodes with shapes, parameters, buffers and saved tensors.
 */
#include <jansson.h>
#include <string.h>

#include "host/base/error.h"
#include "host/base/memory.h"
#include "host/base/philox.h"
#include "host/base/take.h"
#include "host/graph/internal.h"

#define ROUNDS_MOST 16 /* of a layer, in each direction */

void tn_tensor_set(owned_tensor *tensor, tn_dtype dtype, int32_t ndim, const int64_t *shape)
{
    int64_t stride = 1;
    for (int32_t i = ndim - 1; i >= 0; i--) {
        tensor->shape[i] = shape[i];
        tensor->strides[i] = stride;
        stride *= shape[i];
    }
    tensor->view = (tn_tensor){.device = {TN_CPU, 0}, .ndim = ndim, .dtype = dtype};
}

/* The inside pointers, which change when the node array moves. */
static const tn_tensor *view_of(owned_tensor *tensor)
{
    tensor->view.shape = tensor->shape;
    tensor->view.strides = tensor->strides;
    return &tensor->view;
}

int64_t tn_tensor_elements(const tn_tensor *tensor)
{
    int64_t elements = 1;
    for (int32_t i = 0; i < tensor->ndim; i++)
        elements *= tensor->shape[i];
    return elements;
}

int64_t tn_tensor_bytes(const tn_tensor *tensor) { return tn_tensor_elements(tensor) * (tensor->dtype.bits / 8); }

/* ---- facts of a layer's note ---- */

static int32_t read_facts(node *n, tn_error *err)
{
    const json_t *facts = n->instance->info->facts;
    static const char *const axes[] = {"whole", "rows", "columns", "elements"};
    const char *axis = tn_fact_text(facts, "axis", "whole"), *keeps = tn_fact_text(facts, "keeps", "none"),
               *tap = tn_fact_text(facts, "tap", "");
    int32_t which = 0;
    while (which < 4 && strcmp(axes[which], axis) != 0)
        which++;
    if (which == 4)
        return tn_error_set(err, TN_E_PLUGIN,
                            "%s: axis \"%s\" is unknown; this host knows whole, rows, columns, elements",
                            n->instance->info->name, axis);
    n->axis = (node_axis)which;
    n->keeps_input = !strcmp(keeps, "input") || !strcmp(keeps, "both");
    n->keeps_output = !strcmp(keeps, "output") || !strcmp(keeps, "both");
    if (!n->keeps_input && !n->keeps_output && strcmp(keeps, "none") != 0)
        return tn_error_set(err, TN_E_PLUGIN, "%s: keeps \"%s\" is unknown; needed: input, output, both or none",
                            n->instance->info->name, keeps);
    n->in_place = json_is_true(json_object_get(facts, "in_place"));
    n->taps = tap[0] != 0;
    if (n->taps && strcmp(tap, "linear") != 0)
        return tn_error_set(err, TN_E_PLUGIN, "%s: tap \"%s\" is unknown; this host knows linear",
                            n->instance->info->name, tap);
    if (n->taps && !n->keeps_input)
        return tn_error_set(err, TN_E_PLUGIN, "%s: offers taps, which show its input, but keeps \"%s\"; needed: input",
                            n->instance->info->name, keeps);
    return TN_OK;
}

/* ---- the planner lent to infer ---- */

typedef struct {
    tn_graph *graph;
    node *node;
    tn_error *err;
    int32_t status; /* of the first planner call that failed */
} planning;

int32_t tn_shape_check(const char *who, const char *what, int32_t ndim, const int64_t *shape, tn_error *err)
{
    int64_t elements = 1; /* of the extents that are not 0: strides are products of them */
    if (ndim < 0 || ndim > TN_MAX_DIMS)
        return tn_error_set(err, TN_E_INVALID, "%s: %s has %d dimensions; 0 to %d are allowed", who, what, ndim,
                            TN_MAX_DIMS);
    for (int32_t i = 0; i < ndim; i++) {
        int64_t extent = shape[i] > 0 ? shape[i] : 1;
        if (shape[i] < 0 || extent > ELEMENTS_MAX / elements)
            return tn_error_set(err, TN_E_INVALID, "%s: extent %d of %s is %lld: %s", who, i, what, (long long)shape[i],
                                shape[i] < 0 ? "at least 0 is needed" : "that is more than 2^40 elements in all");
        elements *= extent;
    }
    return TN_OK;
}

/* Planner calls stay failed: a layer that goes on after a refusal must not run with less than it asked for. */
static int32_t settle(planning *plan, int32_t status)
{
    if (plan->status == TN_OK)
        plan->status = status;
    return status;
}

static int32_t check_shape(planning *plan, const char *what, int32_t ndim, const int64_t *shape)
{
    if (plan->status != TN_OK)
        return plan->status;
    return settle(plan, tn_shape_check(plan->node->name, what, ndim, shape, plan->err));
}

static int32_t refuse(planning *plan, const char *text)
{
    return settle(plan, tn_error_set(plan->err, TN_E_PLUGIN, "%s (%s): %s", plan->node->name,
                                     plan->node->instance->info->name, text));
}

static int32_t plan_output(void *host, int32_t ndim, const int64_t *shape)
{
    planning *plan = host;
    int32_t status = check_shape(plan, "the output", ndim, shape);
    if (status == TN_OK && (ndim < 1 || shape[0] != plan->graph->options.batch))
        return refuse(plan, "the first extent of its output is not the batch");
    if (status == TN_OK && plan->node->output.view.ndim > 0)
        return refuse(plan, "plans two outputs; one is needed");
    if (status == TN_OK)
        tn_tensor_set(&plan->node->output, real_dtype(plan->graph), ndim, shape);
    return status;
}

static int32_t no_memory(planning *plan)
{
    return settle(plan, tn_error_set(plan->err, TN_E_MEMORY, "%s: no memory for its plan", plan->node->name));
}

static int32_t add_parameter(planning *plan, const tn_weight *weight)
{
    tn_graph *graph = plan->graph;
    tn_parameters *all = &graph->parameters;
    size_t index = (size_t)all->count, capacity = graph->parameter_capacity, second = capacity;
    if (tn_grow(&all->list, &capacity, index, sizeof *all->list) ||
        tn_grow(&graph->weights, &second, index, sizeof *graph->weights))
        return no_memory(plan);
    graph->parameter_capacity = capacity;
    tn_parameter *p = &all->list[index];
    *p = (tn_parameter){.struct_size = sizeof *p,
                        .role = weight->role,
                        .ndim = weight->ndim,
                        .dtype = real_dtype(graph),
                        .fan_in_axis = weight->fan_in_axis,
                        .fan_out_axis = weight->fan_out_axis,
                        .tied = -1,
                        .tensor_axis = -1,
                        .replicas = 1,
                        .n = 1};
    for (int32_t i = 0; i < weight->ndim; i++) {
        p->shape[i] = weight->shape[i];
        p->n *= weight->shape[i];
    }
    graph->weights[index] = *weight;
    graph->weights[index].name = NULL;
    graph->weights[index].shape = NULL;
    all->count++;
    plan->node->parameter_count++;
    p->name = tn_format("%s.%s", plan->node->name, weight->name);
    p->layer = tn_strdup(plan->node->name);
    return p->name && p->layer ? TN_OK : no_memory(plan);
}

/* Is "<node>.<name>" one of this node's parameters already? */
static int has_parameter(const planning *plan, const char *name)
{
    size_t prefix = strlen(plan->node->name) + 1;
    for (int32_t k = 0; k < plan->node->parameter_count; k++)
        if (!strcmp(plan->graph->parameters.list[plan->node->parameter + k].name + prefix, name))
            return 1;
    return 0;
}

static int32_t plan_parameter(void *host, const tn_weight *given)
{
    planning *plan = host;
    tn_weight weight;
    tn_take(&weight, sizeof weight, given);
    if (plan->status == TN_OK && (!weight.name || !weight.name[0] || has_parameter(plan, weight.name)))
        return refuse(plan, "a parameter has no name, or one that another has");
    if (plan->status == TN_OK && plan->node->parameter_count == MAX_PORTS)
        return refuse(plan, "plans more than 8 parameters");
    int32_t status = check_shape(plan, "a parameter", weight.ndim, weight.shape);
    return status == TN_OK ? add_parameter(plan, &weight) : status;
}

static int32_t plan_buffer(void *host, const char *name, int32_t ndim, const int64_t *shape, double initial)
{
    planning *plan = host;
    tn_graph *graph = plan->graph;
    size_t index = (size_t)graph->buffer_count, a = graph->buffer_capacity, b = a, c = a;
    int32_t status = check_shape(plan, "a buffer", ndim, shape);
    if (status != TN_OK)
        return status;
    if (!name || !name[0])
        return refuse(plan, "a buffer has no name");
    if (plan->node->buffer_count == MAX_PORTS)
        return refuse(plan, "plans more than 8 buffers");
    for (int32_t k = plan->node->buffer; k < graph->buffer_count; k++)
        if (!strcmp(graph->buffers[k].name + strlen(plan->node->name) + 1, name))
            return refuse(plan, "plans two buffers of one name");
    if (tn_grow(&graph->buffers, &a, index, sizeof *graph->buffers) ||
        tn_grow(&graph->buffer_tensors, &b, index, sizeof *graph->buffer_tensors) ||
        tn_grow(&graph->buffer_initial, &c, index, sizeof *graph->buffer_initial))
        return no_memory(plan);
    graph->buffer_capacity = a;
    graph->buffers[index].name = tn_format("%s.%s", plan->node->name, name);
    if (!graph->buffers[index].name)
        return no_memory(plan);
    tn_tensor_set(&graph->buffer_tensors[index], real_dtype(graph), ndim, shape);
    graph->buffer_initial[index] = initial;
    graph->buffer_count++;
    plan->node->buffer_count++;
    return TN_OK;
}

static int32_t plan_saved(void *host, tn_dtype dtype, int32_t ndim, const int64_t *shape)
{
    planning *plan = host;
    node *n = plan->node;
    int32_t status = check_shape(plan, "a saved tensor", ndim, shape);
    if (status != TN_OK)
        return status;
    if (n->saved_count == MAX_PORTS)
        return refuse(plan, "plans more than 8 saved tensors");
    if (dtype.bits &&
        ((dtype.bits != 8 && dtype.bits != 16 && dtype.bits != 32 && dtype.bits != 64) || dtype.lanes != 1))
        return refuse(plan, "plans a saved tensor whose type is not one lane of 8, 16, 32 or 64 bits");
    tn_tensor_set(&n->saved[n->saved_count++], dtype.bits ? dtype : real_dtype(plan->graph), ndim, shape);
    return TN_OK;
}

static int32_t plan_workspace(void *host, int64_t bytes)
{
    planning *plan = host;
    if (bytes < 0 || bytes > ELEMENTS_MAX)
        return refuse(plan, "plans a scratch of less than 0 or more than 2^40 bytes");
    if (bytes > plan->node->workspace)
        plan->node->workspace = bytes;
    return plan->status;
}

/* ---- the builder lent to models ---- */

static int32_t check_inputs(tn_graph *graph, node *n, const int64_t *inputs, int64_t count, tn_error *err)
{
    if (count < 1 || count > MAX_PORTS)
        return tn_error_set(err, TN_E_INVALID, "%s: %lld inputs; 1 to %d are allowed", n->name, (long long)count,
                            MAX_PORTS);
    for (int64_t i = 0; i < count; i++) {
        if (inputs[i] < 0 || inputs[i] >= graph->node_count)
            return tn_error_set(err, TN_E_INVALID, "%s: input %lld is no earlier node", n->name, (long long)inputs[i]);
        n->input[i] = (int32_t)inputs[i];
    }
    n->input_count = (int32_t)count;
    return TN_OK;
}

static int32_t check_name(const tn_graph *graph, const char *name, tn_error *err)
{
    for (int32_t i = 1; i < graph->node_count; i++)
        if (!strcmp(graph->nodes[i].name, name))
            return tn_error_set(err, TN_E_INVALID, "the model names two layers \"%s\"", name);
    return TN_OK;
}

static int32_t infer(tn_graph *graph, node *n, tn_error *err)
{
    tn_tensor x[MAX_PORTS];
    planning plan = {graph, n, err, TN_OK};
    tn_layer_planner planner = {sizeof planner, 0,           &plan,      plan_output,
                                plan_parameter, plan_buffer, plan_saved, plan_workspace};
    int32_t has_gradient = 0;
    for (int32_t i = 0; i < n->input_count; i++) {
        x[i] = *view_of(&graph->nodes[n->input[i]].output);
        has_gradient |= graph->nodes[n->input[i]].needs_gradient;
    }
    n->parameter = (int32_t)graph->parameters.count;
    n->buffer = graph->buffer_count;
    tn_error_clear(err);
    int32_t status = n->table.infer(n->instance->hyper, x, n->input_count, &planner, err);
    if (plan.status != TN_OK)
        return plan.status; /* said already, with the node's name */
    if (status != TN_OK)
        return tn_error_wrap(err, status, "%s (%s)", n->name, n->instance->info->name);
    if (n->output.view.ndim == 0)
        return tn_error_set(err, TN_E_PLUGIN, "%s (%s): planned no output", n->name, n->instance->info->name);
    n->needs_gradient = has_gradient || n->parameter_count > 0;
    return TN_OK;
}

static int32_t take_rounds(node *n, tn_error *err)
{
    const char *name = n->instance->info->name;
    if (!n->table.rounds)
        return TN_OK;
    tn_take(&n->rounds, sizeof n->rounds, n->table.rounds);
    if (!n->rounds.count || !n->rounds.partial || n->rounds.forward < 0 || n->rounds.backward < 0)
        return tn_error_set(err, TN_E_PLUGIN, "%s: its table of rounds lacks count or partial, or has less than 0",
                            name);
    if (n->rounds.forward > ROUNDS_MOST || n->rounds.backward > ROUNDS_MOST)
        return tn_error_set(err, TN_E_PLUGIN, "%s: has %d and %d rounds; at most %d are allowed", name,
                            n->rounds.forward, n->rounds.backward, ROUNDS_MOST);
    if (n->axis != AXIS_COLUMNS)
        return tn_error_set(err, TN_E_UNSUPPORTED,
                            "%s: has rounds on another axis than columns, which this host does "
                            "not drive",
                            name);
    return TN_OK;
}

static int32_t fill_node(tn_graph *graph, node *n, const int64_t *inputs, int64_t count, tn_error *err)
{
    int32_t status = check_name(graph, n->name, err);
    if (status == TN_OK)
        status = check_inputs(graph, n, inputs, count, err);
    if (status == TN_OK)
        status = read_facts(n, err);
    if (status == TN_OK)
        status = tn_instance_load(n->instance, graph->options.registry, &n->table, sizeof n->table, err);
    if (status == TN_OK && (!n->table.infer || !n->table.forward || !n->table.backward))
        status =
            tn_error_set(err, TN_E_PLUGIN, "%s: its table lacks infer, forward or backward", n->instance->info->name);
    if (status == TN_OK)
        status = take_rounds(n, err);
    if (status == TN_OK)
        status = infer(graph, n, err);
    if (status == TN_OK && n->taps && n->parameter_count < 1)
        status = tn_error_set(err, TN_E_PLUGIN, "%s (%s): offers taps, but plans no parameter", n->name,
                              n->instance->info->name);
    return status;
}

/* Takes the instance if `owned`, also on failure. */
static int64_t add_node(tn_graph *graph, tn_instance *instance, int32_t owned, const char *name, const int64_t *inputs,
                        int64_t count)
{
    tn_error *err = graph->build_error;
    if (strcmp(instance->entry->interface, TN_LAYER) != 0) {
        tn_error_set(err, TN_E_INVALID, "%s: %s is a %s, not a layer", name, instance->info->name,
                     instance->info->kind);
        if (owned)
            tn_instance_free(instance);
        return -TN_E_INVALID;
    }
    if (graph->node_count == NODES_MAX ||
        tn_grow(&graph->nodes, &graph->node_capacity, (size_t)graph->node_count, sizeof *graph->nodes)) {
        if (owned)
            tn_instance_free(instance);
        return -tn_error_set(err, TN_E_MEMORY, "%s: no memory for another node", name);
    }
    node *n = &graph->nodes[graph->node_count];
    *n = (node){.name = tn_strdup(name),
                .instance = instance,
                .owned = owned,
                .key = tn_hash_key(graph->options.seed, name, "layer"),
                .storage_key = tn_hash_key(graph->options.seed, name, "storage")};
    int32_t status = n->name ? fill_node(graph, n, inputs, count, err) : tn_error_set(err, TN_E_MEMORY, "no memory");
    graph->node_count++; /* counted even when half built, so that destroy frees it */
    return status == TN_OK ? graph->node_count - 1 : -status;
}

/* The first failure of a builder call stays, whatever the model makes of it. */
static int64_t stick(tn_graph *graph, int64_t result)
{
    if (result < 0 && graph->build_status == TN_OK)
        graph->build_status = (int32_t)-result;
    return result;
}

static int64_t build_layer(void *host, const char *kind, const char *name, const char *instance,
                           const tn_setting *settings, int64_t setting_count, const int64_t *inputs,
                           int64_t input_count)
{
    tn_graph *graph = host;
    tn_instance *made;
    if (graph->build_status != TN_OK)
        return -graph->build_status;
    int32_t status = tn_instance_create(graph->options.registry, kind, name, graph->options.real, instance, settings,
                                        (size_t)setting_count, &made, graph->build_error);
    return stick(graph, status == TN_OK ? add_node(graph, made, 1, instance, inputs, input_count) : -status);
}

static int64_t build_child(void *host, int64_t handle, const char *instance, const int64_t *inputs, int64_t input_count)
{
    tn_graph *graph = host;
    if (graph->build_status != TN_OK)
        return -graph->build_status;
    if (handle < 0 || handle >= (int64_t)graph->options.model->child_count)
        return stick(graph, -tn_error_set(graph->build_error, TN_E_INVALID, "%s: the model has no child component %lld",
                                          instance, (long long)handle));
    return stick(graph, add_node(graph, graph->options.model->children[handle], 0, instance, inputs, input_count));
}

static int64_t build_shape(void *host, int64_t index, int64_t *ret)
{
    tn_graph *graph = host;
    if (index < 0 || index >= graph->node_count)
        return -tn_error_set(graph->build_error, TN_E_INVALID,
                             "the model asks for the shape of node %lld, which is not there", (long long)index);
    const owned_tensor *output = &graph->nodes[index].output;
    memcpy(ret, output->shape, (size_t)output->view.ndim * sizeof *ret);
    return output->view.ndim;
}

static int32_t add_input(tn_graph *graph, int64_t shape[TN_MAX_DIMS], tn_error *err)
{
    const tn_graph_options *o = &graph->options;
    if (o->ndim + 1 > TN_MAX_DIMS)
        return tn_error_set(err, TN_E_INVALID, "samples have %d dimensions; at most %d are allowed", o->ndim,
                            TN_MAX_DIMS - 1);
    shape[0] = o->batch;
    for (int32_t i = 0; i < o->ndim; i++)
        shape[1 + i] = o->shape[i];
    int32_t status = tn_shape_check("data", "a batch", o->ndim + 1, shape, err);
    if (status != TN_OK)
        return status;
    if (tn_grow(&graph->nodes, &graph->node_capacity, 0, sizeof *graph->nodes) ||
        !(graph->nodes[0].name = tn_strdup("input")))
        return tn_error_set(err, TN_E_MEMORY, "no memory for the graph");
    tn_tensor_set(&graph->nodes[0].output, real_dtype(graph), o->ndim + 1, shape);
    graph->node_count = 1;
    return TN_OK;
}

static void count_consumers(tn_graph *graph)
{
    for (int32_t i = 0; i < graph->node_count; i++) {
        node *n = &graph->nodes[i];
        view_of(&n->output);
        for (int32_t s = 0; s < n->saved_count; s++)
            view_of(&n->saved[s]);
        for (int32_t j = 0; j < n->input_count; j++) {
            graph->nodes[n->input[j]].consumers++;
            graph->nodes[n->input[j]].last_consumer = i;
        }
    }
    for (int32_t i = 0; i < graph->buffer_count; i++)
        view_of(&graph->buffer_tensors[i]);
}

static int32_t run_model(tn_graph *graph, const tn_model *model, const int64_t *shape, tn_error *err)
{
    const char *name = graph->options.model->info->name;
    tn_error local = {0};
    tn_builder builder = {sizeof builder, 0, graph, build_layer, build_child, build_shape};
    const tn_graph_options *o = &graph->options;
    tn_model_input input = {
        sizeof input, o->ndim + 1, shape, o->classes, o->target_ndim, 0, o->target_ndim ? o->target_shape : NULL};
    graph->build_error = err ? err : &local;
    tn_error_clear(graph->build_error);
    int64_t output = model->build(graph->options.model->hyper, &input, &builder, graph->build_error);
    if (graph->build_status != TN_OK)
        return graph->build_status;
    if (output < 0)
        return tn_error_wrap(err, output >= INT32_MIN + 1 ? (int32_t)-output : TN_E_PLUGIN, "model %s", name);
    if (output == 0 || output != graph->node_count - 1)
        return tn_error_set(err, TN_E_PLUGIN,
                            "model %s: its output is node %lld, needed its last layer, %d: every other must feed one",
                            name, (long long)output, graph->node_count - 1);
    graph->output = (int32_t)output;
    return TN_OK;
}

int32_t tn_graph_build(tn_graph *graph, tn_error *err)
{
    int64_t shape[TN_MAX_DIMS];
    tn_model model;
    int32_t status = add_input(graph, shape, err);
    if (status == TN_OK)
        status = tn_registry_load(graph->options.registry, graph->options.model->entry, &model, sizeof model, err);
    if (status == TN_OK && !model.build)
        status = tn_error_set(err, TN_E_PLUGIN, "model %s: its table lacks build", graph->options.model->info->name);
    if (status == TN_OK)
        status = run_model(graph, &model, shape, err);
    if (status == TN_OK)
        count_consumers(graph);
    return status;
}
