/* SPDX-License-Identifier: Apache-2.0
 *
 * Every n-th node is kept, the others are computed again: memory for L / n + n nodes instead of L. Chen, Xu, Zhang,
 * Guestrin, arXiv:1604.06174, section 4.
 */
#include <tenon/recompute.h>
#include <tenon/sdk.h>

#define HYPER(X) X(integer, nodes, 4, "[1, inf)", "nodes of a segment, whose last one is kept; 1: all are")
TN_DECLARE(every, HYPER)

static int32_t every_plan(const void *hyper, const tn_node_cost *nodes, int64_t count, int32_t *keep, tn_error *err)
{
    int64_t segment = ((const every *)hyper)->nodes;
    (void)err;
    for (int64_t i = 0; i < count; i++)
        keep[i] = nodes[i].replayable && (i + 1) % segment != 0 ? TN_REPLAY : TN_KEEP;
    return TN_OK;
}

static const tn_recompute every_table = {sizeof(tn_recompute), 0, every_plan};
TN_COMPONENT(every, "recompute", TN_RECOMPUTE, 0, HYPER, "keep every n-th activation", TN_PAPER("arXiv:1604.06174"),
             every_table);
TN_PLUGIN("org.tenon.every", "0.1.0", "Apache-2.0", every)
