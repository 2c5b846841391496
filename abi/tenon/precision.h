/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/precision.h: how operands are stored. Interface "tenon.codec/0.1", kind codec. Rules and layers compute in f32
 * or f64; a codec turns a stored operand (p, g, a slot) into that and back, a run of whole blocks at a time. Which
 * codec serves which operand, and the loss scale, is the policy of an experiment's `precision:` section.
 *
 * NaN comes back as NaN and 0 as 0. What came back comes back the same when it is stored once more.
 */
#ifndef TENON_PRECISION_H
#define TENON_PRECISION_H

#include <tenon/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TN_CODEC "tenon.codec/0.1"

#define TN_CODEC_NONNEGATIVE 0x1u /* the operand is never below 0: a code needs no sign */

typedef struct tn_codec_call {
    uint32_t struct_size;
    uint32_t flags; /* TN_CODEC_* */
    const void *hyper;
    const tn_context *context; /* stochastic rounding draws from (attempt, lo + i) */
    int64_t lo, n;             /* elements of the logical tensor; lo on a block */
    void *stored;              /* payload from element lo on; may be a caller's array, of any alignment */
    void *extra;               /* block scales from lo's block on, aligned to 16 bytes at a tensor's first; or NULL */
    void *real;                /* n values in the real type */
} tn_codec_call;
TN_AT(tn_codec_call, lo, 24);
TN_SIZE(tn_codec_call, 64);

typedef struct tn_codec {
    uint32_t struct_size;
    int32_t block;                             /* elements that share a scale: a divisor of 512; 1: none do */
    int32_t bits;                              /* of one stored element */
    int32_t extra_bytes;                       /* of one block */
    void (*decode)(const tn_codec_call *call); /* stored -> real [piece] */
    void (*encode)(const tn_codec_call *call); /* real -> stored [piece] */
} tn_codec;
TN_SIZE(tn_codec, 32);

/* A loss-scale policy: a pure automaton on `slots` f64 scalars, which its note names (slots  [{name, doc}]), saved with
 * the run. Interface "tenon.loss-scale/0.1". The scale used in a backward pass is the one that divides its gradients.
 */
#define TN_LOSS_SCALE "tenon.loss-scale/0.1"

typedef struct tn_loss_scale {
    uint32_t struct_size;
    int32_t slots;
    void (*begin)(const void *hyper, double *slots);                     /* [main] */
    double (*scale)(const void *hyper, const double *slots);             /* a power of two [any] */
    void (*observe)(const void *hyper, int32_t overflow, double *slots); /* after each attempt [main] */
} tn_loss_scale;
TN_SIZE(tn_loss_scale, 32);

#ifdef __cplusplus
}
#endif
#endif
