/* SPDX-License-Identifier: Apache-2.0
 *
 * evaluate.c: passes over the split of eval, and the statistics of layers under the view that is evaluated.
 */
#include "host/base/error.h"
#include "host/train/internal.h"

/* The chain's view; NULL where it has none or the experiment wants the parameters as they are. */
static const void *view_of(tn_trainer *t)
{
    const void *view = t->e->eval_view ? tn_chain_view(t->chain) : NULL;
    return view == tn_graph_parameters(t->graph)->p ? NULL : view;
}

/* ---- statistics ---- */

/* Forward over batches of the training split, in training's own way, so that the view's buffers become its own. */
static int32_t refresh(tn_trainer *t, const void *p, tn_error *err)
{
    int32_t status = TN_OK, size = tn_comm_size(t->comm);
    int64_t batches = t->e->eval_refresh < t->micro_batches ? t->e->eval_refresh : t->micro_batches;
    for (int64_t k = 0; k < batches && status == TN_OK; k++) {
        tn_graph_run run = {.n = tn_window_gather(t, t->refresh_order, k),
                            .flags = TN_TRAIN,
                            .attempt = t->attempt,
                            .micro = k * size + tn_comm_rank(t->comm),
                            .update = *tn_chain_update(t->chain),
                            .seed = 1,
                            .p = p,
                            .view = TN_VIEW_EVAL,
                            .forward_only = 1,
                            .refresh = k + 1};
        status = tn_graph_run_batch(t->graph, &run, NULL, err);
    }
    return tn_trainer_agree(t, status, err);
}

static int64_t bytes_of(const tn_tensor *tensor)
{
    int64_t bytes = tensor->dtype.bits / 8;
    for (int32_t i = 0; i < tensor->ndim; i++)
        bytes *= tensor->shape[i];
    return bytes;
}

/* Layers without sums over processes have statistics of their own samples: all evaluate with those of process 0. */
static int32_t share_buffers(tn_trainer *t, tn_error *err)
{
    const tn_graph_buffer *buffers;
    size_t count = tn_graph_buffers(t->graph, &buffers);
    int32_t status = TN_OK;
    for (size_t i = 0; i < count && status == TN_OK; i++)
        status = tn_comm_broadcast(t->comm, buffers[i].eval.data, bytes_of(&buffers[i].eval), 0, err);
    return status;
}

static void warn_of_buffers(tn_trainer *t)
{
    if (!t->warned_of_buffers)
        tn_log_write(t->options.log, TN_LOG_WARNING,
                     "the averaged parameters are evaluated with the running statistics of training; let batches of "
                     "training renew them with eval.refresh=50");
    t->warned_of_buffers = 1;
}

/* Sets the eval view's buffers; *ret: the view to run under. */
static int32_t prepare_buffers(tn_trainer *t, const void *view, const void *p, int32_t *ret, tn_error *err)
{
    const tn_graph_buffer *buffers;
    *ret = TN_VIEW_TRAIN;
    if (tn_graph_buffers(t->graph, &buffers) == 0 || (!view && !t->comm))
        return TN_OK;
    *ret = TN_VIEW_EVAL;
    tn_graph_copy_buffers(t->graph);
    if (view && !t->refresh_order)
        warn_of_buffers(t);
    int32_t status = view && t->refresh_order ? refresh(t, p, err) : TN_OK;
    return status == TN_OK ? share_buffers(t, err) : status;
}

/* ---- the split ---- */

/* This process's share of the samples from `lo` on. */
static int64_t gather(tn_trainer *t, int64_t lo)
{
    int64_t left = t->eval.split.samples - lo, n = tn_processes_share(t, left < t->eval_batch ? left : t->eval_batch);
    for (int64_t i = 0; i < n; i++)
        t->index[i] = lo + tn_comm_rank(t->comm) + i * tn_comm_size(t->comm);
    tn_dataset_gather(&t->eval, t->pool, &t->services, t->attempt, *tn_chain_update(t->chain), t->index, n, 0,
                      tn_graph_input(t->graph), tn_graph_target(t->graph));
    return n;
}

static int32_t evaluate_split(tn_trainer *t, tn_exact *sums, tn_error *err)
{
    const void *view = view_of(t), *p = tn_precision_show(t, view);
    int32_t buffers, status = prepare_buffers(t, view, p, &buffers, err);
    t->held = -1;
    for (int64_t lo = 0; lo < t->eval.split.samples && status == TN_OK; lo += t->eval_batch) {
        tn_graph_run run = {.n = gather(t, lo),
                            .attempt = t->attempt,
                            .update = *tn_chain_update(t->chain),
                            .seed = 1,
                            .p = p,
                            .view = buffers};
        if (run.n > 0)
            status = tn_graph_run_batch(t->graph, &run, sums, err);
    }
    status = tn_trainer_agree(t, status, err);
    return status == TN_OK ? tn_processes_join_sums(t, sums, err) : status;
}

static int32_t evaluate(tn_trainer *t, tn_error *err)
{
    tn_exact sums[TN_SUMS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < TN_SUMS_MAX; i++)
        tn_exact_clear(&sums[i]);
    int32_t status = evaluate_split(t, sums, err);
    if (status != TN_OK)
        return status;
    double count = tn_exact_value(&sums[TN_SUM_COUNT]);
    t->eval_loss = tn_exact_value(&sums[TN_SUM_LOSS]);
    n = tn_record_add(t, n, t->eval_names[0], t->eval_loss / count);
    for (size_t i = 0; i < t->metric_count; i++)
        n = tn_record_add(t, n, t->eval_names[1 + i], tn_exact_value(&sums[TN_SUM_FIRST + i]) / count);
    for (size_t i = 0; i < n; i++)
        t->eval_values[i] = t->fields[i].value;
    t->evaluated_at = t->attempt;
    t->save |= tn_checkpoint_is_best(t);
    tn_position position = tn_window_position(t);
    tn_schedules_observe(t->schedules, &position, t->fields, n);
    status = tn_record_send(t, "eval", n, err);
    return status == TN_OK && t->sinks ? tn_sinks_flush(t->sinks, err) : status;
}

int32_t tn_trainer_evaluate(tn_trainer *t, tn_error *err)
{
    if (!t->e->eval_split)
        return tn_error_set(err, TN_E_INVALID, "the experiment names no split to evaluate; add eval: {split: test}");
    return tn_trainer_agree(t, evaluate(t, err), err);
}
