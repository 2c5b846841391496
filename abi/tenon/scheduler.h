/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/scheduler.h: the value of a hyper-parameter as a function of the position in the run. Interface
 * "tenon.scheduler/0.1", kind scheduler. A scheduler may drive any `real` row of any component.
 *
 * In an experiment a schedule is one scheduler or a sequence; in a sequence each but the last names its length in
 * the row `steps`, and each sees positions of its own segment. Convention: update t of a segment, t = 0, 1, ...
 * A segment may be a product: its schedulers see the base 1, and the base times all their values is the value.
 *
 * Facts in the note's JSON text:
 *   slots   [{name, doc}]: f64 scalars kept for `observe`, in order, 0 at first; saved with the run
 * A scheduler that observes names the metric it watches in a text row `metric`: "loss", "accuracy", as in evaluations.
 *
 * Order at the end of an update: evaluate, observe, checkpoint.
 */
#ifndef TENON_SCHEDULER_H
#define TENON_SCHEDULER_H

#include <tenon/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TN_SCHEDULER "tenon.scheduler/0.1"

typedef struct tn_position {
    uint32_t struct_size;
    uint32_t reserved;
    int64_t step;    /* the update about to be done, from 0, in this segment; committed updates only count */
    int64_t horizon; /* updates in this segment; 0: not known */
    double base;     /* the hyper-parameter as the experiment gives it */
    double epoch;    /* passes over the training set in the run before this update, with fraction */
    double samples;  /* samples seen in the run before this update */
    double tokens;   /* targets counted in the run before this update */
    double batch;    /* samples of an update, accumulation included; 0: not known */
    int64_t pass;    /* updates that a pass over the training set takes; 0: not known */
} tn_position;
TN_AT(tn_position, step, 8);
TN_AT(tn_position, base, 24);
TN_AT(tn_position, batch, 56);
TN_SIZE(tn_position, 72);

typedef struct tn_scheduler {
    uint32_t struct_size;
    uint32_t reserved;
    /* The value for the update at `position`; pure: any position at any time, the same value. slots is NULL when
     * the note declares none. [any] */
    double (*value)(const void *hyper, const tn_position *position, const double *slots);
    /* A new metric, after an evaluation; changes slots. NULL: it does not listen. [main] */
    void (*observe)(const void *hyper, const tn_position *position, double metric, double *slots);
} tn_scheduler;
TN_AT(tn_scheduler, value, 8);
TN_SIZE(tn_scheduler, 24);

#ifdef __cplusplus
}
#endif
#endif
