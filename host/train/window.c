/* SPDX-License-Identifier: Apache-2.0
 *
 * window.c: the samples of one attempt, and their gradient.
 */
#include <math.h>

#include "host/base/philox.h"
#include "host/train/internal.h"

/* ---- samples ---- */

int64_t tn_window_samples(const tn_trainer *t, int64_t micro)
{
    int64_t left = t->train.split.samples - micro * t->batch;
    return left < t->batch ? left : t->batch;
}

tn_window tn_window_at(const tn_trainer *t, int64_t attempt)
{
    int64_t first = attempt % t->windows * t->e->accumulate, end = first + t->e->accumulate;
    end = end < t->micro_batches ? end : t->micro_batches;
    return (tn_window){first, end, (end - first - 1) * t->batch + tn_window_samples(t, end - 1)};
}

/* The order of the epoch, a function of (seed, epoch) alone. */
static const uint32_t *order_of(tn_trainer *t, int64_t epoch)
{
    if (t->order_epoch != epoch)
        tn_random_permutation(t->order_key, (uint64_t)epoch, t->train.split.samples, t->order);
    t->order_epoch = epoch;
    return t->order;
}

int64_t tn_window_gather(tn_trainer *t, const uint32_t *order, int64_t micro)
{
    int64_t n = tn_processes_share(t, tn_window_samples(t, micro)), rank = tn_comm_rank(t->comm),
            size = tn_comm_size(t->comm);
    for (int64_t i = 0; i < n; i++)
        t->index[i] = order[micro * t->batch + rank + i * size];
    tn_dataset_gather(&t->train, t->pool, &t->services, t->attempt, *tn_chain_update(t->chain), t->index, n, 1,
                      tn_graph_input(t->graph), tn_graph_target(t->graph));
    t->held = -1;
    return n;
}

tn_position tn_window_position(const tn_trainer *t)
{
    return (tn_position){.step = *tn_chain_update(t->chain),
                         .epoch = t->samples / (double)t->train.split.samples,
                         .samples = t->samples,
                         .tokens = t->tokens};
}

/* ---- looking at a window ---- */

int32_t tn_window_visit(tn_trainer *t, uint32_t flags, double seed, tn_window_look *look, void *arg, tn_error *err)
{
    tn_window w = tn_window_at(t, t->attempt);
    const void *p = tn_precision_show(t, NULL);
    int32_t status = TN_OK, size = tn_comm_size(t->comm);
    for (int64_t micro = w.first; micro < w.end && status == TN_OK; micro++) {
        if (t->held != micro)
            t->held_own = tn_window_gather(t, order_of(t, t->attempt / t->windows), micro);
        t->held = micro;
        tn_graph_run run = {.n = t->held_own,
                            .flags = TN_TRAIN | flags | (micro > w.first ? TN_ACCUMULATE : 0),
                            .attempt = t->attempt,
                            .micro = (micro - w.first) * size + tn_comm_rank(t->comm),
                            .update = *tn_chain_update(t->chain),
                            .seed = seed,
                            .p = p};
        status = look(t, &run, arg, err);
    }
    return tn_trainer_agree(t, status, err);
}

/* ---- the gradient ---- */

static void hand_tap(void *user, int64_t weight, const tn_tensor *x, const tn_tensor *dy, double seed)
{
    tn_trainer *t = user;
    tn_chain_tap(t->chain, weight, x, dy, seed);
}

typedef struct {
    tn_exact *sums;
    int32_t tapping;
} first_look;

/* Taps of the true targets come along; drawn ones need a backward of their own. */
static int32_t look_first(tn_trainer *t, const tn_graph_run *given, void *arg, tn_error *err)
{
    const first_look *look = arg;
    tn_graph_run run = *given;
    run.user = t;
    run.tap = look->tapping == TN_TAP_TARGETS ? hand_tap : NULL;
    int32_t status = tn_graph_run_batch(t->graph, &run, look->sums, err);
    if (status == TN_OK)
        tn_noise_see(t, &run);
    if (status != TN_OK || look->tapping != TN_TAP_SAMPLED)
        return status;
    run.flags = TN_TRAIN | TN_FREEZE;
    run.no_gradient = run.sampled = 1;
    run.tap = hand_tap;
    return tn_graph_run_batch(t->graph, &run, look->sums, err);
}

/* A power of two near 1 / samples, so that gradients stay in range; what is left goes into the chain's scale. */
static double seed_of(const tn_trainer *t)
{
    return exp2(-ceil(log2((double)tn_window_at(t, t->attempt).samples))) * t->loss_scale;
}

int32_t tn_window_run(tn_trainer *t, tn_exact sums[TN_SUMS_MAX], tn_error *err)
{
    first_look look = {sums, tn_chain_tapping(t->chain)};
    int32_t status = tn_precision_scale(t, &t->loss_scale, err);
    if (status != TN_OK)
        return status;
    t->seed = seed_of(t);
    t->held = -1;
    status = tn_window_visit(t, 0, t->seed, look_first, &look, err);
    if (status == TN_OK)
        status = tn_processes_join_arena(t, tn_graph_parameters(t->graph)->g, err);
    if (status == TN_OK)
        status = tn_processes_join_sums(t, sums, err);
    t->samples += (double)tn_window_at(t, t->attempt).samples;
    t->count = tn_exact_value(&sums[TN_SUM_COUNT]);
    return status == TN_OK ? tn_noise_measure(t, err) : status;
}
