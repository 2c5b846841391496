/* SPDX-License-Identifier: Apache-2.0
 *
 * internal.h: a trainer's parts. Inside host/train only; everything is the main thread's.
 */
#ifndef TENON_HOST_TRAIN_INTERNAL_H
#define TENON_HOST_TRAIN_INTERNAL_H

#include <tenon/precision.h>

#include "host/base/compute.h"
#include "host/base/failure.h"
#include "host/parallel/comm.h"
#include "host/train/dataset.h"
#include "host/train/noise.h"
#include "host/train/schedule.h"
#include "host/train/trainer.h"

/* What a process tells the others. */
typedef struct tn_verdict {
    int32_t status, stop, save;
} tn_verdict;

/* A checkpoint in the run's folder. */
typedef struct tn_kept {
    int64_t attempt;
    double score; /* by which the best are told, smaller is better; NaN: its state was not evaluated */
    int32_t stays;
} tn_kept;

/* How parameters and the loss are kept. */
typedef struct tn_precision {
    tn_codec storage_table, state_table;
    tn_codec_use storage, state; /* without table: in the real type */
    tn_loss_scale scale;         /* of 0: none */
    double *scale_slots;         /* scale.slots of them: a checkpoint holds them */
    void *seen;                  /* an arena: what layers see of parameters or a view in the real type */
    char *stored;                /* instead of p, where there is no master: each parameter behind the codec */
    void **stored_at;            /* [parameters] into it */
    tn_parameters parameters;    /* then the chain's; else the graph's */
    int64_t *chunk_at;           /* [parameters + 1]: chunks before each parameter */
    uint64_t *keys;              /* [parameters]: random keys of stochastic rounding */
    char *scratch;               /* scratch_bytes for each thread */
    int64_t scratch_bytes, bytes;
} tn_precision;

typedef struct tn_noise_chunk {
    int64_t at, n; /* elements of an arena */
} tn_noise_chunk;

/* What train.noise_scale needs. */
typedef struct tn_noise_watch {
    void *before; /* an arena: the gradient before this micro-batch; NULL: there is one micro-batch */
    int64_t bytes;
    tn_noise_chunk *chunks; /* of all parameters */
    double *partial;        /* [chunk_count] */
    int64_t chunk_count;
    double parts;   /* of this process: the sum over micro-batches of the gradient's squares over their samples */
    tn_noise now;   /* of this attempt; NaN: none */
    tn_noise means; /* over committed updates: a checkpoint holds them */
} tn_noise_watch;

struct tn_trainer {
    tn_trainer_options options;
    const tn_experiment *e;
    tn_pool *pool;
    tn_backend backend;
    tn_services services;
    tn_failures failures; /* of components' calls that return nothing */
    tn_comm *comm;        /* NULL: one process */
    tn_verdict *verdicts; /* [processes] */
    tn_dataset train, eval;
    tn_graph *graph;
    tn_compute_host compute_host; /* of the chain */
    tn_signals signals;
    tn_precision precision;
    tn_noise_watch noise;
    tn_chain *chain;
    tn_schedules *schedules;
    tn_sinks *sinks;

    int64_t batch, eval_batch;      /* samples over all processes, never more than there are */
    int64_t micro_batches, windows; /* an epoch: micro-batches, and windows of `accumulate` of them */
    int64_t attempts, eval_every;   /* the run's; attempts between evaluations, 0: only at the end */
    int64_t checkpoint_every;       /* attempts between checkpoints; 0: none */
    int64_t checkpointed_at;        /* attempt of the last one written or restored; -1: none */
    char *folder;                   /* of the run; NULL: records go to no folder */
    tn_kept *kept;                  /* in the order of attempts; the first process knows them */
    size_t kept_count, kept_room;

    /* what the run has come to: a checkpoint holds it */
    int64_t attempt, skipped, bad; /* done; skipped; in a row without a finite loss and a commit */
    double samples, tokens;
    double loss, eval_loss; /* the last sums; finite before the first */
    char skip_reason[200];  /* of the last attempt that was skipped */
    int64_t evaluated_at;   /* attempt of the last evaluation; -1: none */

    /* of this attempt's window, for who looks at it again */
    double loss_scale;      /* in use */
    double seed, count;     /* the factor on its summed loss, loss scale included; targets counted */
    int64_t held, held_own; /* the micro-batch in the graph's input, and this process's samples in it; -1: none */

    int64_t order_epoch; /* whose order is in `order`; -1: none */
    uint64_t order_key;
    uint32_t *order;
    uint32_t *refresh_order; /* NULL: no refresh */
    int64_t *index;          /* this process's samples of one micro-batch */
    int32_t stop, save;      /* asked for: an end, a checkpoint now */
    int32_t warned_of_buffers;
    tn_field *fields;     /* of a record */
    char **eval_names;    /* "test/loss", ... */
    double *eval_values;  /* the last evaluation's, in that order; a checkpoint holds them */
    const char **columns; /* names of all fields that records of this run may have */
    size_t column_count;
    size_t metric_count;
    const char *const *metrics;
};

/* ---- open.c ---- */

/* Opens everything into a zeroed trainer with options, e and services set; after a failure tn_trainer_close frees what
 * was opened. */
int32_t tn_trainer_open_all(tn_trainer *t, tn_error *err);

/* ---- initial.c ---- */

/* Parameters, and statistics of layers as far as they are there, from a file; before the chain is made. TN_E_DATA with
 * the first tensor that is missing or does not fit. */
int32_t tn_initial_load(tn_trainer *t, const char *path, tn_error *err);

/* ---- processes.c ---- */

