/* SPDX-License-Identifier: Apache-2.0
 *
 * evaluate.c: passes over the split of eval.
 */
#include "host/base/error.h"
#include "host/train/internal.h"

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
    n = tn_record_add(t, n, t->eval_names[0], t->eval_loss / count);
    for (size_t i = 0; i < t->metric_count; i++)
        n = tn_record_add(t, n, t->eval_names[1 + i], tn_exact_value(&sums[TN_SUM_FIRST + i]) / count);
    t->evaluated_at = t->attempt;
    tn_position position = tn_window_position(t);
    tn_schedules_observe(t->schedules, &position, t->fields, n);
    status = tn_record_send(t, "eval", n, err);
    return status == TN_OK && t->sinks ? tn_sinks_flush(t->sinks, err) : status;
}
