/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/normalizer.h: what is special about layers of the kind normalizer (interface "tenon.layer/0.1").
 *
 *  - The hyper-parameter rows that all share carry these names: `eps`, added to the variance inside the root;
 *    `affine`, a learned gain (parameter "weight", starts at 1) and shift ("bias", 0), role TN_ROLE_NORM.
 *  - Statistics that evaluation uses are buffers "running_mean" and "running_var". Training changes them once for
 *    each forward call, of a committed or skipped step alike, and never in a replay.
 *  - Variance to normalise is the biased one; the running variance takes the unbiased one (Ioffe and Szegedy 2015,
 *    arXiv:1502.03167, as PyTorch does); `momentum` is the weight of the new value.
 *  - A batch whose statistics do not exist (one value a channel) is refused by tn_layer.check, before the step.
 *
 * Statistics over several processes (draft; no record offers this table yet, and the host does not ask for it): the
 * host sums `count` f64 values over the mesh between partial and the forward (or backward) call, where they appear
 * first in saved tensor 0.
 */
#ifndef TENON_NORMALIZER_H
#define TENON_NORMALIZER_H

#include <tenon/layer.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TN_NORMALIZER_ROUNDS "tenon.normalizer-rounds/0.1"

typedef struct tn_normalizer_rounds {
    uint32_t struct_size;
    uint32_t reserved;
    int64_t (*count)(const void *hyper, const tn_tensor *x);           /* f64 values a call [any] */
    void (*forward_partial)(const tn_layer_call *call, double *sums);  /* this piece's share, set [piece] */
    void (*backward_partial)(const tn_layer_call *call, double *sums); /* this piece's share, set [piece] */
} tn_normalizer_rounds;
TN_SIZE(tn_normalizer_rounds, 32);

#ifdef __cplusplus
}
#endif
#endif
