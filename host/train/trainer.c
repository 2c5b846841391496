/* SPDX-License-Identifier: Apache-2.0
 *
 * trainer.c: one execution of an experiment.
 */
#include "host/train/trainer.h"

#include <math.h>
#include <string.h>
#include <time.h>

#include <tenon/parallel.h>

#include "host/base/error.h"
#include "host/base/memory.h"
#include "host/base/philox.h"
#include "host/train/dataset.h"
#include "host/train/schedule.h"

/* So many attempts in a row without a finite loss and a committed update, and the run has diverged. */
#define DIVERGED_AFTER 25

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
    int64_t attempt, skipped, bad;  /* done; skipped; in a row without a finite loss and a commit */
    double samples, tokens;
    double loss, eval_loss; /* the last sums; finite before the first */
    int64_t order_epoch;    /* whose order is in `order`; -1: none */
    uint64_t order_key;
    uint32_t *order;
    int64_t *index;       /* one micro-batch's samples */
    int64_t evaluated_at; /* attempt of the last evaluation; -1: none */
    int32_t stop;
    tn_field *fields;  /* of a record */
    char **eval_names; /* "test/loss", ... */
    size_t metric_count;
    const char *const *metrics;
};

/* ---- records ---- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int32_t record(tn_trainer *t, const char *event, size_t field_count, tn_error *err)
{
    tn_record r = {.struct_size = sizeof r,
                   .field_count = (int32_t)field_count,
                   .event = event,
                   .update = *tn_chain_update(t->chain),
                   .attempt = t->attempt,
                   .epoch = t->samples / (double)t->train.split.samples,
                   .time = now(),
                   .fields = t->fields};
    int32_t status = t->sinks ? tn_sinks_record(t->sinks, &r, err) : TN_OK;
    if (status == TN_OK && t->options.observer && t->options.observer(t->options.user, &r))
        t->stop = 1;
    return status;
}

static size_t add_field(tn_trainer *t, size_t count, const char *name, double value)
{
    t->fields[count] = (tn_field){name, value};
    return count + 1;
}

/* ---- opening ---- */

static void log_service(void *host, int32_t level, const char *text)
{
    const tn_trainer *t = host;
    tn_log_write(t->options.log, level, "%s", text);
}

static const void *no_interface(void *host, const char *id)
{
    (void)host;
    (void)id;
    return NULL;
}

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

static int32_t open_all(tn_trainer *t, tn_error *err)
{
    const tn_experiment *e = t->e;
    int32_t (*const steps[])(tn_trainer *, tn_error *) = {open_backend, open_collective, open_data,
                                                          open_graph,   plan_steps,      allocate};
    int32_t status = tn_pool_create(e->threads > 0 ? (int32_t)e->threads : tn_default_threads(), &t->pool, err);
    for (size_t i = 0; i < sizeof steps / sizeof *steps && status == TN_OK; i++)
        status = steps[i](t, err);
    return status;
}

int32_t tn_trainer_open(const tn_trainer_options *options, tn_trainer **ret, tn_error *err)
{
    tn_trainer *t = tn_alloc(1, sizeof *t);
    if (!t)
        return tn_error_set(err, TN_E_MEMORY, "no memory for the run");
    t->options = *options;
    t->e = options->experiment;
    t->services = (tn_services){sizeof(tn_services), 0, t, log_service, no_interface};
    int32_t status = open_all(t, err);
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
    tn_pool_destroy(t->pool);
    for (size_t i = 0; t->eval_names && i <= t->metric_count; i++)
        tn_free(t->eval_names[i]);
    tn_free(t->eval_names);
    tn_free(t->fields);
    tn_free(t->index);
    tn_free(t->order);
    tn_free(t);
}

int32_t tn_trainer_record_in(tn_trainer *t, const char *folder, tn_error *err)
{
    int32_t status = tn_sinks_open(t->options.registry, t->e->sinks, t->e->sink_count, folder, &t->sinks, err);
    return status == TN_OK ? record(t, "start", 0, err) : status;
}

