/* SPDX-License-Identifier: Apache-2.0
 *
 * internal.h: a trainer's parts. Inside host/train only; everything is the main thread's.
 */
#ifndef TENON_HOST_TRAIN_INTERNAL_H
#define TENON_HOST_TRAIN_INTERNAL_H

#include "host/train/dataset.h"
#include "host/train/schedule.h"
#include "host/train/trainer.h"

struct tn_trainer {
    tn_trainer_options options;
    const tn_experiment *e;
    tn_pool *pool;
    tn_backend backend;
    tn_services services;
    tn_dataset train, eval;
    tn_graph *graph;
    tn_chain *chain;
    tn_schedules *schedules;
    tn_sinks *sinks;

    int64_t batch, eval_batch;      /* samples, never more than there are */
    int64_t micro_batches, windows; /* an epoch: micro-batches, and windows of `accumulate` of them */
    int64_t attempts, eval_every;   /* the run's; attempts between evaluations, 0: only at the end */

    /* what the run has come to: a checkpoint holds it */
    int64_t attempt, skipped, bad; /* done; skipped; in a row without a finite loss and a commit */
    double samples, tokens;
    double loss, eval_loss; /* the last sums; finite before the first */
    int64_t evaluated_at;   /* attempt of the last evaluation; -1: none */

    int64_t order_epoch; /* whose order is in `order`; -1: none */
    uint64_t order_key;
    uint32_t *order;
    int64_t *index; /* one micro-batch's samples */
    int32_t stop;
    tn_field *fields;  /* of a record */
    char **eval_names; /* "test/loss", ... */
    size_t metric_count;
    const char *const *metrics;
};
/* ---- open.c ---- */

/* Opens everything into a zeroed trainer with options, e and services set; after a failure tn_trainer_close frees what
 * was opened. */
int32_t tn_trainer_open_all(tn_trainer *t, tn_error *err);

/* ---- window.c ---- */

/* Micro-batches [first, end) of an epoch, which make up one update, and the samples in them. */
typedef struct tn_window {
    int64_t first, end, samples;
} tn_window;

tn_window tn_window_at(const tn_trainer *t, int64_t attempt);
/* The factor on the gradient of the window's summed loss: a power of two near 1 / samples, so that gradients stay in
 * range. */
double tn_window_seed(const tn_trainer *t);
/* Forward and backward of this attempt's window; adds the loss's sums. Counts the samples seen. */
int32_t tn_window_run(tn_trainer *t, double seed, tn_exact sums[TN_SUMS_MAX], tn_error *err);
/* Where the run stands, for schedulers. */
tn_position tn_window_position(const tn_trainer *t);

/* ---- record.c ---- */

/* Sends the first `field_count` fields to the sinks and the observer. */
int32_t tn_record_send(tn_trainer *t, const char *event, size_t field_count, tn_error *err);
/* Appends a field; the new count. */
size_t tn_record_add(tn_trainer *t, size_t count, const char *name, double value);
/* The record of an attempt. */
int32_t tn_record_update(tn_trainer *t, const tn_exact *sums, const tn_step_result *result, tn_error *err);

#endif
