/* SPDX-License-Identifier: Apache-2.0
 *
 * loss.c: the loss at the end of the forward pass, over rows; its targets may be drawn from the model itself.
 */
#include <jansson.h>

#include "host/base/error.h"
#include "host/base/memory.h"
#include "host/base/philox.h"
#include "host/graph/internal.h"

/* ---- opening ---- */

static int32_t read_metrics(tn_graph *graph, tn_error *err)
{
    const tn_instance *loss = graph->options.loss;
    const json_t *names = json_object_get(loss->info->facts, "metrics");
    size_t count = json_array_size(names);
    graph->metrics = tn_alloc(count + 1, sizeof *graph->metrics);
    if (!graph->metrics)
        return tn_error_set(err, TN_E_MEMORY, "no memory for the metrics' names");
    for (size_t i = 0; i < count; i++)
        if (json_is_string(json_array_get(names, i)))
            graph->metrics[graph->metric_count++] = json_string_value(json_array_get(names, i));
    if (graph->metric_count > TN_SUMS_MAX - TN_SUM_FIRST)
        return tn_error_set(err, TN_E_PLUGIN, "%s: %zu metrics; at most %d are allowed", loss->info->name,
                            graph->metric_count, TN_SUMS_MAX - TN_SUM_FIRST);
    return TN_OK;
}

int32_t tn_loss_open(tn_graph *graph, tn_error *err)
{
    const tn_instance *loss = graph->options.loss;
    const tn_tensor *target = &graph->target_tensor.view;
    int32_t status = tn_registry_load(graph->options.registry, loss->entry, &graph->loss, sizeof graph->loss, err);
    if (status != TN_OK)
        return status;
    if (!graph->loss.check || !graph->loss.evaluate)
        return tn_error_set(err, TN_E_PLUGIN, "%s: its table lacks check or evaluate", loss->info->name);
    tn_error_clear(err);
    status = graph->loss.check(loss->hyper, &graph->nodes[graph->output].pass[FIRST].out, target, err);
    if (status != TN_OK)
        return tn_error_wrap(err, status, "loss %s", loss->info->name);
    graph->loss_key = tn_hash_key(graph->options.seed, "loss", "loss");
    graph->sample_key = tn_hash_key(graph->options.seed, "loss", "sample");
    if (graph->loss.sample_targets && !(graph->sampled = tn_alloc_aligned((size_t)tn_tensor_bytes(target) + 64)))
        return tn_error_set(err, TN_E_MEMORY, "no memory for sampled targets");
    return read_metrics(graph, err);
}

int32_t tn_graph_offers_samples(const tn_graph *graph, tn_error *err)
{
    if (graph->loss.sample_targets)
        return TN_OK;
    return tn_error_set(err, TN_E_UNSUPPORTED, "loss %s: draws no targets (its table lacks sample_targets)",
                        graph->options.loss->info->name);
}

/* ---- running ---- */

typedef struct {
    tn_graph *graph;
    tn_loss_call call;
    tn_context context, sample_context;
    const tn_tensor *sampled; /* to be drawn and used; NULL: the data's targets */
    int64_t extent, total;
} loss_execution;

static void loss_piece(void *arg, int64_t index, int32_t thread)
{
    const loss_execution *e = arg;
    tn_loss_call call = e->call;
    (void)thread;
    call.lo = index * e->extent;
    call.n = e->total - call.lo < e->extent ? e->total - call.lo : e->extent;
    call.sums = e->graph->loss_sums[index];
    if (e->sampled) {
        call.context = &e->sample_context;
        e->graph->loss.sample_targets(&call, e->sampled);
        call.context = &e->context;
        call.target = e->sampled;
    }
    e->graph->loss.evaluate(&call);
}

void tn_loss_run(tn_graph *graph, const tn_graph_run *run, tn_exact *sums)
{
    const node *output = &graph->nodes[graph->output];
    const tn_tensor *x = &output->pass[FIRST].out;
    tn_tensor sampled = graph->target_tensor.view;
    int64_t rows = run->n > 1 ? run->n : 1, row = tn_tensor_elements(x) / rows;
    loss_execution e = {.graph = graph,
                        .context = tn_run_context(graph, graph->loss_key, run),
                        .sample_context = tn_run_context(graph, graph->sample_key, run),
                        .sampled = run->sampled ? &sampled : NULL,
                        .total = run->n};
    sampled.data = graph->sampled;
    int64_t wanted = ceil_div(PIECE_ELEMENTS, row > 1 ? row : 1), least = ceil_div(run->n, PIECES_MAX);
    e.extent = wanted > least ? wanted : least;
    e.call = (tn_loss_call){.struct_size = sizeof e.call,
                            .hyper = graph->options.loss->hyper,
                            .context = &e.context,
                            .x = x,
                            .target = &graph->target_tensor.view,
                            .dx = run->flags & TN_TRAIN ? &output->dout : NULL,
                            .seed = run->seed};
    int64_t pieces = ceil_div(e.total, e.extent);
    tn_pool_run(graph->options.pool, loss_piece, &e, pieces);
    for (int64_t i = 0; i < pieces && !run->sampled; i++)
        for (size_t s = 0; s < TN_SUM_FIRST + graph->metric_count; s++)
            tn_exact_add(&sums[s], graph->loss_sums[i][s]);
}
