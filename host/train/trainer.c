/* SPDX-License-Identifier: Apache-2.0
 *
 * trainer.c: one execution of an experiment.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <tenon/failure.h>

#include "host/base/error.h"
#include "host/base/memory.h"
#include "host/train/internal.h"

/* So many attempts in a row without a finite loss and a committed update, and the run has diverged. */
#define DIVERGED_AFTER 25

static void log_service(void *host, int32_t level, const char *text)
{
    const tn_trainer *t = host;
    tn_log_write(t->options.log, level, "%s", text);
}

static void fail_service(void *host, int32_t code, const char *text)
{
    tn_failures_keep(&((tn_trainer *)host)->failures, code, text);
}

static const void *interface_service(void *host, const char *id)
{
    static const tn_failure failure = {sizeof failure, 0, fail_service};
    (void)host;
    return strcmp(id, TN_FAILURE) == 0 ? &failure : NULL;
}

int32_t tn_trainer_open(const tn_trainer_options *options, tn_trainer **ret, tn_error *err)
{
    tn_trainer *t = tn_alloc(1, sizeof *t);
    if (!t)
        return tn_error_set(err, TN_E_MEMORY, "no memory for the run");
    t->options = *options;
    t->e = options->experiment;
    t->services = (tn_services){sizeof(tn_services), 0, t, log_service, interface_service};
    int32_t status = tn_trainer_open_all(t, err);
    if (status != TN_OK)
        tn_trainer_close(t);
    else
        *ret = t;
    return status;
}

void tn_trainer_close(tn_trainer *t)
{
    if (!t)
        return;
    tn_sinks_close(t->sinks);
    tn_schedules_close(t->schedules);
    tn_chain_destroy(t->chain);
    tn_graph_destroy(t->graph);
    tn_dataset_close(&t->train);
    tn_dataset_close(&t->eval);
    tn_precision_close(t);
    tn_noise_close(t);
    tn_processes_close(t);
    tn_pool_destroy(t->pool);
    for (size_t i = 0; t->eval_names && i <= t->metric_count; i++)
        tn_free(t->eval_names[i]);
    tn_free(t->eval_names);
    tn_free(t->eval_values);
    tn_free(t->columns);
    tn_free(t->kept);
    tn_free(t->fields);
    tn_free(t->index);
    tn_free(t->order);
    tn_free(t->refresh_order);
    tn_free(t->folder);
    tn_free(t);
}

int32_t tn_trainer_record_in(tn_trainer *t, const char *folder, tn_error *err)
{
    int32_t status = tn_record_open(t, folder, NULL, err);
    if (status == TN_OK && !(t->folder = tn_strdup(folder)))
        status = tn_error_set(err, TN_E_MEMORY, "no memory for a path");
    return status == TN_OK ? tn_record_send(t, "start", 0, err) : status;
}

/* ---- one update ---- */

static int32_t apply_schedules(tn_trainer *t, tn_error *err)
{
    tn_position position = tn_window_position(t);
    return tn_schedules_apply(t->schedules, &position, err);
}

static int32_t update_parameters(tn_trainer *t, double loss, tn_step_result *ret, tn_error *err)
{
    *ret = (tn_step_result){.committed = 0, .bad_parameter = -1};
    if (!isfinite(loss))
        tn_precision_observe(t, 1);
    if (!isfinite(loss) || t->count == 0) { /* every target ignored: nothing to learn from */
        tn_chain_skip(t->chain, t->attempt);
        return TN_OK;
    }
    const tn_step step = {.scale = 1 / (t->seed * t->count), .loss = loss / t->count, .attempt = t->attempt};
    int32_t status = tn_chain_step(t->chain, &step, ret, err);
    if (status == TN_OK)
        status = tn_failures_take(&t->failures, err);
    if (status == TN_OK)
        tn_precision_observe(t, ret->bad_parameter >= 0);
    return status;
}

