/* SPDX-License-Identifier: Apache-2.0
 *
 * recompute.h: a good policy, in which parts may be replaced before this file is included, to be wrong in one way.
 */
#ifndef TENON_TESTS_BAD_RECOMPUTE_H
#define TENON_TESTS_BAD_RECOMPUTE_H

#include <tenon/recompute.h>
#include <tenon/sdk.h>

#ifndef POLICY_REPLAYS /* (nodes, i) */
#define POLICY_REPLAYS(nodes, i) ((nodes)[i].replayable && (i) % 3 != 2)
#endif

static int32_t probe_plan(const void *hyper, const tn_node_cost *nodes, int64_t count, int32_t *keep, tn_error *err)
{
    (void)hyper, (void)nodes, (void)err;
    for (int64_t i = 0; i < count; i++)
        keep[i] = POLICY_REPLAYS(nodes, i) ? TN_REPLAY : TN_KEEP;
    return TN_OK;
}

static const tn_recompute probe_table = {sizeof(tn_recompute), 0, probe_plan};

TN_COMPONENT(probe, "recompute", TN_RECOMPUTE, 0u, TN_NO_HYPER, "a test", "", probe_table);
TN_PLUGIN("org.tenon.test.probe", "0.1.0", "Apache-2.0", probe)

#endif
