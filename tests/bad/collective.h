/* SPDX-License-Identifier: Apache-2.0
 *
 * collective.h: a good collective for up to 3 processes, which take turns at a file in /dev/shm, in which parts may be
 * replaced before this file is included, to be wrong in one way. Each rank posts its call and its numbers; when all
 * have, each reads those of all; when all have read, the next operation may begin.
 */
#ifndef TENON_TESTS_BAD_COLLECTIVE_H
#define TENON_TESTS_BAD_COLLECTIVE_H

#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <tenon/parallel.h>
#include <tenon/sdk.h>

#ifndef PROBE_ROOT /* (t): whose numbers a broadcast hands out */
#define PROBE_ROOT(t) (t)->peer
#endif
#ifndef PROBE_TURN /* (r, size): which rank is the r-th to be added */
#define PROBE_TURN(r, size) (r)
#endif
#ifndef PROBE_AGREE /* (a, b): do two calls match? */
#define PROBE_AGREE(a, b) ((a)->count == (b)->count && (a)->operation == (b)->operation)
#endif
#ifndef PROBE_WAITS /* (t): for how long */
#define PROBE_WAITS(t) (t)->timeout
#endif
#ifndef PROBE_AFTER /* behind each operation */
#define PROBE_AFTER
#endif

enum { PROBE_RANKS = 3, PROBE_BYTES = 1 << 16 };

typedef struct probe_desk {
    _Atomic int64_t posted[PROBE_RANKS][PROBE_RANKS], read[PROBE_RANKS][PROBE_RANKS]; /* by whom, with whom */
    tn_transfer call[PROBE_RANKS];
    _Alignas(8) char bytes[PROBE_RANKS][PROBE_BYTES];
} probe_desk;

typedef struct probe_state {
    probe_desk *desk;
    int64_t done, next;            /* operations; the least sequence that may come */
    int64_t together[PROBE_RANKS]; /* operations with each rank */
} probe_state;

static int32_t probe_number(const char *name, int32_t otherwise)
{
    const char *text = getenv(name);
    return text ? (int32_t)strtol(text, NULL, 10) : otherwise;
}

static int32_t probe_world(const void *hyper, int32_t *ret_rank, int32_t *ret_size, tn_error *err)
{
    (void)hyper, (void)err;
    *ret_size = probe_number("TENON_RANKS", 1);
    *ret_rank = probe_number("TENON_RANK", 0);
    return TN_OK;
}

static void probe_path(char *path, size_t size)
{
    const char *name = getenv("TENON_SHM");
    snprintf(path, size, "/dev/shm/%s", name ? name : "tenon-probe");
}

static int32_t probe_open(const void *hyper, tn_group *group, tn_error *err)
{
    probe_state *s = (probe_state *)group->state;
    char path[200];
    (void)hyper;
    group->arena = NULL;
    probe_path(path, sizeof path);
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, sizeof *s->desk) != 0)
        return tn_fail(err, TN_E_IO, "probe: can not make %s", path);
    s->desk = mmap(NULL, sizeof *s->desk, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return s->desk == MAP_FAILED ? tn_fail(err, TN_E_MEMORY, "probe: can not map %s", path) : TN_OK;
}

static void probe_close(tn_group *group)
{
    char path[200];
    probe_path(path, sizeof path);
    unlink(path);
    munmap(((probe_state *)group->state)->desk, sizeof(probe_desk));
}

static double probe_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int probe_takes_part(const tn_group *group, const tn_transfer *t, int32_t r)
{
    return (t->operation != TN_SEND && t->operation != TN_RECEIVE) || r == group->rank || r == t->peer;
}

/* Until all that take part, or all at all, have done what they did with this rank. */
static int32_t probe_await(const tn_group *group, const tn_transfer *t, _Atomic int64_t (*counts)[PROBE_RANKS], int all,
                           tn_error *err)
{
    const probe_state *s = (const probe_state *)group->state;
    const struct timespec moment = {0, 1000};
    double until = probe_now() + PROBE_WAITS(t);
    for (int32_t r = 0; r < group->size; r++)
        while ((all || probe_takes_part(group, t, r)) && counts[r][group->rank] < s->together[r]) {
            if (probe_now() > until)
                return tn_fail(err, TN_E_IO, "probe: rank %d does not come", r);
            nanosleep(&moment, NULL);
        }
    return TN_OK;
}

static size_t probe_width(const tn_transfer *t) { return t->dtype.bits / 8u; }