/* ---- one update ---- */

/* Samples of micro-batch `micro` of the epoch, a function of (seed, epoch, micro) alone. */
static int64_t choose_samples(tn_trainer *t, int64_t epoch, int64_t micro)
{
    int64_t lo = micro * t->batch, left = t->train.split.samples - lo, n = left < t->batch ? left : t->batch;
    if (t->order_epoch != epoch)
        tn_random_permutation(t->order_key, (uint64_t)epoch, t->train.split.samples, t->order);
    t->order_epoch = epoch;
    for (int64_t i = 0; i < n; i++)
        t->index[i] = t->order[lo + i];
    return n;
}

/* Micro-batches [first, end) of an epoch, which make up one update, and the samples in them. */
typedef struct {
    int64_t first, end, samples;
} window;

static window window_at(const tn_trainer *t, int64_t attempt)
{
    int64_t first = attempt % t->windows * t->e->accumulate, end = first + t->e->accumulate;
    end = end < t->micro_batches ? end : t->micro_batches;
    int64_t whole = (end - first) * t->batch, over = end * t->batch - t->train.split.samples;
    return (window){first, end, over > 0 ? whole - over : whole};
}

static int32_t run_window(tn_trainer *t, double seed, tn_exact *sums, tn_error *err)
{
    window w = window_at(t, t->attempt);
    for (int64_t micro = w.first; micro < w.end; micro++) {
        int64_t n = choose_samples(t, t->attempt / t->windows, micro);
        tn_dataset_gather(&t->train, t->pool, &t->services, t->attempt, *tn_chain_update(t->chain), t->index, n, 1,
                          tn_graph_input(t->graph), tn_graph_target(t->graph));
        tn_graph_run run = {.n = n,
                            .flags = TN_TRAIN | (micro > w.first ? TN_ACCUMULATE : 0),
                            .attempt = t->attempt,
                            .micro = micro - w.first,
                            .update = *tn_chain_update(t->chain),
                            .seed = seed};
        int32_t status = tn_graph_run_batch(t->graph, &run, sums, err);
        if (status != TN_OK)
            return status;
        t->samples += (double)n;
    }
    return TN_OK;
}

/* A power of two near 1 / samples, so that gradients stay in range; what is left goes into the chain's scale. */
static double window_seed(const tn_trainer *t) { return exp2(-ceil(log2((double)window_at(t, t->attempt).samples))); }

static tn_position position_of(const tn_trainer *t)
{
    return (tn_position){.step = *tn_chain_update(t->chain),
                         .epoch = t->samples / (double)t->train.split.samples,
                         .samples = t->samples,
                         .tokens = t->tokens};
}

static int32_t apply_schedules(tn_trainer *t, tn_error *err)
{
    tn_position position = position_of(t);
    return tn_schedules_apply(t->schedules, &position, err);
}

static int32_t update_parameters(tn_trainer *t, double count, double seed, tn_step_result *ret, tn_error *err)
{
    if (count == 0) { /* every target ignored: nothing to learn from, nothing to change */
        *ret = (tn_step_result){.committed = 0, .bad_parameter = -1};
        return TN_OK;
    }
    const tn_step step = {.scale = 1 / (seed * count), .attempt = t->attempt};
    return tn_chain_step(t->chain, &step, ret, err);
}

static int32_t record_update(tn_trainer *t, const tn_exact *sums, const tn_step_result *result, tn_error *err)
{
    double count = tn_exact_value(&sums[TN_SUM_COUNT]), value;
    const tn_report *reports;
    size_t n = add_field(t, 0, "loss", tn_exact_value(&sums[TN_SUM_LOSS]) / count);
    for (size_t i = 0; i < t->metric_count; i++)
        n = add_field(t, n, t->metrics[i], tn_exact_value(&sums[TN_SUM_FIRST + i]) / count);
    for (size_t i = 0; i < tn_schedules_count(t->schedules); i++) {
        const char *name = tn_schedules_at(t->schedules, i, &value);
        n = add_field(t, n, name, value);
    }
    size_t report_count = tn_chain_reports(t->chain, &reports);
    for (size_t i = 0; i < report_count; i++)
        n = add_field(t, n, reports[i].name, reports[i].value);
    return record(t, result->committed ? "train" : "skip", n, err);
}

