/* SPDX-License-Identifier: Apache-2.0
 *
 * open.c: from an experiment to everything that a run needs.
 */
#include <math.h>
#include <string.h>

#include "host/base/error.h"
#include "host/base/memory.h"
#include "host/base/philox.h"
#include "host/train/internal.h"

static int32_t open_backend(tn_trainer *t, tn_error *err)
{
    const tn_instance *instance = t->e->backend;
    int32_t status = tn_registry_load(t->options.registry, instance->entry, &t->backend, sizeof t->backend, err);
    if (status != TN_OK)
        return status;
    tn_error_clear(err);
    status = t->backend.probe ? t->backend.probe(&t->services, err) : TN_OK;
    if (status != TN_OK)
        return err && err->msg[0]
                   ? status /* it names itself */
                   : tn_error_set(err, status, "backend %s: refused without a reason", instance->info->name);
    if (!t->backend.gemm || t->backend.device != TN_CPU)
        return tn_error_set(err, TN_E_UNSUPPORTED, "backend %s: this host drives backends on the CPU that offer gemm",
                            instance->info->name);
    return TN_OK;
}

/* Evaluation goes through buffers made for training: samples and targets must be of one kind and shape. */
static int same_samples(const tn_data_split *a, const tn_data_split *b)
{
    return a->ndim == b->ndim && a->target_ndim == b->target_ndim && !a->classes == !b->classes &&
           b->classes <= a->classes && !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) &&
           !memcmp(a->target_shape, b->target_shape, (size_t)a->target_ndim * sizeof *a->target_shape);
}

static int32_t open_data(tn_trainer *t, tn_error *err)
{
    const tn_experiment *e = t->e;
    int32_t status = tn_dataset_open(t->options.registry, e->data, "train", NULL, e->seed, &t->train, err);
    if (status == TN_OK && e->eval_split)
        status = tn_dataset_open(t->options.registry, e->data, e->eval_split,
                                 strcmp(e->eval_split, "train") ? &t->train : NULL, e->seed, &t->eval, err);
    if (status == TN_OK && e->eval_split && !same_samples(&t->train.split, &t->eval.split))
        return tn_error_set(
            err, TN_E_DATA,
            "data %s: samples or targets of the %s split have another shape, or more classes, than those of train",
            e->data->info->name, e->eval_split);
    return status;
}

static int64_t clamp_batch(const tn_trainer *t, const char *key, int64_t batch, int64_t samples)
{
    if (batch <= samples)
        return batch;
    tn_log_write(t->options.log, TN_LOG_WARNING,
                 "%s is %lld, more than the %lld samples there are: every batch takes all", key, (long long)batch,
                 (long long)samples);
    return samples;
}

static int32_t plan_batches(tn_trainer *t, tn_error *err)
{
    const tn_experiment *e = t->e;
    int32_t size = tn_comm_size(t->comm);
    t->batch = clamp_batch(t, "data.batch", e->batch, t->train.split.samples);
    t->eval_batch = t->batch;
    if (e->eval_split && e->eval_batch > 0)
        t->eval_batch = clamp_batch(t, "eval.batch", e->eval_batch, t->eval.split.samples);
    if (t->batch < size)
        return tn_error_set(err, TN_E_INVALID,
                            "data.batch is %lld for %d processes that share it; at least %d is needed",
                            (long long)t->batch, size, size);
    return TN_OK;
}

/* The most samples that this process has at a time. */
static int64_t largest_batch(const tn_trainer *t)
{
    return tn_processes_most(t, t->batch > t->eval_batch ? t->batch : t->eval_batch);
}

static int32_t open_graph(tn_trainer *t, tn_error *err)
{
    const tn_experiment *e = t->e;
    const tn_data_split *s = &t->train.split;
    tn_graph_options options = {.registry = t->options.registry,
                                .model = e->model,
                                .loss = e->loss,
                                .real = e->real,
                                .batch = largest_batch(t),
                                .ndim = s->ndim,
                                .shape = s->shape,
                                .classes = s->classes,
                                .target_ndim = s->target_ndim,
                                .target_shape = s->target_shape,
                                .backend = &t->backend,
                                .pool = t->pool,
                                .services = &t->services,
                                .seed = e->seed,
                                .recompute = e->recompute,
                                .data = t->comm,
                                .storage = t->precision.storage};
    int32_t status = tn_graph_create(&options, &t->graph, err);
    if (status != TN_OK)
        return status;
    tn_parameters *all = tn_graph_parameters(t->graph);
    for (int64_t i = 0; i < all->count; i++)
        all->list[i].replicas = tn_comm_size(t->comm);
    t->metric_count = tn_graph_metrics(t->graph, &t->metrics);
    if (t->options.from)
        status = tn_initial_load(t, t->options.from, err);
    return status == TN_OK ? tn_precision_plan(t, err) : status;
}