static double probe_get(const tn_transfer *t, const void *data, int64_t i)
{
    if (t->dtype.code == TN_INT)
        return ((const int32_t *)data)[i];
    return t->dtype.bits == 64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

static void probe_put(const tn_transfer *t, int64_t i, double value)
{
    if (t->dtype.code == TN_INT)
        ((int32_t *)t->to)[i] = (int32_t)value;
    else if (t->dtype.bits == 64)
        ((double *)t->to)[i] = value;
    else
        ((float *)t->to)[i] = (float)value;
}

static double probe_join(const tn_transfer *t, double a, double b)
{
    if (t->reduce == TN_REDUCE_MAX)
        return a > b ? a : b;
    return t->dtype.bits == 32 && t->dtype.code == TN_FLOAT ? (double)((float)a + (float)b) : a + b;
}

static void probe_reduce(const tn_group *group, const tn_transfer *t, int64_t first)
{
    const probe_desk *d = ((const probe_state *)group->state)->desk;
    for (int64_t i = 0; i < t->count; i++) {
        double sum = probe_get(t, d->bytes[PROBE_TURN(0, group->size)], first + i);
        for (int32_t r = 1; r < group->size; r++)
            sum = probe_join(t, sum, probe_get(t, d->bytes[PROBE_TURN(r, group->size)], first + i));
        probe_put(t, i, t->reduce == TN_REDUCE_MEAN ? sum / group->size : sum);
    }
}

static void probe_move(const tn_group *group, const tn_transfer *t)
{
    const probe_desk *d = ((const probe_state *)group->state)->desk;
    size_t bytes = (size_t)t->count * probe_width(t);
    if (t->operation == TN_ALL_REDUCE || t->operation == TN_REDUCE_SCATTER)
        probe_reduce(group, t, t->operation == TN_ALL_REDUCE ? 0 : group->rank * t->count);
    for (int32_t r = 0; t->operation == TN_ALL_GATHER && r < group->size; r++)
        memcpy((char *)t->to + (size_t)r * bytes, d->bytes[r], bytes);
    if (t->operation == TN_BROADCAST)
        memcpy(t->to, d->bytes[PROBE_ROOT(t)], bytes);
    if (t->operation == TN_RECEIVE)
        memcpy(t->to, d->bytes[t->peer], bytes);
}

static int32_t probe_check(const tn_group *group, const tn_transfer *t, tn_error *err)
{
    const probe_state *s = (const probe_state *)group->state;
    for (int32_t r = 0; r < group->size; r++) {
        const tn_transfer *other = &s->desk->call[r];
        if (probe_takes_part(group, t, r) && t->operation < TN_SEND && !PROBE_AGREE(t, other))
            return tn_fail(err, TN_E_INVALID, "probe: rank %d passes %lld numbers and rank %d %lld", group->rank,
                           (long long)t->count, r, (long long)other->count);
    }
    return TN_OK;
}

static void probe_tell(const tn_group *group, const tn_transfer *t, _Atomic int64_t (*counts)[PROBE_RANKS])
{
    for (int32_t r = 0; r < group->size; r++)
        counts[group->rank][r] += probe_takes_part(group, t, r);
}

static int32_t probe_post(tn_group *group, const tn_transfer *t, tn_error *err)
{
    probe_state *s = (probe_state *)group->state;
    size_t many = t->operation == TN_REDUCE_SCATTER ? (size_t)group->size : 1;
    size_t bytes = t->operation == TN_RECEIVE ? 0 : (size_t)t->count * probe_width(t) * many;
    int32_t status = probe_await(group, t, s->desk->read, 1, err);
    if (status != TN_OK)
        return status;
    if (bytes)
        memcpy(s->desk->bytes[group->rank], t->from, bytes);
    s->desk->call[group->rank] = *t;
    for (int32_t r = 0; r < group->size; r++)
        s->together[r] += probe_takes_part(group, t, r);
    probe_tell(group, t, s->desk->posted);
    return TN_OK;
}

static int32_t probe_start(tn_group *group, const tn_transfer *t, int64_t *ret_ticket, tn_error *err)
{
    probe_state *s = (probe_state *)group->state;
    if (t->operation < TN_ALL_REDUCE || t->operation > TN_BARRIER || t->sequence < s->next)
        return tn_fail(err, TN_E_INVALID, "probe: operation %d, sequence %lld", t->operation, (long long)t->sequence);
    s->next = t->sequence + 1;
    int32_t status = probe_post(group, t, err);
    status = status ? status : probe_await(group, t, s->desk->posted, 0, err);
    status = status ? status : probe_check(group, t, err);
    if (status != TN_OK)
        return status;
    probe_move(group, t);
    probe_tell(group, t, s->desk->read);
    *ret_ticket = ++s->done;
    PROBE_AFTER
    return TN_OK;
}

static int32_t probe_wait(tn_group *group, int64_t ticket, tn_error *err)
{
    (void)group, (void)ticket, (void)err;
    return TN_OK;
}

static const tn_collective probe_table = {
    sizeof(tn_collective), 1, sizeof(probe_state), probe_world, probe_open, probe_close, probe_start, probe_wait};

TN_COMPONENT(probe, "collective", TN_COLLECTIVE, 0u, TN_NO_HYPER, "a test", "", probe_table);
TN_PLUGIN("org.tenon.test.probe", "0.1.0", "Apache-2.0", probe)

#endif