static void warn_of_skip(const tn_trainer *t, double count, const tn_step_result *result)
{
    const tn_parameters *all = tn_graph_parameters(t->graph);
    if (result->bad_parameter >= 0)
        tn_log_write(t->options.log, TN_LOG_WARNING, "update skipped at attempt %lld: the gradient of %s is not finite",
                     (long long)t->attempt + 1, all->list[result->bad_parameter].name);
    else
        tn_log_write(t->options.log, TN_LOG_WARNING, "update skipped at attempt %lld: %s", (long long)t->attempt + 1,
                     count == 0 ? "no target was counted" : "a sum over the gradients is not finite");
}

static int32_t judge(tn_trainer *t, double loss, const tn_step_result *result, tn_error *err)
{
    t->skipped += !result->committed;
    t->bad = result->committed && isfinite(loss) ? 0 : t->bad + 1;
    t->loss = result->committed ? loss : t->loss; /* a skipped update has left no trace */
    if (t->bad < DIVERGED_AFTER)
        return TN_OK;
    return tn_error_set(err, TN_E_NUMERIC,
                        "diverged: %d attempts in a row without a finite loss and an update, the last at attempt %lld; "
                        "try a smaller lr, a warm-up, or {use: clip-norm} in update",
                        DIVERGED_AFTER, (long long)t->attempt);
}

int32_t tn_trainer_step(tn_trainer *t, tn_error *err)
{
    tn_exact sums[TN_SUMS_MAX];
    tn_step_result result;
    double seed = window_seed(t);
    for (size_t i = 0; i < TN_SUMS_MAX; i++)
        tn_exact_clear(&sums[i]);
    int32_t status = apply_schedules(t, err); /* before the layers run: they may be scheduled too */
    if (status == TN_OK)
        status = run_window(t, seed, sums, err);
    double count = tn_exact_value(&sums[TN_SUM_COUNT]), loss = tn_exact_value(&sums[TN_SUM_LOSS]);
    t->tokens += count;
    if (status == TN_OK)
        status = update_parameters(t, count, seed, &result, err);
    if (status != TN_OK)
        return status;
    if (!result.committed)
        warn_of_skip(t, count, &result);
    t->attempt++;
    status = record_update(t, sums, &result, err);
    return status == TN_OK ? judge(t, loss, &result, err) : status;
}

/* ---- evaluation ---- */

static int32_t evaluate_split(tn_trainer *t, tn_exact *sums, tn_error *err)
{
    int64_t batch = t->eval_batch, samples = t->eval.split.samples;
    const void *view = t->e->eval_view ? tn_chain_view(t->chain) : NULL;
    for (int64_t lo = 0; lo < samples; lo += batch) {
        int64_t n = samples - lo < batch ? samples - lo : batch;
        for (int64_t i = 0; i < n; i++)
            t->index[i] = lo + i;
        tn_dataset_gather(&t->eval, t->pool, &t->services, t->attempt, *tn_chain_update(t->chain), t->index, n, 0,
                          tn_graph_input(t->graph), tn_graph_target(t->graph));
        tn_graph_run run = {.n = n, .attempt = t->attempt, .update = *tn_chain_update(t->chain), .seed = 1, .p = view};
        int32_t status = tn_graph_run_batch(t->graph, &run, sums, err);
        if (status != TN_OK)
            return status;
    }
    return TN_OK;
}