static void warn_of_skip(tn_trainer *t, double loss, const tn_step_result *result)
{
    const tn_parameters *all = tn_graph_parameters(t->graph);
    char *why = t->skip_reason;
    size_t room = sizeof t->skip_reason;
    if (!isfinite(loss))
        snprintf(why, room, "the loss is not finite: %g", loss);
    else if (result->bad_parameter >= 0)
        snprintf(why, room, "the gradient of %s is not finite", all->list[result->bad_parameter].name);
    else if (result->rejected)
        snprintf(why, room, "the rule %s found no step", result->rejected);
    else
        snprintf(why, room, "%s", t->count == 0 ? "no target was counted" : "a sum over the gradients is not finite");
    tn_log_write(t->options.log, TN_LOG_WARNING, "update skipped at attempt %lld: %s", (long long)t->attempt + 1, why);
}

static int32_t judge(tn_trainer *t, double loss, const tn_step_result *result, tn_error *err)
{
    double scale;
    int32_t status = tn_precision_scale(t, &scale, err);
    if (status != TN_OK)
        return status;
    t->skipped += !result->committed;
    int32_t falls = isfinite(loss) && scale < t->loss_scale; /* a loss scale on its way to fit */
    t->bad = result->committed && isfinite(loss) ? 0 : t->bad + !falls;
    t->loss = result->committed || !isfinite(loss) ? loss : t->loss; /* a skipped update has left no trace */
    if (t->bad < DIVERGED_AFTER)
        return TN_OK;
    return tn_error_set(err, TN_E_NUMERIC,
                        "diverged: %d attempts in a row without a finite loss and an update, the last at attempt %lld; "
                        "try a smaller lr, a warm-up, or {use: clip-norm} in update",
                        DIVERGED_AFTER, (long long)t->attempt);
}

static int32_t one_attempt(tn_trainer *t, tn_error *err)
{
    tn_exact sums[TN_SUMS_MAX];
    tn_step_result result;
    for (size_t i = 0; i < TN_SUMS_MAX; i++)
        tn_exact_clear(&sums[i]);
    int32_t status = apply_schedules(t, err); /* before the layers run: they may be scheduled too */
    if (status == TN_OK)
        status = tn_window_run(t, sums, err);
    double loss = tn_exact_value(&sums[TN_SUM_LOSS]);
    t->tokens += t->count;
    if (status == TN_OK)
        status = update_parameters(t, loss, &result, err);
    if (status != TN_OK)
        return status;
    tn_noise_keep(t, result.committed);
    if (!result.committed)
        warn_of_skip(t, loss, &result);
    t->attempt++;
    status = tn_record_update(t, sums, &result, err);
    return status == TN_OK ? judge(t, loss, &result, err) : status;
}

int32_t tn_trainer_step(tn_trainer *t, tn_error *err) { return tn_trainer_agree(t, one_attempt(t, err), err); }

/* What is due between this attempt and the next. */
static int32_t between(tn_trainer *t, tn_error *err)
{
    int32_t status = TN_OK;
    if (t->e->eval_split && t->eval_every > 0 && t->attempt % t->eval_every == 0)
        status = tn_trainer_evaluate(t, err);
    int last = t->attempt == t->attempts || t->stop; /* then there is more to come before it */
    int due = t->save || (t->checkpoint_every > 0 && t->attempt % t->checkpoint_every == 0);
    return status == TN_OK && due && !last ? tn_checkpoint_write(t, err) : status;
}

/* What ends a run, also one that was stopped. */
static int32_t conclude(tn_trainer *t, tn_error *err)
{
    int32_t status = TN_OK;
    if (t->e->eval_split && !t->stop && t->evaluated_at != t->attempt)
        status = tn_trainer_evaluate(t, err);
    if (status == TN_OK && (t->checkpoint_every > 0 || t->save) && t->checkpointed_at != t->attempt)
        status = tn_checkpoint_write(t, err);
    if (status == TN_OK)
        status = tn_record_send(t, "end", tn_record_add(t, 0, "skipped", (double)t->skipped), err);
    return status == TN_OK && t->sinks ? tn_sinks_sync(t->sinks, err) : status;
}

