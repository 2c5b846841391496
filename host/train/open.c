/* SPDX-License-Identifier: Apache-2.0
 *
 * open.c: from an experiment to everything that a run needs.
 */
#include <math.h>
#include <string.h>

#include <tenon/parallel.h>

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

static int32_t open_collective(tn_trainer *t, tn_error *err)
{
    const tn_instance *instance = t->e->collective;
    tn_collective table;
    int32_t rank = 0, size = 1;
    int32_t status = tn_registry_load(t->options.registry, instance->entry, &table, sizeof table, err);
    if (status == TN_OK && table.world)
        status = table.world(instance->hyper, &rank, &size, err);
    if (status == TN_OK && size != 1)
        return tn_error_set(err, TN_E_UNSUPPORTED, "collective %s: %d processes; this host runs an experiment in one",
                            instance->info->name, size);
    return status;
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

static int32_t open_graph(tn_trainer *t, tn_error *err)
{
    const tn_experiment *e = t->e;
    const tn_data_split *s = &t->train.split;
    t->batch = clamp_batch(t, "data.batch", e->batch, s->samples);
    t->eval_batch = t->batch;
    if (e->eval_split && e->eval_batch > 0)
        t->eval_batch = clamp_batch(t, "eval.batch", e->eval_batch, t->eval.split.samples);
    int64_t batch = t->batch > t->eval_batch ? t->batch : t->eval_batch;
    tn_graph_options options = {.registry = t->options.registry,
                                .model = e->model,
                                .loss = e->loss,
                                .real = e->real,
                                .batch = batch,
                                .ndim = s->ndim,
                                .shape = s->shape,
                                .classes = s->classes,
                                .target_ndim = s->target_ndim,
                                .target_shape = s->target_shape,
                                .backend = &t->backend,
                                .pool = t->pool,
                                .services = &t->services,
                                .seed = e->seed};
    int32_t status = tn_graph_create(&options, &t->graph, err);
    if (status != TN_OK)
        return status;
    t->metric_count = tn_graph_metrics(t->graph, &t->metrics);
    tn_chain_options chain = {.registry = t->options.registry,
                              .links = e->update,
                              .link_count = e->update_count,
                              .parameters = tn_graph_parameters(t->graph),
                              .pool = t->pool,
                              .services = &t->services,
                              .seed = e->seed,
                              .check_finite = e->check_finite};
    return tn_chain_create(&chain, &t->chain, err);
}

/* A last, short batch that a layer can not be trained on is left out, and said so once. */
static int32_t count_batches(tn_trainer *t, tn_error *err)
{
    int64_t samples = t->train.split.samples, batch = t->batch, rest = samples % batch;
    int32_t status = samples < batch ? TN_OK : tn_graph_check(t->graph, batch, TN_TRAIN, err);
    if (status != TN_OK)
        return status;
    tn_error reason;
    t->micro_batches = samples / batch + (rest != 0);
    if (rest && tn_graph_check(t->graph, rest, TN_TRAIN, &reason) != TN_OK) {
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
    if (status != TN_OK)
        return status;
    t->order_epoch = t->evaluated_at = -1;
    t->order_key = tn_hash_key(e->seed, "data", "order");
    status = tn_schedules_open(t->options.registry, e, t->attempts, (double)t->train.split.samples,
                               (double)t->train.split.samples / (double)t->windows, &t->schedules, err);
    for (size_t i = 0; status == TN_OK && i < e->schedule_count; i++)
        status = check_state(t, i, err);
    return status;
}

static int32_t allocate(tn_trainer *t, tn_error *err)
{
    const tn_report *reports;
    size_t fields = 4 + t->metric_count + tn_schedules_count(t->schedules) + tn_chain_reports(t->chain, &reports);
    int64_t batch = t->batch > t->eval_batch ? t->batch : t->eval_batch;
    t->order = tn_alloc((size_t)t->train.split.samples, sizeof *t->order);
    t->index = tn_alloc((size_t)batch, sizeof *t->index);
    t->fields = tn_alloc(fields, sizeof *t->fields);
    t->eval_names = tn_alloc(t->metric_count + 1, sizeof *t->eval_names);
    if (!t->order || !t->index || !t->fields || !t->eval_names)
        return tn_error_set(err, TN_E_MEMORY, "no memory for the run");
    size_t evaluated = t->e->eval_split ? t->metric_count + 1 : 0;
    for (size_t i = 0; i < evaluated; i++) {
        t->eval_names[i] = tn_format("%s/%s", t->e->eval_split, i == 0 ? "loss" : t->metrics[i - 1]);
        if (!t->eval_names[i])
            return tn_error_set(err, TN_E_MEMORY, "no memory for the run");
    }
    return tn_schedules_check_metrics(t->schedules, (const char *const *)t->eval_names, evaluated, err);
}

int32_t tn_trainer_open_all(tn_trainer *t, tn_error *err)
{
    const tn_experiment *e = t->e;
    int32_t (*const steps[])(tn_trainer *, tn_error *) = {open_backend, open_collective, open_data,
                                                          open_graph,   plan_steps,      allocate};
    int32_t status = tn_pool_create(e->threads > 0 ? (int32_t)e->threads : tn_default_threads(), &t->pool, err);
    for (size_t i = 0; i < sizeof steps / sizeof *steps && status == TN_OK; i++)
        status = steps[i](t, err);
    return status;
}
