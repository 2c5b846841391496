/* SPDX-License-Identifier: Apache-2.0
 *
 * Pipeline parallelism. Stages of about equal cost; each process does one.
 *
 * 1f1b (Narayanan et al. 2019, PipeDream, arXiv:1806.03377; with a flush as in Narayanan et al. 2021,
 * arXiv:2104.04473): stage s of D does D - 1 - s forward passes, then forward and backward in turn, then what backward
 * is left. At most D - s micro-batches are in flight. gpipe (Huang et al. 2019, arXiv:1811.06965): all forward, then
 * all backward; all M are in flight. Both idle for (D - 1) / (M + D - 1) of the time.
 */
#include <tenon/sdk.h>
#include <tenon/strategy.h>

#define HYPER(X)                                                                                                       \
    X(choice, order, 1f1b, "1f1b | gpipe", "what a stage does first: backward as soon as it can, or all forward")
TN_DECLARE(pipeline_1f1b, HYPER)

/* ---- stages: the smallest bound on a stage's cost, found by bisection; runs up to a cut stay together ---- */

/* The cost of the run of nodes that begins at *at and ends at a cut; *at moves behind it. */
static double pipeline_run(const tn_plan_graph *graph, int64_t *at)
{
    double cost = 0;
    while (*at < graph->nodes) {
        const tn_plan_node *node = &graph->node[(*at)++];
        cost += node->cost;
        if (node->cut)
            break;
    }
    return cost;
}

static int64_t pipeline_runs(const tn_plan_graph *graph)
{
    int64_t runs = 0;
    for (int64_t at = 0; at < graph->nodes; runs++)
        pipeline_run(graph, &at);
    return runs;
}

/* Fills stages from the left up to `bound`, leaving each later stage a run; returns the largest cost of a stage. */
static double pipeline_fill(const tn_plan_graph *graph, int32_t stages, double bound, int32_t *stage_of_node)
{
    int64_t left = pipeline_runs(graph);
    double sum = 0, largest = 0;
    int32_t stage = 0, empty = 1;
    for (int64_t at = 0, first = 0; at < graph->nodes; first = at, left--) {
        double cost = pipeline_run(graph, &at);
        if (!empty && stage < stages - 1 && (sum + cost > bound || left == stages - 1 - stage)) {
            stage++;
            sum = 0;
        }
        sum += cost;
        empty = 0;
        largest = sum > largest ? sum : largest;
        for (int64_t i = first; i < at; i++)
            stage_of_node[i] = stage;
    }
    return largest;
}

static int32_t pipeline_stages(const void *hyper, const tn_mesh *mesh, const tn_plan_graph *graph,
                               int32_t *stage_of_node, tn_error *err)
{
    int64_t runs = pipeline_runs(graph);
    double low = 0, high = 0;
    (void)hyper;
    if (runs < mesh->pipeline)
        return tn_fail(err, TN_E_INVALID,
                       "strategy pipeline-1f1b: %d stages, but the model can be cut into %lld parts at most; lower the "
                       "mesh's `pipeline`",
                       mesh->pipeline, (long long)runs);
    for (int64_t i = 0; i < graph->nodes; i++)
        high += graph->node[i].cost;
    for (int i = 0; i < 60; i++) {
        double middle = low + (high - low) / 2, largest = pipeline_fill(graph, mesh->pipeline, middle, stage_of_node);
        if (largest <= middle)
            high = middle;
        else
            low = middle;
    }
    pipeline_fill(graph, mesh->pipeline, high, stage_of_node);
    return TN_OK;
}

/* ---- actions ---- */

typedef struct {
    tn_action *rows;
    int64_t room, count;
    int32_t stage;
} pipeline_table;

static void pipeline_add(pipeline_table *table, int32_t what, int32_t micro_batch)
{
    if (table->count < table->room)
        table->rows[table->count] = (tn_action){table->stage, what, micro_batch, 0};
    table->count++;
}

static int64_t pipeline_actions(const void *hyper, const tn_mesh *mesh, int32_t stage, int32_t micro_batches,
                                tn_action *rows, int64_t room, tn_error *err)
{
    const pipeline_1f1b *h = hyper;
    pipeline_table table = {rows, room, 0, stage};
    int32_t ahead =
        h->order == 1 || micro_batches < mesh->pipeline - 1 - stage ? micro_batches : mesh->pipeline - 1 - stage;
    (void)err;
    for (int32_t m = 0; m < ahead; m++)
        pipeline_add(&table, 'F', m);
    for (int32_t m = ahead; m < micro_batches; m++) {
        pipeline_add(&table, 'F', m);
        pipeline_add(&table, 'B', m - ahead);
    }
    for (int32_t m = micro_batches - ahead; m < micro_batches; m++)
        pipeline_add(&table, 'B', m);
    pipeline_add(&table, 'U', 0);
    return table.count;
}

static const tn_strategy pipeline_1f1b_table = {
    .struct_size = sizeof(tn_strategy), .stages = pipeline_stages, .actions = pipeline_actions};

TN_COMPONENT(pipeline_1f1b, "strategy", TN_STRATEGY, 0u, HYPER,
             "Stages of a pipeline, one forward and one backward in turn", TN_PAPER("arXiv:2104.04473"),
             pipeline_1f1b_table);
TN_PLUGIN("org.tenon.pipeline-1f1b", "0.1.0", "Apache-2.0", pipeline_1f1b)
