/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes again what is cheap: nodes that take few operations for each byte they keep, such as activations and
 * normalizers; products are kept (Chen, Xu, Zhang and Guestrin 2016, arXiv:1604.06174).
 */
#include <tenon/recompute.h>
#include <tenon/sdk.h>

#define HYPER(X) X(fixed, most, 4, "[0, inf)", "operations of forward for each byte kept, up to which a node is cheap")
TN_DECLARE(my_thing, HYPER)

/* keep[i] for nodes[i], in the order of execution. */
static int32_t my_thing_plan(const void *hyper, const tn_node_cost *nodes, int64_t count, int32_t *keep, tn_error *err)
{
    double most = ((const my_thing *)hyper)->most;
    (void)err;
    for (int64_t i = 0; i < count; i++)
        keep[i] = nodes[i].replayable && nodes[i].flops <= most * (double)nodes[i].bytes ? TN_REPLAY : TN_KEEP;
    return TN_OK;
}

static const tn_recompute my_thing_table = {sizeof(tn_recompute), 0, TN_CALL(my_thing_plan)};
TN_COMPONENT(my_thing, "recompute", TN_RECOMPUTE, 0u, HYPER, "Computes again what is cheap",
             TN_PAPER("arXiv:1604.06174"), my_thing_table);
TN_PLUGIN("org.example.my-thing", "0.1.0", "Apache-2.0", my_thing)
