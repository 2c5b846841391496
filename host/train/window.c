/* SPDX-License-Identifier: Apache-2.0
 *
 * window.c: the samples of one attempt, and their gradient.
 */
#include <math.h>

#include "host/base/philox.h"
#include "host/train/internal.h"

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

tn_window tn_window_at(const tn_trainer *t, int64_t attempt)
{
    int64_t first = attempt % t->windows * t->e->accumulate, end = first + t->e->accumulate;
    end = end < t->micro_batches ? end : t->micro_batches;
    int64_t whole = (end - first) * t->batch, over = end * t->batch - t->train.split.samples;
    return (tn_window){first, end, over > 0 ? whole - over : whole};
}

int32_t tn_window_run(tn_trainer *t, double seed, tn_exact sums[TN_SUMS_MAX], tn_error *err)
{
    tn_window w = tn_window_at(t, t->attempt);
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

double tn_window_seed(const tn_trainer *t) { return exp2(-ceil(log2((double)tn_window_at(t, t->attempt).samples))); }

tn_position tn_window_position(const tn_trainer *t)
{
    return (tn_position){.step = *tn_chain_update(t->chain),
                         .epoch = t->samples / (double)t->train.split.samples,
                         .samples = t->samples,
                         .tokens = t->tokens};
}
