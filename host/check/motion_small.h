/* SPDX-License-Identifier: Apache-2.0
 *
 * motion_small.h: single calls of codecs, loss scales and schedulers, for rules that ask for more than a step does.
 * Each is lent blocks of lend.h. One thread at a time.
 */
#ifndef TENON_HOST_CHECK_MOTION_SMALL_H
#define TENON_HOST_CHECK_MOTION_SMALL_H

#include <tenon/precision.h>
#include <tenon/scheduler.h>

#include "host/check/motion.h"

#define TN_MOTION_TENSORS 16
#define TN_MOTION_VALUES  400

/* Every second tensor is never below 0 and says so. */
typedef struct tn_codec_tensor {
    int64_t n;
    char *stored, *extra, *real;
} tn_codec_tensor;

/* What tn_motion.own is, of a codec. */
typedef struct tn_motion_codec_work {
    tn_codec table;
    uint32_t real;
    tn_codec_tensor tensor[TN_MOTION_TENSORS];
    int64_t tensors;
} tn_motion_codec_work;

/* Elements lo to lo + n of a tensor; what it points to is the tensor's. */
tn_codec_call tn_motion_codec_call(const tn_motion_codec_work *work, int64_t tensor, int64_t lo, int64_t n);
void tn_motion_encode(tn_motion *motion, const tn_codec_call *call);
void tn_motion_decode(tn_motion *motion, const tn_codec_call *call);

/* The same of a loss scale or a scheduler. */
typedef struct tn_motion_scalars {
    tn_loss_scale loss_scale;
    tn_scheduler scheduler;
    double *slots;
    int64_t slot_count;
    double *values; /* TN_MOTION_VALUES, of the last step */
} tn_motion_scalars;

double tn_motion_scale(tn_motion *motion);
void tn_motion_observe_overflow(tn_motion *motion, int32_t overflow);

/* A position of a hyper-parameter of 0.25 in the experiment. */
tn_position tn_motion_position(int64_t step, int64_t horizon);
double tn_motion_value(tn_motion *motion, const tn_position *position);
void tn_motion_observe_metric(tn_motion *motion, const tn_position *position, double metric);

#endif
