/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of the graph: a recompute policy with one fault at choice.
 */
#include <tenon/recompute.h>
#include <tenon/sdk.h>

#define HYPER(X) X(integer, nodes, 0, "[0, 3]", "0: none; 1: refuses; 2: a word that is none; 3: replays the output")
TN_DECLARE(wrong_policy, HYPER)

static int32_t wrong_policy_plan(const void *hyper, const tn_node_cost *nodes, int64_t count, int32_t *keep,
                                 tn_error *err)
{
    int64_t fault = ((const wrong_policy *)hyper)->nodes;
    if (fault == 1)
        return tn_fail(err, TN_E_INVALID, "the first node has %lld bytes", (long long)nodes[0].bytes);
    for (int64_t i = 0; i < count; i++)
        keep[i] = fault == 2 ? 7 : fault == 3 && !nodes[i].replayable ? TN_REPLAY : TN_KEEP;
    return TN_OK;
}

static const tn_recompute wrong_policy_table = {sizeof(tn_recompute), 0, wrong_policy_plan};
TN_COMPONENT(wrong_policy, "recompute", TN_RECOMPUTE, 0, HYPER, "A policy with a fault", "", wrong_policy_table);
TN_PLUGIN("org.tenon.test.wrong-policy", "0.1.0", "Apache-2.0", wrong_policy)