static int32_t open_chain(tn_trainer *t, tn_error *err)
{
    const tn_experiment *e = t->e;
    int32_t status = tn_signals_open(t, err);
    if (status != TN_OK)
        return status;
    t->compute_host = (tn_compute_host){.backend = &t->backend, .pool = t->pool};
    tn_chain_options options = {.registry = t->options.registry,
                                .links = e->update,
                                .link_count = e->update_count,
                                .parameters = tn_precision_parameters(t),
                                .pool = t->pool,
                                .services = &t->services,
                                .seed = e->seed,
                                .check_finite = e->check_finite || e->loss_scale,
                                .comm = t->comm,
                                .compute = &t->compute_host,
                                .signals = &t->signals,
                                .p = t->precision.stored ? t->precision.storage : (tn_codec_use){0},
                                .state = t->precision.state};
    status = tn_chain_create(&options, &t->chain, err);
    return status == TN_OK ? tn_signals_check(t, err) : status;
}

/* Can every process's share of n samples be trained on? */
static int32_t check_share(tn_trainer *t, int64_t n, tn_error *err)
{
    int32_t size = tn_comm_size(t->comm);
    if (n < size)
        return tn_error_set(err, TN_E_INVALID, "%d processes share it", size);
    int32_t status = tn_graph_check(t->graph, n / size, TN_TRAIN, err);
    return status == TN_OK ? tn_graph_check(t->graph, tn_processes_most(t, n), TN_TRAIN, err) : status;
}

/* A last, short batch that a layer can not be trained on is left out, and said so once. */
static int32_t count_batches(tn_trainer *t, tn_error *err)
{
    int64_t samples = t->train.split.samples, batch = t->batch, rest = samples % batch;
    int32_t status = samples < batch ? TN_OK : check_share(t, batch, err);
    if (status != TN_OK)
        return status;
    tn_error reason;
    t->micro_batches = samples / batch + (rest != 0);
    if (rest && check_share(t, rest, &reason) != TN_OK) {
        if (samples < batch)
            return tn_error_set(err, reason.code, "%s", reason.msg);
        t->micro_batches--;
        tn_log_write(t->options.log, TN_LOG_WARNING,
                     "the last batch of an epoch, %lld of %lld samples, is left out: %s", (long long)rest,
                     (long long)batch, reason.msg);
    }
    return TN_OK;
}

/* Steps, or epochs in steps. */
static int32_t count_of(const char *what, int64_t steps, double epochs, int64_t windows, int64_t *ret, tn_error *err)
{
    double count = ceil(epochs * (double)windows);
    if (steps == 0 && count > 0x1p53)
        return tn_error_set(err, TN_E_INVALID, "%s: %g epochs are %g updates; at most 2^53 can be counted", what,
                            epochs, count);
    *ret = steps > 0 ? steps : (int64_t)count;
    return TN_OK;
}

/* State is planned once: a schedule must not lead to values under which a link would plan another. */
static int32_t check_state(tn_trainer *t, size_t index, tn_error *err)
{
    const tn_schedule *schedule = &t->e->schedules[index];
    double *place = tn_instance_real(schedule->target, schedule->row), base = *place, bounds[2];
    int32_t status = TN_OK;
    tn_schedules_bounds(t->schedules, index, &bounds[0], &bounds[1]);
    for (int i = 0; i < 2 && status == TN_OK; i++) {
        *place = bounds[i];
        status = tn_chain_check_plan(t->chain, schedule->target, err);
        if (status != TN_OK)
            status = tn_error_wrap(err, status, "schedule %s.%s reaches %g", schedule->target->handle,
                                   schedule->row->name, bounds[i]);
    }
    *place = base;
    return status;
}