int32_t tn_trainer_evaluate(tn_trainer *t, tn_error *err)
{
    tn_exact sums[TN_SUMS_MAX];
    size_t n = 0;
    if (!t->e->eval_split)
        return tn_error_set(err, TN_E_INVALID, "the experiment names no split to evaluate; add eval: {split: test}");
    for (size_t i = 0; i < TN_SUMS_MAX; i++)
        tn_exact_clear(&sums[i]);
    int32_t status = evaluate_split(t, sums, err);
    if (status != TN_OK)
        return status;
    double count = tn_exact_value(&sums[TN_SUM_COUNT]);
    t->eval_loss = tn_exact_value(&sums[TN_SUM_LOSS]);
    n = add_field(t, n, t->eval_names[0], t->eval_loss / count);
    for (size_t i = 0; i < t->metric_count; i++)
        n = add_field(t, n, t->eval_names[1 + i], tn_exact_value(&sums[TN_SUM_FIRST + i]) / count);
    t->evaluated_at = t->attempt;
    tn_position position = position_of(t);
    tn_schedules_observe(t->schedules, &position, t->fields, n);
    status = record(t, "eval", n, err);
    return status == TN_OK && t->sinks ? tn_sinks_flush(t->sinks, err) : status;
}

int32_t tn_trainer_run(tn_trainer *t, tn_error *err)
{
    int32_t status = TN_OK;
    while (status == TN_OK && t->attempt < t->attempts && !t->stop) {
        status = tn_trainer_step(t, err);
        if (status == TN_OK && t->e->eval_split && t->eval_every > 0 && t->attempt % t->eval_every == 0)
            status = tn_trainer_evaluate(t, err);
    }
    if (status == TN_OK && t->e->eval_split && !t->stop && t->evaluated_at != t->attempt)
        status = tn_trainer_evaluate(t, err);
    if (status == TN_OK)
        status = record(t, "end", add_field(t, 0, "skipped", (double)t->skipped), err);
    if (status == TN_OK && t->sinks)
        status = tn_sinks_flush(t->sinks, err);
    if (status == TN_OK && !t->stop && !(isfinite(t->loss) && isfinite(t->eval_loss)))
        status =
            tn_error_set(err, TN_E_NUMERIC,
                         "diverged: the run ended with a loss of %g in training and %g in evaluation; try a smaller "
                         "lr, a warm-up, or {use: clip-norm} in update",
                         t->loss, t->eval_loss);
    if (status == TN_OK && t->stop)
        status = tn_error_set(err, TN_E_STOPPED, "stopped on request after %lld of %lld updates", (long long)t->attempt,
                              (long long)t->attempts);
    return status;
}

/* ---- looking in ---- */

int64_t tn_trainer_horizon(const tn_trainer *t) { return t->attempts; }
int64_t tn_trainer_attempt(const tn_trainer *t) { return t->attempt; }
tn_graph *tn_trainer_graph(tn_trainer *t) { return t->graph; }
tn_chain *tn_trainer_chain(tn_trainer *t) { return t->chain; }

static void describe_bytes(tn_text *text, const char *what, int64_t bytes)
{
    tn_text_addf(text, "  %-24s %10.2f MiB\n", what, (double)bytes / 1048576);
}

void tn_trainer_describe(const tn_trainer *t, tn_text *text)
{
    tn_graph_memory memory = tn_graph_memory_of(t->graph);
    const char *backend = t->backend.describe ? t->backend.describe() : NULL;
    tn_text_addf(text, "%s: %lld training samples, %lld updates of %lld samples, %d thread%s, %s\n", t->e->name,
                 (long long)t->train.split.samples, (long long)t->attempts, (long long)window_at(t, 0).samples,
                 tn_pool_threads(t->pool), tn_pool_threads(t->pool) == 1 ? "" : "s",
                 backend ? backend : t->e->backend->info->name);
    tn_graph_describe(t->graph, text);
    tn_text_add(text, "memory\n");
    describe_bytes(text, "data", t->train.split.bytes + t->eval.split.bytes);
    describe_bytes(text, "parameters, gradients", memory.parameters + memory.gradients + memory.buffers);
    describe_bytes(text, "update state", tn_chain_bytes(t->chain));
    describe_bytes(text, "activations, scratch",
                   memory.activations + memory.partials + memory.workspace + memory.input);
}
