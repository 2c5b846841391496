/* SPDX-License-Identifier: Apache-2.0
 *
 * graph.c: making a graph, its values at the start, and looking at it.
 */
#include "host/graph/graph.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "host/base/error.h"
#include "host/base/memory.h"
#include "host/base/philox.h"
#include "host/graph/internal.h"

/* ---- initial values ---- */

static double fan(const tn_weight *weight, const int64_t *shape, int32_t ndim, int32_t axis)
{
    double extent = 1, field = 1;
    for (int32_t i = 0; i < ndim; i++)
        if (i == axis)
            extent = (double)shape[i];
        else if (i != weight->fan_in_axis && i != weight->fan_out_axis)
            field *= (double)shape[i];
    return extent * field;
}

/* Bound of the uniform rules; 0 where the fan is 0 and there is nothing to fill. */
static double bound_of(const tn_weight *w, const tn_parameter *p)
{
    double in = fan(w, p->shape, p->ndim, w->fan_in_axis), out = fan(w, p->shape, p->ndim, w->fan_out_axis);
    double square = w->init == TN_INIT_KAIMING ? 3 / in : w->init == TN_INIT_XAVIER ? 6 / (in + out) : 1 / w->b;
    return isfinite(square) ? w->a * sqrt(square) : 0;
}

static void constant(void *data, uint32_t real, int64_t n, double value)
{
    for (int64_t i = 0; i < n; i++)
        if (real == 64)
            ((double *)data)[i] = value;
        else
            ((float *)data)[i] = (float)value;
}

typedef void draw(uint64_t key, uint64_t attempt, int64_t first, int64_t n, double a, double b, uint32_t real,
                  void *ret);

/* Drawn in f64 and rounded, so that f32 and f64 runs start from the same values. */
static void fill_random(draw *function, uint64_t key, int64_t n, double a, double b, uint32_t real, void *data)
{
    double block[256];
    for (int64_t lo = 0; lo < n; lo += 256) {
        int64_t count = n - lo < 256 ? n - lo : 256;
        function(key, 0, lo, count, a, b, 64, block);
        for (int64_t i = 0; i < count; i++)
            if (real == 64)
                ((double *)data)[lo + i] = block[i];
            else
                ((float *)data)[lo + i] = (float)block[i];
    }
}

static void fill_uniform(uint64_t key, int64_t n, double lo, double hi, uint32_t real, void *data)
{
    if (lo == hi)
        constant(data, real, n, lo);
    else
        fill_random(tn_random_uniform, key, n, lo, hi, real, data);
}

static int32_t start_values(const tn_graph *graph, const tn_weight *w, const tn_parameter *p, void *data, tn_error *err)
{
    uint32_t real = graph->options.real;
    uint64_t key = tn_hash_key(graph->options.seed, p->name, "initial");
    double bound = bound_of(w, p);
    if (!isfinite(w->a) || !isfinite(w->b))
        return tn_error_set(err, TN_E_PLUGIN, "%s: the numbers of its initial-value rule, %g and %g, are not finite",
                            p->name, w->a, w->b);
    switch (w->init) {
    case TN_INIT_CONSTANT:
        constant(data, real, p->n, w->a);
        return TN_OK;
    case TN_INIT_UNIFORM:
        if (w->a > w->b)
            return tn_error_set(err, TN_E_PLUGIN, "%s: starts uniform in [%g, %g), which is empty", p->name, w->a,
                                w->b);
        fill_uniform(key, p->n, w->a, w->b, real, data);
        return TN_OK;
    case TN_INIT_NORMAL:
        fill_random(tn_random_normal, key, p->n, w->a, w->b, real, data);
        return TN_OK;
    case TN_INIT_KAIMING:
    case TN_INIT_XAVIER:
    case TN_INIT_FAN_UNIFORM:
        fill_uniform(key, p->n, -bound, bound, real, data);
        return TN_OK;
    default:
        return tn_error_set(err, TN_E_PLUGIN, "%s: initial-value rule %d is unknown to this host", p->name, w->init);
    }
}

/* A part starts as that part of the whole, which is drawn beside it. */
static int32_t start_part(const tn_graph *graph, int64_t index, void *data, tn_error *err)
{
    const tn_parameter *whole = &graph->wholes[index];
    void *values = tn_alloc((size_t)whole->n, (size_t)real_bytes(graph));
    if (!values)
        return tn_error_set(err, TN_E_MEMORY, "no memory to draw %s, %lld elements", whole->name, (long long)whole->n);
    int32_t status = start_values(graph, &graph->weights[index], whole, values, err);
    if (status == TN_OK)
        tn_shard_copy(graph, index, values, data);
    tn_free(values);
    return status;
}

static int32_t start_parameter(tn_graph *graph, int64_t index, tn_error *err)
{
    const tn_parameter *p = &graph->parameters.list[index];
    void *data = (char *)graph->parameters.p + graph->parameters.at[index] * real_bytes(graph);
    if (p->tensor_count > 1 && p->n > 0)
        return start_part(graph, index, data, err);
    return start_values(graph, &graph->weights[index], p, data, err);
}

