/* SPDX-License-Identifier: Apache-2.0
 *
 * Of L nodes every ceil(sqrt(L))-th is kept, the others are computed again, a segment at a time: about 2 sqrt(L) are in
 * memory at once, and forward runs twice at most. Chen, Xu, Zhang, Guestrin, "Training Deep Nets with Sublinear Memory
 * Cost", arXiv:1604.06174.
 */
#include <tenon/recompute.h>
#include <tenon/sdk.h>

static int32_t sqrt_plan(const void *hyper, const tn_node_cost *nodes, int64_t count, int32_t *keep, tn_error *err)
{
    int64_t segment = 1;
    (void)hyper;
    (void)err;
    while (segment * segment < count)
        segment++;
    for (int64_t i = 0; i < count; i++)
        keep[i] = nodes[i].replayable && (i + 1) % segment != 0 ? TN_REPLAY : TN_KEEP;
    return TN_OK;
}

static const tn_recompute sqrt_table = {sizeof(tn_recompute), 0, sqrt_plan};
TN_COMPONENT(sqrt, "recompute", TN_RECOMPUTE, 0, TN_NO_HYPER, "keep about sqrt(L) of L activations",
             TN_PAPER("arXiv:1604.06174"), sqrt_table);
TN_PLUGIN("org.tenon.sqrt", "0.1.0", "Apache-2.0", sqrt)
