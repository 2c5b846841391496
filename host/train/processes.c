/* SPDX-License-Identifier: Apache-2.0
 *
 * processes.c: a run on several processes. Each takes its share of every micro-batch; gradients and sums are added over
 * all; then each does the same update. What one does, all do: they agree on failures and on stopping.
 */
#include <string.h>

#include "host/base/error.h"
#include "host/base/memory.h"
#include "host/base/philox.h"
#include "host/train/internal.h"

/* Of the resolved experiment but for its line `parallel`, in which processes may differ. */
static uint64_t hash_experiment(const tn_experiment *e)
{
    const char *line = strstr(e->resolved, "\nparallel:"), *rest = line ? strchr(line + 1, '\n') : NULL;
    char *before = tn_strndup(e->resolved, line ? (size_t)(line - e->resolved) : strlen(e->resolved));
    uint64_t hash = tn_hash_key(0, before ? before : "", rest ? rest : "");
    tn_free(before);
    return hash;
}

static int32_t check_same(tn_trainer *t, tn_error *err)
{
    int32_t size = tn_comm_size(t->comm);
    uint64_t own = hash_experiment(t->e), *all = tn_alloc((size_t)size, sizeof *all);
    if (!all)
        return tn_error_set(err, TN_E_MEMORY, "no memory for %d processes", size);
    int32_t status = tn_comm_all_gather(t->comm, &own, all, sizeof own, err);
    for (int32_t i = 0; i < size && status == TN_OK; i++)
        if (all[i] != own)
            status = tn_error_set(err, TN_E_INVALID,
                                  "%s: process %d runs another experiment than process %d; start all with the same "
                                  "file and overrides",
                                  t->e->name, i, tn_comm_rank(t->comm));
    tn_free(all);
    return status;
}

int32_t tn_processes_open(tn_trainer *t, tn_error *err)
{
    int32_t status = tn_comm_open(t->options.registry, t->e->collective, &t->comm, err);
    if (status != TN_OK || !t->comm)
        return status;
    t->verdicts = tn_alloc((size_t)tn_comm_size(t->comm), sizeof *t->verdicts);
    if (!t->verdicts)
        return tn_error_set(err, TN_E_MEMORY, "no memory for %d processes", tn_comm_size(t->comm));
    return check_same(t, err);
}

void tn_processes_close(tn_trainer *t)
{
    tn_comm_close(t->comm);
    tn_free(t->verdicts);
}

int32_t tn_trainer_agree(tn_trainer *t, int32_t status, tn_error *err)
{
    tn_verdict own = {status, t->stop, t->save};
    tn_error inner;
    if (status == TN_OK)
        own.status = status = tn_failures_take(&t->failures, err);
    if (!t->verdicts)
        return status;
    int32_t joint = tn_comm_all_gather(t->comm, &own, t->verdicts, sizeof own, &inner);
    if (status != TN_OK)
        return status;
    if (joint != TN_OK)
        return tn_error_set(err, joint, "%s", inner.msg);
    for (int32_t i = 0; i < tn_comm_size(t->comm) && status == TN_OK; i++) {
        t->stop |= t->verdicts[i].stop;
        t->save |= t->verdicts[i].save;
        if (t->verdicts[i].status != TN_OK)
            status = tn_error_set(err, t->verdicts[i].status, "process %d of %d failed; its own message says why", i,
                                  tn_comm_size(t->comm));
    }
    return status;
}

int32_t tn_trainer_rank(const tn_trainer *t) { return tn_comm_rank(t->comm); }

int64_t tn_processes_share(const tn_trainer *t, int64_t n)
{
    int64_t rank = tn_comm_rank(t->comm), size = tn_comm_size(t->comm);
    return n > rank ? ceil_div(n - rank, size) : 0;
}

int64_t tn_processes_most(const tn_trainer *t, int64_t n) { return ceil_div(n, tn_comm_size(t->comm)); }

int32_t tn_processes_join_sums(tn_trainer *t, tn_exact sums[TN_SUMS_MAX], tn_error *err)
{
    return tn_comm_sum_exact(t->comm, sums, TN_SUM_FIRST + (int64_t)t->metric_count, err);
}

int32_t tn_processes_join_arena(tn_trainer *t, void *arena, tn_error *err)
{
    const tn_parameters *all = tn_graph_parameters(t->graph);
    tn_dtype real = {TN_FLOAT, (uint8_t)all->real, 1};
    return tn_comm_all_reduce(t->comm, real, arena, all->elements, TN_REDUCE_SUM, err);
}