static int32_t stopped(const tn_trainer *t, tn_error *err)
{
    char none[128] = "";
    if (t->folder && t->checkpointed_at < 0)
        snprintf(none, sizeof none, "; it can not be gone on with, as the experiment says checkpoint: none");
    else if (t->folder && t->checkpointed_at != t->attempt)
        snprintf(none, sizeof none, "; the last checkpoint is of update %lld, as the experiment says checkpoint: none",
                 (long long)t->checkpointed_at);
    return tn_error_set(err, TN_E_STOPPED, "stopped on request after %lld of %lld updates%s", (long long)t->attempt,
                        (long long)t->attempts, none);
}

/* Did the run learn, and did that stay finite? */
static int32_t judge_run(const tn_trainer *t, tn_error *err)
{
    if (t->attempt > 0 && *tn_chain_update(t->chain) == 0)
        return tn_error_set(err, TN_E_NUMERIC,
                            "no update was made: all %lld attempts were skipped, the last one because %s",
                            (long long)t->attempt, t->skip_reason[0] ? t->skip_reason : "its gradient was not usable");
    if (isfinite(t->loss) && isfinite(t->eval_loss))
        return TN_OK;
    return tn_error_set(err, TN_E_NUMERIC,
                        "diverged: the run ended with a loss of %g in training and %g in evaluation; try a smaller "
                        "lr, a warm-up, or {use: clip-norm} in update",
                        t->loss, t->eval_loss);
}

int32_t tn_trainer_run(tn_trainer *t, tn_error *err)
{
    int32_t status = TN_OK;
    if (t->checkpoint_every > 0 && t->checkpointed_at < 0 && t->attempt == 0)
        status = tn_checkpoint_write(t, err); /* a run can be gone on with from its beginning on */
    while (status == TN_OK && t->attempt < t->attempts && !t->stop) {
        status = tn_trainer_step(t, err);
        if (status == TN_OK)
            status = between(t, err);
    }
    if (status == TN_OK)
        status = conclude(t, err);
    if (status == TN_OK && !t->stop)
        status = judge_run(t, err);
    return status == TN_OK && t->stop ? stopped(t, err) : status;
}

/* ---- looking in ---- */

int32_t tn_trainer_stops(const tn_trainer *t) { return t->stop; }
int64_t tn_trainer_horizon(const tn_trainer *t) { return t->attempts; }
int64_t tn_trainer_attempt(const tn_trainer *t) { return t->attempt; }
tn_graph *tn_trainer_graph(tn_trainer *t) { return t->graph; }
tn_chain *tn_trainer_chain(tn_trainer *t) { return t->chain; }

int32_t tn_trainer_threads(const tn_trainer *t) { return tn_pool_threads(t->pool); }
int32_t tn_trainer_processes(const tn_trainer *t) { return tn_comm_size(t->comm); }

const char *tn_trainer_backend(const tn_trainer *t)
{
    const char *line = t->backend.describe ? t->backend.describe() : NULL;
    return line ? line : t->e->backend->info->name;
}

static void describe_bytes(tn_text *text, const char *what, int64_t bytes)
{
    tn_text_addf(text, "  %-24s %10.2f MiB\n", what, (double)bytes / 1048576);
}

void tn_trainer_describe(const tn_trainer *t, tn_text *text)
{
    tn_graph_memory memory = tn_graph_memory_of(t->graph);
    tn_text_addf(text, "%s: %lld training samples, %lld updates of %lld samples, %d thread%s, %s\n", t->e->name,
                 (long long)t->train.split.samples, (long long)t->attempts, (long long)tn_window_at(t, 0).samples,
                 tn_pool_threads(t->pool), tn_pool_threads(t->pool) == 1 ? "" : "s", tn_trainer_backend(t));
    tn_graph_describe(t->graph, text);
    tn_text_add(text, "memory\n");
    describe_bytes(text, "data", t->train.split.bytes + t->eval.split.bytes);
    describe_bytes(text, "parameters, gradients", memory.parameters + memory.gradients + memory.buffers);
    if (t->precision.bytes)
        describe_bytes(text, "stored parameters", t->precision.bytes);
    if (t->noise.bytes)
        describe_bytes(text, "noise scale", t->noise.bytes);
    describe_bytes(text, "update state", tn_chain_bytes(t->chain));
    describe_bytes(text, "activations, scratch",
                   memory.activations + memory.partials + memory.workspace + memory.input);
}
