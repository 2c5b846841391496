/* SPDX-License-Identifier: Apache-2.0
 *
 * timetable.h: the action tables of a pipeline, checked and put on a clock, and what follows from them: who sends what
 * when, and how many micro-batches a stage holds. Pure: needs no processes.
 *
 * The clock: forward of a micro-batch takes 1, backward 2, sending nothing. All stages put the tables of all on the
 * same clock, so their transfers happen in one order that all follow, and nobody waits for ever.
 */
#ifndef TENON_HOST_PARALLEL_TIMETABLE_H
#define TENON_HOST_PARALLEL_TIMETABLE_H

#include "host/parallel/strategies.h"

#define TN_CLOCK_FORWARD  1.0
#define TN_CLOCK_BACKWARD 2.0

typedef struct tn_timetable {
    int32_t stages, micro_batches;
    int64_t *first;     /* stages + 1: where each stage's actions begin */
    tn_action *actions; /* of all stages */
    double *start;      /* of each action */
    double length;      /* from the first action's start to the last one's end */
} tn_timetable;

/* What a process of a stage does: an action, or a transfer with a neighbour. */
#define TN_DO_ACTION  0 /* what: 'F', 'B', 'U' */
#define TN_DO_SEND    1 /* what: 'F' the stage's output, 'B' the gradient of its input */
#define TN_DO_RECEIVE 2 /* what: 'F' its input, 'B' the gradient of its output */

typedef struct tn_pipeline_step {
    int32_t what_kind; /* TN_DO_* */
    int32_t what, micro_batch;
    int32_t peer; /* stage on the other side; -1 */
    int32_t set;  /* of activations; -1 for 'U' */
    double time;
} tn_pipeline_step;

/* Asks the first strategy that offers actions for the table of each stage. Refuses what is no timetable, naming stage
 * and action: something missing or twice, backward before forward, an order in which the stages wait for each other.
 * The caller destroys it. [load] */
int32_t tn_timetable_create(const tn_strategies *strategies, const tn_mesh *mesh, int32_t micro_batches,
                            tn_timetable **ret, tn_error *err);
/* Accepts NULL. */
void tn_timetable_destroy(tn_timetable *timetable);

/* The part of the clock that a stage idles, from 0 to 1. */
double tn_timetable_bubble(const tn_timetable *timetable, int32_t stage);
/* The most micro-batches whose forward a stage has begun and whose backward it has not ended. */
int32_t tn_timetable_in_flight(const tn_timetable *timetable, int32_t stage);

/* The steps of a stage in their order; *ret is the caller's (tn_free). *ret_sets: how many sets of activations they
 * use. [load] */
int32_t tn_timetable_steps(const tn_timetable *timetable, int32_t stage, tn_pipeline_step **ret, int64_t *ret_count,
                           int32_t *ret_sets, tn_error *err);
/* A number that equal timetables share. */
uint64_t tn_timetable_hash(const tn_timetable *timetable);

#endif
