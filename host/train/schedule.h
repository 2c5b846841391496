/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule.h: which hyper-parameter has which value for the next update.
 */
#ifndef TENON_HOST_TRAIN_SCHEDULE_H
#define TENON_HOST_TRAIN_SCHEDULE_H

#include <tenon/scheduler.h>
#include <tenon/sink.h>

#include "host/experiment/experiment.h"

typedef struct tn_schedules tn_schedules;

/* Loads the schedulers and looks ahead: a value outside its row's range is refused now, not in the middle of a night.
 * `horizon`: updates of the whole run; `epoch` and `pass`: samples and updates of a pass. Of more than 100,000
 * updates a part is looked at, the ends of all segments included. [main] */
int32_t tn_schedules_open(tn_registry *registry, const tn_experiment *experiment, int64_t horizon, double epoch,
                          int64_t pass, tn_schedules **ret, tn_error *err);
/* Refuses a scheduler that watches a metric which evaluations, with these fields ("test/loss", ...), do not give. */
int32_t tn_schedules_check_metrics(const tn_schedules *schedules, const char *const *names, size_t count,
                                   tn_error *err);
/* Hands an evaluation's fields to the schedulers that watch one, in the segment they are in at `position` of the run.
 * Allocates nothing. [main] */
void tn_schedules_observe(tn_schedules *schedules, const tn_position *position, const tn_field *fields, size_t count);

/* What schedulers keep, for checkpoints: the index-th block of f64 slots, those of segment *ret_segment of a schedule.
 * Its name ("rule.lr"), or NULL behind the last; both live as long as the schedules. */
const char *tn_schedules_state(const tn_schedules *schedules, size_t index, size_t *ret_segment, double **ret_slots,
                               size_t *ret_count);

/* The smallest and largest value that looking ahead saw. */
void tn_schedules_bounds(const tn_schedules *schedules, size_t index, double *ret_lo, double *ret_hi);
void tn_schedules_close(tn_schedules *schedules);

/* Writes every scheduled hyper-parameter for the update at `position` (of the whole run; base and horizon are set
 * here). A value outside its row's range is refused, naming both. Allocates nothing. [main] */
int32_t tn_schedules_apply(tn_schedules *schedules, const tn_position *position, tn_error *err);

size_t tn_schedules_count(const tn_schedules *schedules);
/* "rule.lr" and the value applied last. The name lives as long as the schedules. */
const char *tn_schedules_at(const tn_schedules *schedules, size_t index, double *ret);

#endif
