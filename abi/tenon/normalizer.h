/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/normalizer.h: what is special about layers of the kind normalizer (interface "tenon.layer/0.2").
 *
 *  - The hyper-parameter rows that all share carry these names: `eps`, added to the variance inside the root;
 *    `affine`, a learned gain (parameter "weight", starts at 1) and shift ("bias", 0), role TN_ROLE_NORM.
 *  - Statistics that evaluation uses are buffers "running_mean" and "running_var". Training changes them once for
 *    each forward call, of a committed or skipped step alike, and never in a replay.
 *  - Variance to normalise is the biased one; the running variance takes the unbiased one (Ioffe and Szegedy 2015,
 *    arXiv:1502.03167, as PyTorch does); `momentum` is the weight of the new value.
 *  - A batch whose statistics do not exist (one value a channel) is refused by tn_layer.check, before the step. Of
 *    statistics over several processes (TN_JOINT) one value in each will do.
 *
 * Statistics over several processes: tn_layer.rounds. In each direction the host runs `partial` over all pieces for one
 * round after the other, sums over the mesh's data axis in the order of ranks, and hands the sums of all rounds so far
 * on in tn_layer_call.sums, [round][count], also to forward and backward themselves. So far for the axis "columns":
 * pieces set the entries of their own columns, everything else is 0 already.
 */
#ifndef TENON_NORMALIZER_H
#define TENON_NORMALIZER_H

#include <tenon/layer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tn_layer_rounds {
    uint32_t struct_size;
    int32_t forward, backward; /* rounds in each direction */
    int32_t reserved;
    /* f64 sums of each round; 0: not under these hyper-parameters, or not in evaluation. [any] */
    int64_t (*count)(const void *hyper, const tn_tensor *x, uint32_t flags);
    /* This piece's share of a round; in backward call->dy has data. [piece] */
    void (*partial)(const tn_layer_call *call, int32_t round, double *sums);
} tn_layer_rounds;
TN_SIZE(tn_layer_rounds, 32);

#ifdef __cplusplus
}
#endif
#endif
