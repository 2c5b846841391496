/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/loss.h: losses and metrics. Interface "tenon.loss/0.1", kinds loss and metric.
 *
 * Every mean is carried as (sum, count) and divided once, after all micro-batches and processes: a loss reports
 * sums, and its gradient is the gradient of the sum times `seed`. The host takes seed = scale / 2^ceil(log2 n), n the
 * samples of the whole accumulation window, and folds the rest, exact once the counts are known, into the factor with
 * which the update chain reads gradients.
 *
 * Facts in the note's JSON text:
 *   metrics  [text]: names of the sums after the first two, each reported as sum / count
 *   targets  "class" (one int32 an item, negative: ignored) | "real" (the real type, shape as the prediction)
 */
#ifndef TENON_LOSS_H
#define TENON_LOSS_H

#include <tenon/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TN_LOSS "tenon.loss/0.1"

#define TN_SUM_LOSS  0 /* sum of the loss over counted targets, in nats where it is a likelihood */
#define TN_SUM_COUNT 1 /* targets counted */
#define TN_SUM_FIRST 2 /* the first metric */

/* Rows [lo, lo + n) of a batch. */
typedef struct tn_loss_call {
    uint32_t struct_size;
    uint32_t reserved;
    const void *hyper;
    const tn_context *context;
    int64_t lo, n;
    const tn_tensor *x;      /* prediction, real type, [batch, ...] */
    const tn_tensor *target; /* see the fact `targets` */
    const tn_tensor *dx;     /* to be set to seed * gradient of the sum; overlaps nothing; NULL: not wanted */
    double seed;
    double *sums; /* to be set: 2 + metrics values of these rows; the host adds pieces exactly */
} tn_loss_call;
TN_AT(tn_loss_call, hyper, 8);
TN_AT(tn_loss_call, lo, 24);
TN_AT(tn_loss_call, x, 40);
TN_AT(tn_loss_call, seed, 64);
TN_SIZE(tn_loss_call, 80);

typedef struct tn_loss {
    uint32_t struct_size;
    uint32_t reserved;
    /* Do these shapes fit? Names both where they do not; never broadcasts. [load] */
    int32_t (*check)(const void *hyper, const tn_tensor *x, const tn_tensor *target, tn_error *err);
    void (*evaluate)(const tn_loss_call *call); /* [piece] */
    /* Targets drawn from the model's own distribution, for curvature; into `target`. NULL: not offered. [piece] */
    void (*sample_targets)(const tn_loss_call *call, const tn_tensor *target);
    /* Directional derivative of the gradient: dx = seed * H v, v in `tangent`. NULL: not offered. [piece] */
    void (*curvature)(const tn_loss_call *call, const tn_tensor *tangent);
} tn_loss;
TN_AT(tn_loss, check, 8);
TN_SIZE(tn_loss, 40);

#ifdef __cplusplus
}
#endif
#endif
