/* SPDX-License-Identifier: Apache-2.0
 *
 * A star: rank 0 of a group listens at a local socket, every other rank is connected to it. Rank 0 adds in the order of
 * ranks, in f64, so bits depend on no timing. An operation is done when it has been started. Sends and receives between
 * two ranks, which pipelines need, are not offered.
 *
 *   tenon run exp.yaml 'parallel.collective={use: my-thing, rank: 0, ranks: 2, folder: /run/user/1000}'    and rank: 1
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* accept4 */
#endif
#include <errno.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <tenon/parallel.h>
#include <tenon/sdk.h>

#define HYPER(X)                                                                                                       \
    X(integer, rank, 0, "[0, 63]", "this process, from 0")                                                             \
    X(integer, ranks, 1, "[1, 64]", "processes of the run")                                                            \
    X(text, folder, "/tmp", "", "where the processes find each other's socket; no one else should write to it")        \
    X(fixed, patience, 60, "(0, inf) s", "seconds to wait for the others at the start")
TN_DECLARE(my_thing, HYPER)

enum { MOST = 64, CHUNK = 512 };

typedef struct {
    int64_t next, tickets; /* the smallest sequence that may come; operations so far */
    int32_t line[MOST];    /* rank 0: descriptor + 1 of each other rank; the others: of rank 0 in [0] */
} my_thing_state;

/* What all members must agree on. */
typedef struct {
    int64_t sequence, count;
    int32_t operation, reduce, peer, rank;
    tn_dtype dtype;
    int32_t reserved;
} my_thing_head;

static int32_t my_thing_world(const void *hyper, int32_t *ret_rank, int32_t *ret_size, tn_error *err)
{
    const my_thing *h = (const my_thing *)hyper;
    if (h->rank >= h->ranks)
        return tn_fail(err, TN_E_INVALID, "collective my-thing: rank is %lld of %lld, needed less", (long long)h->rank,
                       (long long)h->ranks);
    *ret_rank = (int32_t)h->rank;
    *ret_size = (int32_t)h->ranks;
    return TN_OK;
}

/* ---- bytes ---- */

static int32_t my_thing_broken(const tn_group *group, int32_t rank, tn_error *err)
{
    int timed_out = errno == EAGAIN || errno == EWOULDBLOCK;
    return tn_fail(err, TN_E_IO, "collective my-thing: rank %d of %d %s rank %d: %s", (int)group->rank,
                   (int)group->size, timed_out ? "waited too long for" : "lost", (int)rank, strerror(errno));
}

static int my_thing_line(const tn_group *group, int32_t rank)
{
    return ((const my_thing_state *)group->state)->line[rank] - 1;
}

static int32_t my_thing_send(const tn_group *group, int32_t rank, const void *bytes, int64_t count, tn_error *err)
{
    for (int64_t done = 0; done < count;) {
        ssize_t n = send(my_thing_line(group, rank), (const char *)bytes + done, (size_t)(count - done), MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR)
            return my_thing_broken(group, rank, err);
        done += n > 0 ? n : 0;
    }
    return TN_OK;
}

static int32_t my_thing_receive(const tn_group *group, int32_t rank, void *bytes, int64_t count, tn_error *err)
{
    for (int64_t done = 0; done < count;) {
        ssize_t n = recv(my_thing_line(group, rank), (char *)bytes + done, (size_t)(count - done), 0);
        if (n == 0)
            errno = ECONNRESET;
        if (n == 0 || (n < 0 && errno != EINTR))
            return my_thing_broken(group, rank, err);
        done += n > 0 ? n : 0;
    }
    return TN_OK;
}

