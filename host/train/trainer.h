/* SPDX-License-Identifier: Apache-2.0
 *
 * trainer.h: one execution of an experiment: data, graph, chain, schedules, evaluation, records.
 */
#ifndef TENON_HOST_TRAIN_TRAINER_H
#define TENON_HOST_TRAIN_TRAINER_H

#include <tenon/sink.h>

#include "host/base/log.h"
#include "host/base/text.h"
#include "host/experiment/experiment.h"
#include "host/graph/graph.h"
#include "host/store/sinks.h"
#include "host/update/chain.h"

typedef struct tn_trainer tn_trainer;

#define TN_ASK_STOP       1 /* to end after this update */
#define TN_ASK_CHECKPOINT 2 /* to write a checkpoint after this update, and go on */

/* Sees every record after the sinks; returns what it asks for, TN_ASK_*, or 0. */
typedef int32_t (*tn_observer)(void *user, const tn_record *record);

typedef struct tn_trainer_options {
    tn_registry *registry;
    const tn_experiment *experiment; /* all borrowed; must outlive the trainer */
    const tn_log *log;
    tn_observer observer; /* NULL: none */
    void *user;
    const char *from; /* a safetensors file with the parameters to start with, as a checkpoint or by their plain names;
                         NULL: drawn by chance */
} tn_trainer_options;

/* Opens everything: after this the first update can start. Writes no file. [main] */
int32_t tn_trainer_open(const tn_trainer_options *options, tn_trainer **ret, tn_error *err);
/* Accepts NULL. */
void tn_trainer_close(tn_trainer *trainer);

/* From now on records also go to the experiment's sinks, in `folder`. At most once, before the first step. [main] */
int32_t tn_trainer_record_in(tn_trainer *trainer, const char *folder, tn_error *err);

/* Instead, for a restored trainer: the sinks' files in `folder` are cut back to where they were when `checkpoint` was
 * written, and go on from there. [main] */
int32_t tn_trainer_continue_in(tn_trainer *trainer, const char *folder, const char *checkpoint, tn_error *err);

/* One attempted update: a window of micro-batches, the chain, the records. Nothing is allocated after the first.
 * TN_E_NUMERIC when the run has diverged. [main] */
int32_t tn_trainer_step(tn_trainer *trainer, tn_error *err);
/* All attempts that are left, with the evaluations that are due, and the checkpoints, if records go to a folder: into
 * its folder "checkpoints", before the first update, as `checkpoint: {every: ...}` says, after an evaluation that is
 * one of the best, when the observer asks, and at the end; those that `keep` and `best` do not cover are removed, each
 * after a newer one is on disk. TN_E_STOPPED when the observer asked to end. [main] */
int32_t tn_trainer_run(tn_trainer *trainer, tn_error *err);
/* Evaluates the split of the experiment now and records it. [main] */
int32_t tn_trainer_evaluate(tn_trainer *trainer, tn_error *err);

/* Writes the state of the run to a safetensors file, whole or not at all: parameters by name, state of the chain by
 * link, slot and parameter, clocks and counters, buffers, schedulers, loss scale. Call it between updates; all
 * processes do, with one path: what lies with one alone goes into "PATH.rank-N". TN_E_IO, TN_E_MEMORY. [main] */
int32_t tn_trainer_save(tn_trainer *trainer, const char *path, tn_error *err);
/* Puts that state into a trainer of the same experiment: the run goes on as if it had never stopped, bit for bit. What
 * decides no bit may differ: name, sinks, checkpoints, threads. Refused, with what differs and nothing changed: another
 * experiment or number of processes (TN_E_INVALID), missing, extra or misshapen tensors, damage (TN_E_DATA). After
 * TN_E_IO the trainer is only good to be closed. [main] */
int32_t tn_trainer_restore(tn_trainer *trainer, const char *path, tn_error *err);
/* The last checkpoint in the folder of a run, by its number. The caller frees *ret with tn_free. TN_E_NOT_FOUND. [main]
 */
int32_t tn_checkpoint_last(const char *folder, char **ret, tn_error *err);
/* Restores the newest checkpoint in the folder of a run that is whole, with a warning for each that is not; *ret is its
 * path, to be freed with tn_free. All processes call it. TN_E_NOT_FOUND where there is none; where none can be used,
 * what tn_trainer_restore said of the newest. [main] */
int32_t tn_checkpoint_restore(tn_trainer *trainer, const char *folder, char **ret, tn_error *err);

/* To look at what a run has learnt: puts its parameters, their view, the statistics of layers and how far it was into a
 * trainer of the same model and update, on one process, whatever the other sections of its experiment say. Refusals as
 * tn_trainer_restore. [main] */
int32_t tn_trainer_load(tn_trainer *trainer, const char *path, tn_error *err);
/* The same with the newest checkpoint that is whole, as tn_checkpoint_restore. [main] */
int32_t tn_checkpoint_load(tn_trainer *trainer, const char *folder, char **ret, tn_error *err);
/* The last checkpoint in the folder of a run whose number is below `below`; *ret is NULL where there is none, else to
 * be freed with tn_free. TN_E_IO, TN_E_MEMORY. [main] */
int32_t tn_checkpoint_before(const char *folder, int64_t below, int64_t *ret_number, char **ret, tn_error *err);
/* Is a file a checkpoint of this host? TN_E_DATA. */
struct tn_safetensors;
int32_t tn_checkpoint_check_format(const struct tn_safetensors *file, const char *path, tn_error *err);

/* The processes of a run do what all can do: hands on this one's status, and its wish to stop, to the others. `status`
 * if it is none of TN_OK; else TN_OK, or what another one failed with. All call it. [main] */
int32_t tn_trainer_agree(tn_trainer *trainer, int32_t status, tn_error *err);
/* This process's rank, 0 where it is alone. Rank 0 writes what a run leaves. */
int32_t tn_trainer_rank(const tn_trainer *trainer);

/* 1: the observer, of this process or of another one, has asked to stop. */
int32_t tn_trainer_stops(const tn_trainer *trainer);

/* Attempts of the whole run, and those done so far. */
int64_t tn_trainer_horizon(const tn_trainer *trainer);
int64_t tn_trainer_attempt(const tn_trainer *trainer);
tn_graph *tn_trainer_graph(tn_trainer *trainer);
tn_chain *tn_trainer_chain(tn_trainer *trainer);
/* The backend's own line on itself, or its component's name; static, or lives as long as the trainer. */
const char *tn_trainer_backend(const tn_trainer *trainer);
int32_t tn_trainer_threads(const tn_trainer *trainer);
int32_t tn_trainer_processes(const tn_trainer *trainer);
/* Text for people: layers, parameters, the memory plan. */
void tn_trainer_describe(const tn_trainer *trainer, tn_text *text);

#endif