/* The processes of the run, which must run the same experiment. */
int32_t tn_processes_open(tn_trainer *t, tn_error *err);
void tn_processes_close(tn_trainer *t);
/* This process's share of n samples: those at rank, rank + size, ... */
int64_t tn_processes_share(const tn_trainer *t, int64_t n);
/* The largest share of any process. */
int64_t tn_processes_most(const tn_trainer *t, int64_t n);
/* Sums over all processes, of the loss's sums and of an arena in the parameters' layout. */
int32_t tn_processes_join_sums(tn_trainer *t, tn_exact sums[TN_SUMS_MAX], tn_error *err);
int32_t tn_processes_join_arena(tn_trainer *t, void *arena, tn_error *err);

/* ---- precision.c ---- */

/* Before the graph: loads codecs and loss scale. */
int32_t tn_precision_open(tn_trainer *t, tn_error *err);
/* After the graph: what is needed to store its parameters. */
int32_t tn_precision_plan(tn_trainer *t, tn_error *err);
void tn_precision_close(tn_trainer *t);
/* The parameters that the chain steps: the graph's, or those behind the codec. */
const tn_parameters *tn_precision_parameters(tn_trainer *t);
/* What layers are to see, for tn_graph_run.p, of `view`, an arena, or of the parameters as they are now (NULL). Good
 * until the next call. */
const void *tn_precision_show(tn_trainer *t, const void *view);
/* After parameters of the graph were set from outside: stores them. */
void tn_precision_store(tn_trainer *t);
/* The loss scale to use now, 1 without; TN_E_PLUGIN where the component gives none that can be divided out exactly. */
int32_t tn_precision_scale(const tn_trainer *t, double *ret, tn_error *err);
/* What came of an attempt. */
void tn_precision_observe(tn_trainer *t, int32_t overflow);

/* ---- window.c ---- */

/* Micro-batches [first, end) of an epoch, which make up one update, and the samples in them. */
typedef struct tn_window {
    int64_t first, end, samples;
} tn_window;

tn_window tn_window_at(const tn_trainer *t, int64_t attempt);
/* Samples of micro-batch `micro` of an epoch, over all processes. */
int64_t tn_window_samples(const tn_trainer *t, int64_t micro);
/* Forward and backward of this attempt's window, and the taps that the chain wants: gradients and `sums` over all
 * processes. Sets t->loss_scale, t->seed, t->count; counts the samples seen. */
int32_t tn_window_run(tn_trainer *t, tn_exact sums[TN_SUMS_MAX], tn_error *err);
/* Puts this process's samples of a micro-batch of the training split, in that order, into the graph's input; how many.
 */
int64_t tn_window_gather(tn_trainer *t, const uint32_t *order, int64_t micro);
/* Calls `look` for each micro-batch of this attempt's window, with this process's samples in the graph's input. `run`
 * is one of a graph under TN_TRAIN and `flags`, accumulating from the second micro-batch on. All processes call it;
 * where one fails, all do. */
typedef int32_t tn_window_look(tn_trainer *t, const tn_graph_run *run, void *arg, tn_error *err);
int32_t tn_window_visit(tn_trainer *t, uint32_t flags, double seed, tn_window_look *look, void *arg, tn_error *err);
/* Where the run stands, for schedulers. */
tn_position tn_window_position(const tn_trainer *t);

/* ---- noise.c: nothing where train.noise_scale is off ---- */

/* Once batches are counted. TN_E_INVALID where an update has one gradient only; TN_E_MEMORY. */
int32_t tn_noise_open(tn_trainer *t, tn_error *err);
void tn_noise_close(tn_trainer *t);
/* After a micro-batch of this process was added to the gradient. */
void tn_noise_see(tn_trainer *t, const tn_graph_run *run);
/* Once the gradient is that of the window, over all processes, who all call it: sets t->noise.now. */
int32_t tn_noise_measure(tn_trainer *t, tn_error *err);
/* After the attempt: one that was skipped leaves no trace. */
void tn_noise_keep(tn_trainer *t, int32_t committed);

/* ---- signals.c ---- */

/* What links of the chain can ask for: fills t->signals. Refuses a link whose signal layers or loss do not offer. */
int32_t tn_signals_open(tn_trainer *t, tn_error *err);
/* Once the chain is there: refuses taps that the loss does not offer. */
int32_t tn_signals_check(tn_trainer *t, tn_error *err);

/* ---- checkpoints.c ---- */

/* A checkpoint in the folder of the run, which the first process of a run has; nothing without. Afterwards those that
 * need not stay are removed. All call it. */
int32_t tn_checkpoint_write(tn_trainer *t, tn_error *err);
/* Is the state now, just evaluated, one of the best that the experiment wants kept? */
int32_t tn_checkpoint_is_best(const tn_trainer *t);
/* Refuses a metric that evaluations do not have. */
int32_t tn_checkpoints_check_metric(const tn_trainer *t, tn_error *err);

/* ---- record.c ---- */

/* Lists the columns, once evaluations have their names. */
int32_t tn_record_plan(tn_trainer *t, tn_error *err);
/* Opens the sinks in `folder`; `lengths` NULL: their files are new. See sinks.h. */
int32_t tn_record_open(tn_trainer *t, const char *folder, const int64_t *lengths, tn_error *err);
/* Sends the first `field_count` fields to the sinks and the observer. */
int32_t tn_record_send(tn_trainer *t, const char *event, size_t field_count, tn_error *err);
/* Appends a field; the new count. */
size_t tn_record_add(tn_trainer *t, size_t count, const char *name, double value);
/* The record of an attempt. */
int32_t tn_record_update(tn_trainer *t, const tn_exact *sums, const tn_step_result *result, tn_error *err);

#endif
