/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/recompute.h: which activations are kept and which are computed again in backward. Interface
 * "tenon.recompute/0.1", kind recompute. A policy is a pure function from the graph's costs to a table; the host
 * replays forward calls with the same random numbers and frozen statistics, each at most once, when backward needs
 * them.
 */
#ifndef TENON_RECOMPUTE_H
#define TENON_RECOMPUTE_H

#include <tenon/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TN_RECOMPUTE "tenon.recompute/0.1"

#define TN_KEEP   0 /* its output stays until backward has read it */
#define TN_REPLAY 1 /* computed again, from the nearest kept node before it */

typedef struct tn_node_cost {
    int64_t bytes; /* output and saved tensors at the maximum batch */
    double flops;  /* of forward, estimated from shapes */
    int32_t node;
    int32_t replayable; /* 0: must be kept; the model's output is */
} tn_node_cost;
TN_SIZE(tn_node_cost, 24);

typedef struct tn_recompute {
    uint32_t struct_size;
    uint32_t reserved;
    /* keep[i]: TN_KEEP or TN_REPLAY for nodes[i], in execution order. Replay units should equal the strategy's
     * segments, so that sharded parameters are gathered once for both. [load] */
    int32_t (*plan)(const void *hyper, const tn_node_cost *nodes, int64_t count, int32_t *keep, tn_error *err);
} tn_recompute;
TN_SIZE(tn_recompute, 16);

#ifdef __cplusplus
}
#endif
#endif