static void my_thing_patience(const tn_group *group, double seconds)
{
    struct timeval limit;
    double whole = floor(fmin(fmax(seconds, 0.001), 1e9));
    limit.tv_sec = (time_t)whole;
    limit.tv_usec = (suseconds_t)(fmin(fmax(seconds, 0.001) - whole, 0.999999) * 1e6);
    for (int32_t rank = 0; rank < group->size; rank++)
        if (my_thing_line(group, rank) >= 0) {
            setsockopt(my_thing_line(group, rank), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
            setsockopt(my_thing_line(group, rank), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        }
}

/* ---- finding each other ---- */

/* The socket's path, of the group's members. */
static int32_t my_thing_address(const my_thing *h, const tn_group *group, struct sockaddr_un *ret, tn_error *err)
{
    uint64_t hash = 14695981039346656037u;
    for (int32_t i = 0; i < group->size; i++)
        hash = (hash ^ (uint64_t)group->members[i]) * 1099511628211u;
    memset(ret, 0, sizeof *ret);
    ret->sun_family = AF_UNIX;
    int n = snprintf(ret->sun_path, sizeof ret->sun_path, "%s/my-thing-%016llx", h->folder, (unsigned long long)hash);
    return n < (int)sizeof ret->sun_path ? TN_OK
                                         : tn_fail(err, TN_E_INVALID,
                                                   "collective my-thing: the folder '%s' has too "
                                                   "long a name for a socket",
                                                   h->folder);
}

/* Rank 0 waits for the others, who say their rank. */
static int32_t my_thing_gather_lines(tn_group *group, const struct sockaddr_un *address, double patience, tn_error *err)
{
    my_thing_state *state = (my_thing_state *)group->state;
    struct timeval limit = {(time_t)fmin(ceil(patience), 1e9), 0};
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), failed = listener < 0;
    unlink(address->sun_path);
    failed = failed || bind(listener, (const struct sockaddr *)address, sizeof *address) != 0 ||
             listen(listener, MOST) != 0 || setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0;
    for (int32_t missing = group->size - 1; missing > 0 && !failed; missing--) {
        int32_t rank = 0;
        int line = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        failed = line < 0 || recv(line, &rank, sizeof rank, MSG_WAITALL) != sizeof rank || rank < 1 ||
                 rank >= group->size || state->line[rank];
        if (!failed)
            state->line[rank] = line + 1;
        else if (line >= 0)
            close(line);
    }
    int reason = errno;
    if (listener >= 0)
        close(listener);
    unlink(address->sun_path);
    return failed ? tn_fail(err, TN_E_IO, "collective my-thing: %s: not all of %d ranks came: %s", address->sun_path,
                            (int)group->size, strerror(reason))
                  : TN_OK;
}

/* The others try until rank 0 listens. */
static int32_t my_thing_connect(tn_group *group, const struct sockaddr_un *address, double patience, tn_error *err)
{
    const struct timespec pause = {0, 20 * 1000 * 1000};
    int line = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    while (line >= 0 && connect(line, (const struct sockaddr *)address, sizeof *address) != 0) {
        if (patience <= 0) {
            int reason = errno;
            close(line);
            return tn_fail(err, TN_E_IO, "collective my-thing: %s: rank 0 does not answer: %s", address->sun_path,
                           strerror(reason));
        }
        nanosleep(&pause, NULL);
        patience -= 0.02;
    }
    if (line < 0)
        return tn_fail(err, TN_E_IO, "collective my-thing: no socket: %s", strerror(errno));
    ((my_thing_state *)group->state)->line[0] = line + 1;
    return my_thing_send(group, 0, &group->rank, sizeof group->rank, err);
}

static void my_thing_close(tn_group *group)
{
    my_thing_state *state = (my_thing_state *)group->state;
    for (int32_t i = 0; i < MOST; i++)
        if (state->line[i])
            close(state->line[i] - 1);
    memset(state, 0, sizeof *state);
}

static int32_t my_thing_open(const void *hyper, tn_group *group, tn_error *err)
{
    const my_thing *h = (const my_thing *)hyper;
    struct sockaddr_un address;
    group->arena = NULL; /* any memory is as good */
    if (group->size == 1)
        return TN_OK;
    if (group->size > MOST)
        return tn_fail(err, TN_E_INVALID, "collective my-thing: %d ranks, at most %d can be", (int)group->size, MOST);
    int32_t status = my_thing_address(h, group, &address, err);
    if (status == TN_OK)
        status = group->rank == 0 ? my_thing_gather_lines(group, &address, h->patience, err)
                                  : my_thing_connect(group, &address, h->patience, err);
    if (status != TN_OK)
        my_thing_close(group);
    return status;
}

/* ---- operations ---- */

static int my_thing_reduces(const tn_transfer *t)
{
    return t->operation == TN_ALL_REDUCE || t->operation == TN_REDUCE_SCATTER;
}

static int32_t my_thing_check(const tn_group *group, const tn_transfer *t, int64_t *ret_bytes, tn_error *err)
{
    int64_t bits = t->dtype.bits * (int64_t)t->dtype.lanes;
    int is_real = t->dtype.code == TN_FLOAT && t->dtype.lanes == 1 && (bits == 32 || bits == 64);
    int is_whole = t->dtype.code == TN_INT && t->dtype.lanes == 1 && bits == 32 && t->reduce != TN_REDUCE_MEAN;
    *ret_bytes = 0;
    if (t->operation == TN_SEND || t->operation == TN_RECEIVE)
        return tn_fail(err, TN_E_UNSUPPORTED, "collective my-thing: no sends between two ranks");
    if (t->operation < TN_ALL_REDUCE || t->operation > TN_BARRIER)
        return tn_fail(err, TN_E_INVALID, "collective my-thing: operation %d is none of 0 to %d", (int)t->operation,
                       TN_BARRIER);
    if (t->sequence < ((const my_thing_state *)group->state)->next)
        return tn_fail(err, TN_E_INVALID, "collective my-thing: sequence %lld, needed a larger one than before",
                       (long long)t->sequence);
    if (t->operation == TN_BARRIER)
        return TN_OK;
    if (my_thing_reduces(t) && ((!is_real && !is_whole) || t->reduce < TN_REDUCE_SUM || t->reduce > TN_REDUCE_MEAN))
        return tn_fail(err, TN_E_UNSUPPORTED,
                       "collective my-thing: reduction %d of dtype code %d, %lld bits; needed sum or max of f32, f64 "
                       "or i32, or a mean of f32 or f64",
                       (int)t->reduce, t->dtype.code, (long long)bits);
    if (t->operation == TN_BROADCAST && (t->peer < 0 || t->peer >= group->size))
        return tn_fail(err, TN_E_INVALID, "collective my-thing: broadcast from rank %d of %d", (int)t->peer,
                       (int)group->size);
    if (bits <= 0 || bits % 8 || t->count < 0 || __builtin_mul_overflow(t->count, bits / 8, ret_bytes))
        return tn_fail(err, TN_E_INVALID, "collective my-thing: %lld elements of %lld bits", (long long)t->count,
                       (long long)bits);
    return TN_OK;
}

/* Rank 0 compares what all want to do, and tells them of the first one who wants something else. */
static int32_t my_thing_agree(const tn_group *group, const tn_transfer *t, tn_error *err)
{
    my_thing_head own = {t->sequence, t->count, t->operation, t->reduce, t->peer, 0, t->dtype, 0};
    my_thing_head seen[2] = {own, own}; /* rank 0's, and who does not agree, or rank 0's again */
    int32_t status = group->rank > 0 ? my_thing_send(group, 0, &own, sizeof own, err) : TN_OK;
    if (group->rank > 0 && status == TN_OK)
        status = my_thing_receive(group, 0, seen, sizeof seen, err);
    for (int32_t rank = 1; group->rank == 0 && rank < group->size && status == TN_OK; rank++) {
        status = my_thing_receive(group, rank, &own, sizeof own, err);
        if (status == TN_OK && seen[1].rank == 0 && memcmp(&own, &seen[0], sizeof own) != 0) {
            seen[1] = own;
            seen[1].rank = rank;
        }
    }
    for (int32_t rank = 1; group->rank == 0 && rank < group->size && status == TN_OK; rank++)
        status = my_thing_send(group, rank, seen, sizeof seen, err);
    if (status || seen[1].rank == 0)
        return status;
    return tn_fail(err, TN_E_INVALID,
                   "collective my-thing: rank 0 is at operation %d, %lld elements, sequence %lld; rank %d at %d, %lld, "
                   "%lld",
                   (int)seen[0].operation, (long long)seen[0].count, (long long)seen[0].sequence, (int)seen[1].rank,
                   (int)seen[1].operation, (long long)seen[1].count, (long long)seen[1].sequence);
}

/* f32, f64 and i32, which a double holds exactly, sums of 64 of them too. */
static double my_thing_get(const tn_transfer *t, const void *from, int64_t i)
{
    if (t->dtype.code == TN_INT)
        return (double)((const int32_t *)from)[i];
    return t->dtype.bits == 32 ? (double)((const float *)from)[i] : ((const double *)from)[i];
}

static void my_thing_put(const tn_transfer *t, void *to, int64_t i, double value)
{
    if (t->dtype.code == TN_INT)
        ((int32_t *)to)[i] = (int32_t)(uint32_t)(int64_t)value; /* wraps, as a sum of integers does */
    else if (t->dtype.bits == 32)
        ((float *)to)[i] = (float)value;
    else
        ((double *)to)[i] = value;
}

/* Rank 0: n elements of all, from `from` and the lines, into `to`. */
static int32_t my_thing_add(const tn_group *group, const tn_transfer *t, const void *from, int64_t n, void *to,
                            tn_error *err)
{
    double sum[CHUNK], more[CHUNK];
    for (int64_t i = 0; i < n; i++)
        sum[i] = my_thing_get(t, from, i);
    for (int32_t rank = 1; rank < group->size; rank++) {
        int32_t status = my_thing_receive(group, rank, more, n * t->dtype.bits / 8, err);
        if (status)
            return status;
        for (int64_t i = 0; i < n; i++) {
            double x = my_thing_get(t, more, i);
            sum[i] = t->reduce != TN_REDUCE_MAX ? sum[i] + x : x > sum[i] || x != x ? x : sum[i];
        }
    }
    for (int64_t i = 0; i < n; i++)
        my_thing_put(t, to, i, t->reduce == TN_REDUCE_MEAN ? sum[i] / group->size : sum[i]);
    return TN_OK;
}

/* One block of `count` elements, of which `owner` gets the result; -1: all do. */
static int32_t my_thing_reduce(const tn_group *group, const tn_transfer *t, const char *from, int32_t owner, char *to,
                               tn_error *err)
{
    int64_t size = t->dtype.bits / 8;
    double result[CHUNK];
    int32_t status = TN_OK;
    for (int64_t lo = 0, n; lo < t->count && status == TN_OK; lo += n) {
        int mine = owner < 0 || owner == group->rank;
        n = t->count - lo;
        n = n < CHUNK ? n : (int64_t)CHUNK;
        if (group->rank > 0) {
            status = my_thing_send(group, 0, from + lo * size, n * size, err);
            status = status || !mine ? status : my_thing_receive(group, 0, to + lo * size, n * size, err);
            continue;
        }
        status = my_thing_add(group, t, from + lo * size, n, result, err);
        for (int32_t rank = 1; rank < group->size && status == TN_OK; rank++)
            if (owner < 0 || owner == rank)
                status = my_thing_send(group, rank, result, n * size, err);
        if (mine)
            memcpy(to + lo * size, result, (size_t)(n * size));
    }
    return status;
}

static int32_t my_thing_gather(const tn_group *group, const tn_transfer *t, int64_t bytes, tn_error *err)
{
    char *to = (char *)t->to;
    int32_t status = TN_OK;
    if (bytes > 0)
        memmove(to + group->rank * bytes, t->from, (size_t)bytes);
    if (group->rank > 0) {
        status = my_thing_send(group, 0, to + group->rank * bytes, bytes, err);
        return status ? status : my_thing_receive(group, 0, to, group->size * bytes, err);
    }
    for (int32_t rank = 1; rank < group->size && status == TN_OK; rank++)
        status = my_thing_receive(group, rank, to + rank * bytes, bytes, err);
    for (int32_t rank = 1; rank < group->size && status == TN_OK; rank++)
        status = my_thing_send(group, rank, to, group->size * bytes, err);
    return status;
}

/* Through rank 0. */
static int32_t my_thing_broadcast(const tn_group *group, const tn_transfer *t, int64_t bytes, tn_error *err)
{
    int32_t status = TN_OK;
    if (group->rank == t->peer && bytes > 0 && t->to != t->from)
        memmove(t->to, t->from, (size_t)bytes);
    if (group->rank > 0)
        return group->rank == t->peer ? my_thing_send(group, 0, t->to, bytes, err)
                                      : my_thing_receive(group, 0, t->to, bytes, err);
    if (t->peer > 0)
        status = my_thing_receive(group, t->peer, t->to, bytes, err);
    for (int32_t rank = 1; rank < group->size && status == TN_OK; rank++)
        if (rank != t->peer)
            status = my_thing_send(group, rank, t->to, bytes, err);
    return status;
}

static int32_t my_thing_move(const tn_group *group, const tn_transfer *t, int64_t bytes, tn_error *err)
{
    int32_t status = TN_OK;
    if (t->operation == TN_ALL_REDUCE)
        return my_thing_reduce(group, t, (const char *)t->from, -1, (char *)t->to, err);
    for (int32_t i = 0; t->operation == TN_REDUCE_SCATTER && i < group->size && status == TN_OK; i++)
        status = my_thing_reduce(group, t, (const char *)t->from + i * bytes, i, (char *)t->to, err);
    if (t->operation == TN_ALL_GATHER)
        return my_thing_gather(group, t, bytes, err);
    return t->operation == TN_BROADCAST ? my_thing_broadcast(group, t, bytes, err) : status;
}

static int32_t my_thing_start(tn_group *group, const tn_transfer *transfer, int64_t *ret_ticket, tn_error *err)
{
    my_thing_state *state = (my_thing_state *)group->state;
    int64_t bytes;
    int32_t status = my_thing_check(group, transfer, &bytes, err);
    if (status == TN_OK && group->size > 1) {
        my_thing_patience(group, transfer->timeout);
        status = my_thing_agree(group, transfer, err);
    }
    if (status == TN_OK)
        status = my_thing_move(group, transfer, bytes, err);
    if (status != TN_OK)
        return status;
    state->next = transfer->sequence + 1;
    *ret_ticket = ++state->tickets;
    return TN_OK;
}

/* All is done already. */
static int32_t my_thing_wait(tn_group *group, int64_t ticket, tn_error *err)
{
    int64_t last = ((const my_thing_state *)group->state)->tickets;
    return ticket >= 1 && ticket <= last ? TN_OK
                                         : tn_fail(err, TN_E_INVALID, "collective my-thing: ticket %lld of %lld",
                                                   (long long)ticket, (long long)last);
}

static const tn_collective my_thing_table = {.struct_size = sizeof(tn_collective),
                                             .ordered = 1,
                                             .state_bytes = (int64_t)sizeof(my_thing_state),
                                             .world = TN_CALL(my_thing_world),
                                             .open = TN_CALL(my_thing_open),
                                             .close = my_thing_close,
                                             .start = TN_CALL(my_thing_start),
                                             .wait = TN_CALL(my_thing_wait)};
TN_COMPONENT(my_thing, "collective", TN_COLLECTIVE, 0u, HYPER, "A star over local sockets", "", my_thing_table);
TN_PLUGIN("org.example.my-thing", "0.1.0", "Apache-2.0", my_thing)
