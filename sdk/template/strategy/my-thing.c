/* SPDX-License-Identifier: Apache-2.0
 *
 * A pipeline with all forward passes before all backward ones (GPipe: Huang et al., NeurIPS 2019, arXiv:1811.06965);
 * stages have about as many layers each.
 */
#include <tenon/sdk.h>
#include <tenon/strategy.h>

/* The last node of each part that can not be cut further. */
static int64_t my_thing_parts(const tn_plan_graph *graph)
{
    int64_t parts = 0;
    for (int64_t i = 0; i < graph->nodes; i++)
        parts += graph->node[i].cut || i == graph->nodes - 1;
    return parts;
}

/* The stage of each node: rising, and only behind a cut. Part i of n belongs to stage i * stages / n. */
static int32_t my_thing_stages(const void *hyper, const tn_mesh *mesh, const tn_plan_graph *graph,
                               int32_t *stage_of_node, tn_error *err)
{
    int64_t parts = my_thing_parts(graph), part = 0;
    (void)hyper;
    if (parts < mesh->pipeline)
        return tn_fail(err, TN_E_INVALID,
                       "strategy my-thing: %d stages, but the model can be cut into %lld parts at most; lower the "
                       "mesh's `pipeline`",
                       (int)mesh->pipeline, (long long)parts);
    for (int64_t i = 0; i < graph->nodes; i++) {
        stage_of_node[i] = (int32_t)(part * mesh->pipeline / parts);
        part += graph->node[i].cut != 0;
    }
    return TN_OK;
}

static void my_thing_add(tn_action *rows, int64_t room, int64_t at, int32_t stage, int32_t what, int32_t micro_batch)
{
    const tn_action action = {stage, what, micro_batch, 0};
    if (at < room)
        rows[at] = action;
}

/* What a stage does, in order; fills at most `room` rows and returns how many there are. */
static int64_t my_thing_actions(const void *hyper, const tn_mesh *mesh, int32_t stage, int32_t micro_batches,
                                tn_action *rows, int64_t room, tn_error *err)
{
    (void)hyper, (void)mesh, (void)err;
    for (int32_t i = 0; i < micro_batches; i++) {
        my_thing_add(rows, room, i, stage, 'F', i);
        my_thing_add(rows, room, (int64_t)micro_batches + i, stage, 'B', i);
    }
    my_thing_add(rows, room, 2 * (int64_t)micro_batches, stage, 'U', 0);
    return 2 * (int64_t)micro_batches + 1;
}

static const tn_strategy my_thing_table = {
    .struct_size = sizeof(tn_strategy), .stages = TN_CALL(my_thing_stages), .actions = TN_CALL(my_thing_actions)};
TN_COMPONENT(my_thing, "strategy", TN_STRATEGY, 0u, TN_NO_HYPER, "A pipeline: all forward, then all backward",
             TN_PAPER("arXiv:1811.06965"), my_thing_table);
TN_PLUGIN("org.example.my-thing", "0.1.0", "Apache-2.0", my_thing)