static int32_t plan_steps(tn_trainer *t, tn_error *err)
{
    const tn_experiment *e = t->e;
    int32_t status = count_batches(t, err);
    if (status != TN_OK)
        return status;
    t->windows = (t->micro_batches + e->accumulate - 1) / e->accumulate;
    status = count_of("train.epochs", e->steps, e->epochs, t->windows, &t->attempts, err);
    if (status == TN_OK)
        status = count_of("eval.every", e->eval_every.steps, e->eval_every.epochs, t->windows, &t->eval_every, err);
    if (status == TN_OK)
        status = count_of("checkpoint.every", e->checkpoint_every.steps, e->checkpoint_every.epochs, t->windows,
                          &t->checkpoint_every, err);
    if (status != TN_OK)
        return status;
    t->order_epoch = t->evaluated_at = t->checkpointed_at = -1;
    t->order_key = tn_hash_key(e->seed, "data", "order");
    t->held = -1;
    status = tn_schedules_open(t->options.registry, e, t->attempts, (double)t->train.split.samples, t->windows,
                               &t->schedules, err);
    for (size_t i = 0; status == TN_OK && i < e->schedule_count; i++)
        status = check_state(t, i, err);
    return status;
}

/* The order in which a refresh goes over the training split: one for the whole run. */
static int32_t plan_refresh(tn_trainer *t, tn_error *err)
{
    if (!t->e->eval_split || t->e->eval_refresh == 0)
        return TN_OK;
    t->refresh_order = tn_alloc((size_t)t->train.split.samples, sizeof *t->refresh_order);
    if (!t->refresh_order)
        return tn_error_set(err, TN_E_MEMORY, "no memory for the run");
    tn_random_permutation(tn_hash_key(t->e->seed, "data", "refresh"), 0, t->train.split.samples, t->refresh_order);
    return TN_OK;
}

static int32_t allocate(tn_trainer *t, tn_error *err)
{
    const tn_report *reports;
    size_t fields = 8 + t->metric_count + tn_schedules_count(t->schedules) + tn_chain_reports(t->chain, &reports);
    t->order = tn_alloc((size_t)t->train.split.samples, sizeof *t->order);
    t->index = tn_alloc((size_t)largest_batch(t), sizeof *t->index);
    t->fields = tn_alloc(fields, sizeof *t->fields);
    t->eval_names = tn_alloc(t->metric_count + 1, sizeof *t->eval_names);
    t->eval_values = tn_alloc(t->metric_count + 1, sizeof *t->eval_values);
    if (!t->order || !t->index || !t->fields || !t->eval_names || !t->eval_values)
        return tn_error_set(err, TN_E_MEMORY, "no memory for the run");
    int32_t status = plan_refresh(t, err);
    if (status != TN_OK)
        return status;
    size_t evaluated = t->e->eval_split ? t->metric_count + 1 : 0;
    for (size_t i = 0; i < evaluated; i++) {
        t->eval_names[i] = tn_format("%s/%s", t->e->eval_split, i == 0 ? "loss" : t->metrics[i - 1]);
        if (!t->eval_names[i])
            return tn_error_set(err, TN_E_MEMORY, "no memory for the run");
    }
    status = tn_schedules_check_metrics(t->schedules, (const char *const *)t->eval_names, evaluated, err);
    if (status == TN_OK)
        status = tn_checkpoints_check_metric(t, err);
    return status == TN_OK ? tn_record_plan(t, err) : status;
}

int32_t tn_trainer_open_all(tn_trainer *t, tn_error *err)
{
    const tn_experiment *e = t->e;
    int32_t (*const steps[])(tn_trainer *, tn_error *) = {open_backend, tn_precision_open, open_data,
                                                          plan_batches, open_graph,        open_chain,
                                                          plan_steps,   tn_noise_open,     allocate};
    int32_t status = tn_processes_open(t, err);
    if (status == TN_OK)
        status = tn_pool_create(e->threads > 0 ? (int32_t)e->threads : tn_default_threads(), &t->pool, err);
    for (size_t i = 0; i < sizeof steps / sizeof *steps && status == TN_OK; i++)
        status = tn_trainer_agree(t, steps[i](t, err), err);
    return status;
}
