/* SPDX-License-Identifier: Apache-2.0
 *
 * strategy.h: a good strategy, stages of as many parts and all forward before all backward, in which parts may be
 * replaced before this file is included, to be wrong in one way.
 */
#ifndef TENON_TESTS_BAD_STRATEGY_H
#define TENON_TESTS_BAD_STRATEGY_H

#include <tenon/sdk.h>
#include <tenon/strategy.h>

#ifndef STRATEGY_MICRO /* (m): micro-batch of the m-th action */
#define STRATEGY_MICRO(m) (m)
#endif
#ifndef STRATEGY_FITS /* (count, room): may the row be written? */
#define STRATEGY_FITS(count, room) ((count) < (room))
#endif

/* A stage ends behind the first cut at which it has its share of nodes. */
static int32_t probe_stages(const void *hyper, const tn_mesh *mesh, const tn_plan_graph *graph, int32_t *stage_of_node,
                            tn_error *err)
{
    int32_t stage = 0;
    int64_t held = 0, share = graph->nodes / mesh->pipeline;
    (void)hyper;
    for (int64_t i = 0; i < graph->nodes; i++) {
        stage_of_node[i] = stage;
        held++;
        if (held >= (share > 1 ? share : 1) && graph->node[i].cut && stage < mesh->pipeline - 1 &&
            i + 1 < graph->nodes) {
            stage++;
            held = 0;
        }
    }
    if (stage != mesh->pipeline - 1)
        return tn_fail(err, TN_E_INVALID, "strategy probe: %d stages, the model has cuts for %d", mesh->pipeline,
                       stage + 1);
    return TN_OK;
}

static int64_t probe_put(tn_action *rows, int64_t room, int64_t count, int32_t stage, int32_t what, int32_t micro)
{
    if (STRATEGY_FITS(count, room))
        rows[count] = (tn_action){stage, what, micro, 0};
    return count + 1;
}

static int64_t probe_actions(const void *hyper, const tn_mesh *mesh, int32_t stage, int32_t micro_batches,
                             tn_action *rows, int64_t room, tn_error *err)
{
    int64_t count = 0;
    (void)hyper, (void)mesh, (void)err;
    for (int32_t m = 0; m < micro_batches; m++)
        count = probe_put(rows, room, count, stage, 'F', STRATEGY_MICRO(m));
    for (int32_t m = 0; m < micro_batches; m++)
        count = probe_put(rows, room, count, stage, 'B', m);
    return probe_put(rows, room, count, stage, 'U', 0);
}

static const tn_strategy probe_table = {
    .struct_size = sizeof(tn_strategy), .stages = probe_stages, .actions = probe_actions};

TN_COMPONENT(probe, "strategy", TN_STRATEGY, 0u, TN_NO_HYPER, "a test", "", probe_table);
TN_PLUGIN("org.tenon.test.probe", "0.1.0", "Apache-2.0", probe)

#endif
