/* SPDX-License-Identifier: Apache-2.0
 *
 * measure.c: sides in turn, medians and quartiles.
 */
#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "host/base/memory.h"
#include "host/bench/internal.h"

#define STRETCH     2e-3 /* seconds that a timing takes at least, so that the clock's own steps do not count */
#define REPEATS_MAX (1 << 20)

/* On one thread what others take of the processor does not count. */
static double now(const tn_bench_run *run)
{
    struct timespec t;
    clock_gettime(run->threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of one run. */
static double time_of(const tn_bench_run *run, const tn_bench_side *side, int32_t repeats)
{
    double start = now(run);
    for (int32_t i = 0; i < repeats; i++)
        side->run(side->arg);
    return (now(run) - start) / repeats;
}

/* The first run warms up. */
static int32_t repeats_of(const tn_bench_run *run, const tn_bench_side *side)
{
    (void)time_of(run, side, 1);
    double wanted = STRETCH / fmax(time_of(run, side, 1), 1e-9);
    return wanted < 1 ? 1 : wanted > REPEATS_MAX ? REPEATS_MAX : (int32_t)ceil(wanted);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts them. */
static tn_bench_spread spread_of(double *values, int32_t count)
{
    qsort(values, (size_t)count, sizeof *values, by_size);
    return (tn_bench_spread){values[count / 4], values[count / 2], values[count - 1 - count / 4]};
}

/* Every other round goes backwards, so that nobody always follows the same neighbour. */
static void take_turns(const tn_bench_run *run, const tn_bench_side *sides, int32_t count, const int32_t *repeats,
                       double *times)
{
    for (int32_t round = 0; round < run->rounds; round++)
        for (int32_t i = 0; i < count; i++) {
            int32_t side = round % 2 ? count - 1 - i : i;
            times[(int64_t)side * run->rounds + round] = time_of(run, &sides[side], repeats[side]);
        }
}

static int32_t add_row(tn_bench_run *run, const char *group, const char *name, tn_bench_row **ret, tn_error *err)
{
    if (tn_grow(&run->rows, &run->row_capacity, run->row_count, sizeof *run->rows) != TN_OK)
        return tn_bench_no_memory(err);
    tn_bench_row *row = &run->rows[run->row_count++];
    *row = (tn_bench_row){.group = tn_strdup(group), .name = tn_strdup(name)};
    if (!row->group || !row->name)
        return tn_bench_no_memory(err);
    *ret = row;
    return TN_OK;
}

int32_t tn_bench_skip(tn_bench_run *run, const char *group, const char *name, const char *reason, tn_error *err)
{
    tn_bench_row *row = NULL;
    int32_t status = add_row(run, group, name, &row, err);
    if (!status && !(row->reason = tn_strdup(reason)))
        status = tn_bench_no_memory(err);
    return status;
}

static int is_limit(const tn_bench_side *sides, int32_t count, int32_t side)
{
    for (int32_t i = 0; i < count; i++)
        if (sides[i].limit == side)
            return 1;
    return 0;
}

/* What of the times is sorted is a copy: `scratch` has room for one side's. */
typedef struct turns {
    const tn_bench_side *sides;
    const double *times; /* [sides][rounds] */
    double *scratch;
    int32_t rounds;
} turns;

static tn_bench_spread seconds_of(const turns *t, int32_t side)
{
    for (int32_t i = 0; i < t->rounds; i++)
        t->scratch[i] = t->times[(int64_t)side * t->rounds + i];
    return spread_of(t->scratch, t->rounds);
}

static tn_bench_spread share_of(const turns *t, int32_t side, int32_t limit, int32_t cost)
{
    double work = t->sides[side].work / t->sides[limit].work;
    for (int32_t i = 0; i < t->rounds; i++) {
        double share = work * t->times[(int64_t)limit * t->rounds + i] / t->times[(int64_t)side * t->rounds + i];
        t->scratch[i] = cost ? 1 / share : share;
    }
    return spread_of(t->scratch, t->rounds);
}

static int32_t report(tn_bench_run *run, const char *group, const turns *t, int32_t side, tn_error *err)
{
    tn_bench_row *row = NULL;
    int32_t limit = t->sides[side].limit, status = add_row(run, group, t->sides[side].name, &row, err);
    if (status)
        return status;
    row->work = t->sides[side].work;
    row->seconds = seconds_of(t, side);
    if (limit < 0)
        return TN_OK;
    row->limit_work = t->sides[limit].work;
    row->limit_seconds = seconds_of(t, limit);
    row->share = share_of(t, side, limit, run->cost);
    return (row->limit = tn_strdup(t->sides[limit].name)) ? TN_OK : tn_bench_no_memory(err);
}

int32_t tn_bench_measure(tn_bench_run *run, const char *group, const tn_bench_side *sides, int32_t count, tn_error *err)
{
    size_t rounds = (size_t)run->rounds;
    double *times = tn_alloc(((size_t)count + 1) * rounds, sizeof *times);
    int32_t *repeats = tn_alloc((size_t)count, sizeof *repeats), status = TN_OK;
    if (!times || !repeats)
        status = tn_bench_no_memory(err);
    for (int32_t i = 0; i < count && !status; i++)
        repeats[i] = repeats_of(run, &sides[i]);
    if (!status)
        take_turns(run, sides, count, repeats, times);
    const turns t = {sides, times, times ? times + (size_t)count * rounds : NULL, run->rounds};
    for (int32_t i = 0; i < count && !status; i++)
        if (!is_limit(sides, count, i))
            status = report(run, group, &t, i, err);
    tn_free(times);
    tn_free(repeats);
    return status;
}