int32_t tn_graph_initialise(tn_graph *graph, tn_error *err)
{
    int32_t status = TN_OK;
    for (int64_t i = 0; i < graph->parameters.count && status == TN_OK; i++)
        status = start_parameter(graph, i, err);
    for (int32_t i = 0; i < graph->buffer_count; i++)
        constant(graph->buffers[i].tensor.data, graph->options.real, tn_tensor_elements(&graph->buffers[i].tensor),
                 graph->buffer_initial[i]);
    tn_graph_copy_buffers(graph);
    return status;
}

void tn_graph_copy_buffers(tn_graph *graph)
{
    memcpy(graph->buffer_arena + graph->buffer_bytes, graph->buffer_arena, (size_t)graph->buffer_bytes);
}

/* ---- life ---- */

int32_t tn_graph_create(const tn_graph_options *options, tn_graph **ret, tn_error *err)
{
    if (options->batch < 1)
        return tn_error_set(err, TN_E_INVALID, "the batch is %lld; at least 1 is needed", (long long)options->batch);
    tn_graph *graph = tn_alloc(1, sizeof *graph);
    if (!graph)
        return tn_error_set(err, TN_E_MEMORY, "no memory for the graph");
    graph->options = *options;
    graph->compute_host = (tn_compute_host){.backend = options->backend, .pool = options->pool};
    graph->compute = tn_compute_open(&graph->compute_host);
    int32_t status = tn_graph_build(graph, err);
    if (status == TN_OK)
        status = tn_graph_divide(graph, err);
    if (status == TN_OK)
        status = tn_graph_plan(graph, err);
    if (status == TN_OK)
        status = tn_loss_open(graph, err);
    if (status == TN_OK)
        status = tn_graph_initialise(graph, err);
    if (status != TN_OK) {
        tn_graph_destroy(graph);
        return status;
    }
    *ret = graph;
    return TN_OK;
}

void tn_graph_destroy(tn_graph *graph)
{
    if (!graph)
        return;
    for (int32_t i = 0; i < graph->node_count; i++) {
        tn_free(graph->nodes[i].name);
        if (graph->nodes[i].owned)
            tn_instance_free(graph->nodes[i].instance);
    }
    for (int64_t i = 0; i < graph->parameters.count; i++) {
        tn_free((void *)graph->parameters.list[i].name);
        tn_free((void *)graph->parameters.list[i].layer);
    }
    for (int32_t i = 0; i < graph->buffer_count; i++)
        tn_free((void *)graph->buffers[i].name);
    tn_tangents_free(graph->tangents);
    void *const owned[] = {graph->nodes,
                           graph->weights,
                           graph->parameters.list,
                           graph->parameters.at,
                           graph->parameters.present,
                           graph->parameters.p,
                           graph->parameters.g,
                           graph->parameter_tensors,
                           graph->buffers,
                           graph->buffer_tensors,
                           graph->buffer_initial,
                           graph->steps,
                           graph->places,
                           graph->arena,
                           graph->buffer_arena,
                           graph->partials,
                           graph->workspace,
                           graph->stored,
                           graph->round_sums,
                           graph->inputs,
                           graph->targets,
                           graph->wholes,
                           graph->zeros,
                           graph->sampled,
                           graph->metrics,
                           graph};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        tn_free(owned[i]);
}

/* ---- looking in ---- */

tn_parameters *tn_graph_parameters(tn_graph *graph) { return &graph->parameters; }
void *tn_graph_input(tn_graph *graph) { return graph->input; }
void *tn_graph_target(tn_graph *graph) { return graph->target; }
const tn_tensor *tn_graph_output(const tn_graph *graph) { return &graph->nodes[graph->output].pass[FIRST].out; }

size_t tn_graph_metrics(const tn_graph *graph, const char *const **ret)
{
    *ret = graph->metrics;
    return graph->metric_count;
}

size_t tn_graph_buffers(const tn_graph *graph, const tn_graph_buffer **ret)
{
    *ret = graph->buffers;
    return (size_t)graph->buffer_count;
}

tn_graph_memory tn_graph_memory_of(const tn_graph *graph)
{
    int64_t arena = graph->parameters.elements * real_bytes(graph);
    return (tn_graph_memory){.parameters = arena,
                             .gradients = arena,
                             .buffers = 2 * graph->buffer_bytes,
                             .input = graph->sets * (graph->input_bytes + graph->target_bytes),
                             .activations = graph->sets * graph->arena_bytes,
                             .activations_unshared = graph->unshared_bytes,
                             .partials = graph->partial_bytes,
                             .workspace =
                                 (graph->workspace_bytes + graph->stored_bytes) * tn_pool_threads(graph->options.pool)};
}

void tn_graph_describe(const tn_graph *graph, tn_text *text)
{
    for (int32_t i = 1; i < graph->node_count; i++) {
        const node *n = &graph->nodes[i];
        int64_t parameters = 0;
        for (int32_t k = 0; k < n->parameter_count; k++)
            parameters += graph->parameters.list[n->parameter + k].n;
        tn_text_addf(text, "  %-24s %-14s [batch", n->name, n->instance->info->name);
        for (int32_t d = 1; d < n->output.view.ndim; d++)
            tn_text_addf(text, ", %lld", (long long)n->output.shape[d]);
        tn_text_addf(text, "]  %lld%s\n", (long long)parameters, n->replayed ? "  replayed" : "");
    }
}
