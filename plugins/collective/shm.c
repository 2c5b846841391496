/* SPDX-License-Identifier: Apache-2.0
 *
 * Shm: the processes of one machine, through one shared segment.
 *
 * The segment is an unnamed file of /dev/shm. Rank 0 makes it and hands it to the others over an abstract socket; both
 * vanish with the last process that holds them, however that ends, so nothing is ever left to clean or to take over.
 * Each rank holds a lock on its byte of the file while it lives: the kernel drops it, and so tells of a death.
 *
 * An operation: each rank posts what it calls (sequence, operation, dtype, count, reduction, peer) and compares it with
 * what every partner posts before it reads their data. Data goes through two buffers of `chunk` bytes a rank, or
 * straight between arenas if all have theirs there. Sums add in rank order: f64 in f64, f32, f16 and bf16 in f32,
 * rounded once; integers wrap. A max with a nan is nan. One failure ends the group for all of its members.
 *
 * `start` only queues (64 deep; one more runs the oldest), `wait` works. Time-outs count from when the work begins.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <tenon/parallel.h>
#include <tenon/sdk.h>

#define HYPER(X)                                                                                                       \
    X(text, name, "", "", "what the ranks of a run meet under; empty: TENON_SHM of the environment")                   \
    X(integer, ranks, 0, "[0, 256]", "processes of the run; 0: TENON_RANKS of the environment, or 1")                  \
    X(integer, rank, -1, "[-1, 255]", "of this process; -1: TENON_RANK of the environment, or 0")                      \
    X(integer, chunk, 262144, "[8, 1073741824] bytes", "what a rank stages at once")                                   \
    X(fixed, patience, 30, "(0, 86400] s", "how long opening a group waits for its members")                           \
    X(fixed, timeout, 60, "(0, 86400] s", "how long an operation waits for the other ranks")

TN_DECLARE(shm, HYPER)

#define MAX_RANKS 256
#define PENDING   64
#define SMALL     16384    /* bytes; up to here every rank reduces all by itself: one meeting instead of two */
#define BLOCK     1024     /* elements reduced at a time: the sums stay in the nearest cache */
#define SPINS     64       /* looks before sleeping: 2 to 4 us */
#define SLICE     10000000 /* ns between looks for the dead */
#define SECOND    1000000000

/* ---- what lies in the segment ---- */

typedef struct shm_call {
    int32_t operation, reduce, peer;
    tn_dtype dtype;
    int64_t count;
} shm_call;

typedef struct shm_entry {
    _Alignas(64) _Atomic int64_t sequence; /* -1: none yet */
    shm_call call;
    int64_t from_at, to_at;                       /* in the segment; -1: elsewhere */
    _Alignas(64) _Atomic int64_t filled, drained; /* steps of this operation that the rank has done */
} shm_entry;

typedef struct shm_rank {
    _Alignas(64) _Atomic uint32_t bell; /* a futex: counts what the rank has told */
    _Atomic uint32_t waiters;
    _Atomic int32_t left, waits_for; /* 1: closed; the rank it sleeps for, or -1 */
    _Atomic int64_t done;            /* the last sequence it has finished */
    int32_t pid;
    int64_t arena_at, arena_bytes;
    shm_entry entries[2];
} shm_rank;

/* Then the buffers, then the arenas. */
typedef struct shm_segment {
    _Atomic int32_t failed; /* 1: the text is being written, 2: it stands */
    int32_t code;
    char text[sizeof(((tn_error *)0)->msg)];
    shm_rank ranks[];
} shm_segment;

typedef struct shm_state {
    shm_segment *segment;
    int64_t bytes, chunk, stride, data_at; /* stride: bytes from one buffer to the next */
    int32_t fd, rank, size, reserved;
    int64_t next, tickets, finished;
    int64_t operations, used[2]; /* run so far; the sequence that each entry last held */
    int32_t with[2];             /* its partner, or -1: all */
    tn_transfer pending[PENDING];
} shm_state;

/* ---- reductions ---- */

static inline float f32_from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t bits_of_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float load_bf16(uint16_t h) { return f32_from_bits((uint32_t)h << 16); }

static inline uint16_t store_bf16(float x)
{
    uint32_t bits = bits_of_f32(x);
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16, nan = (bits >> 16) | 0x40;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

static inline float load_f16(uint16_t h)
{
    uint32_t size = h & 0x7fffu, sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t normal = (size << 13) + (112u << 23), special = (size << 13) | 0x7f800000;
    uint32_t tiny = bits_of_f32((float)(int32_t)size * 0x1p-24f);
    return f32_from_bits(sign | (size >= 0x7c00 ? special : size >= 0x400 ? normal : tiny));
}

static inline uint16_t store_f16(float x)
{
    uint32_t bits = bits_of_f32(x), size = bits & 0x7fffffff, sign = (bits >> 16) & 0x8000;
    uint32_t normal = (size - (112u << 23) + 0xfff + ((size >> 13) & 1)) >> 13;
    uint32_t tiny = bits_of_f32(f32_from_bits(size) + 0.5f) - 0x3f000000;
    uint32_t special = size > 0x7f800000 ? 0x7e00 : 0x7c00;
    return (uint16_t)(sign | (size >= 0x47800000 ? special : size >= 0x38800000 ? normal : tiny));
}

typedef struct shm_type {
    tn_dtype dtype;
    const char *name;
    int32_t same;                                                                  /* 1: sums have the type itself */
    void (*pair)(void *sum, const void *a, const void *b, int64_t n, int32_t max); /* sum = a + b */
    void (*fold)(void *sum, const void *x, int64_t n, int32_t max);                /* sum += x */
    void (*finish)(void *to, const void *sum, int64_t n, double divisor);          /* to = sum / divisor */
} shm_type;

#define AS_IS(x)      (x)
#define ADD(a, b)     ((a) + (b))
#define ADD_I32(a, b) ((int32_t)((uint32_t)(a) + (uint32_t)(b)))
#define ADD_I64(a, b) ((int64_t)((uint64_t)(a) + (uint64_t)(b)))
#define LARGER(a, b)  ((a) > (b) || (a) != (a) ? (a) : (b))
#define EACH(statement)                                                                                                \
    for (int64_t i = 0; i < n; i++)                                                                                    \
    statement

#define REDUCER(name, type, wide, LOAD, STORE, PLUS)                                                                   \
    TN_CLONES static void name##_pair(void *sum, const void *a, const void *b, int64_t n, int32_t max)                 \
    {                                                                                                                  \
        wide *s = sum;                                                                                                 \
        const type *x = a, *y = b;                                                                                     \
        if (max)                                                                                                       \
            EACH(s[i] = LARGER(LOAD(x[i]), LOAD(y[i])));                                                               \
        else                                                                                                           \
            EACH(s[i] = PLUS(LOAD(x[i]), LOAD(y[i])));                                                                 \
    }                                                                                                                  \
    TN_CLONES static void name##_fold(void *sum, const void *a, int64_t n, int32_t max)                                \
    {                                                                                                                  \
        wide *s = sum;                                                                                                 \
        const type *x = a;                                                                                             \
        if (max)                                                                                                       \
            EACH(s[i] = LARGER(s[i], LOAD(x[i])));                                                                     \
        else                                                                                                           \
            EACH(s[i] = PLUS(s[i], LOAD(x[i])));                                                                       \
    }                                                                                                                  \
    TN_CLONES static void name##_finish(void *to, const void *sum, int64_t n, double divisor)                          \
    {                                                                                                                  \
        const wide *s = sum, d = (wide)divisor;                                                                        \
        type *x = to;                                                                                                  \
        if (divisor != 1)                                                                                              \
            EACH(x[i] = STORE(s[i] / d));                                                                              \
        else                                                                                                           \
            EACH(x[i] = STORE(s[i]));                                                                                  \
    }
REDUCER(f64, double, double, AS_IS, AS_IS, ADD)
REDUCER(f32, float, float, AS_IS, AS_IS, ADD)
REDUCER(bf16, uint16_t, float, load_bf16, store_bf16, ADD)
REDUCER(f16, uint16_t, float, load_f16, store_f16, ADD)
REDUCER(i64, int64_t, int64_t, AS_IS, AS_IS, ADD_I64)
REDUCER(i32, int32_t, int32_t, AS_IS, AS_IS, ADD_I32)

#define TYPE(name, code, bits, same)                                                                                   \
    {                                                                                                                  \
        {code, bits, 1}, #name, same, name##_pair, name##_fold, name##_finish                                          \
    }
static const shm_type types[] = {TYPE(f64, TN_FLOAT, 64, 1), TYPE(f32, TN_FLOAT, 32, 1), TYPE(bf16, TN_BFLOAT, 16, 0),
                                 TYPE(f16, TN_FLOAT, 16, 0), TYPE(i64, TN_INT, 64, 1),   TYPE(i32, TN_INT, 32, 1)};

static const shm_type *shm_find_type(tn_dtype dtype)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].dtype.code == dtype.code && types[i].dtype.bits == dtype.bits)
            return &types[i];
    return NULL;
}

/* to[0] .. to[copies - 1] = the reduction of from[0] .. from[size - 1], n elements; a `to` may be a `from`. size >= 2.
 */
static void shm_reduce(const shm_type *type, int32_t reduce, const char *const *from, int32_t size, char *const *to,
                       int32_t copies, int64_t n)
{
    union {
        double f64[BLOCK];
        float f32[BLOCK];
        int64_t i64[BLOCK];
        int32_t i32[BLOCK];
    } sums;
    const int64_t width = type->dtype.bits / 8;
    const int32_t max = reduce == TN_REDUCE_MAX, direct = type->same && size == 2 && reduce != TN_REDUCE_MEAN;
    for (int64_t at = 0; at < n; at += BLOCK) {
        const int64_t block = n - at < BLOCK ? n - at : BLOCK, skip = at * width;
        type->pair(direct ? to[0] + skip : (void *)&sums, from[0] + skip, from[1] + skip, block, max);
        for (int32_t p = 2; p < size; p++)
            type->fold(&sums, from[p] + skip, block, max);
        if (!direct)
            type->finish(to[0] + skip, &sums, block, reduce == TN_REDUCE_MEAN ? size : 1);
        for (int32_t i = 1; i < copies; i++)
            memcpy(to[i] + skip, to[0] + skip, (size_t)(block * width));
    }
}

/* ---- waiting ---- */

static int64_t shm_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * (int64_t)SECOND + now.tv_nsec;
}

static int64_t shm_deadline(double seconds) { return shm_now() + (int64_t)((seconds < 1e9 ? seconds : 1e9) * SECOND); }

static inline void shm_pause(void)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
}

/* An operation under way. */
typedef struct shm_run {
    const tn_group *group;
    const tn_transfer *t;
    tn_error *err;
    shm_state *s;
    shm_rank *me;
    shm_entry *mine;
    const shm_type *type;    /* reductions */
    int64_t deadline, bytes; /* of one member's share: count elements */
    int32_t index, ready;    /* of the entry; 1: its first chunk was filled when it was posted */
} shm_run;

static void shm_ring(shm_rank *rank)
{
    atomic_fetch_add(&rank->bell, 1);
    if (atomic_load(&rank->waiters) > 0)
        syscall(SYS_futex, &rank->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void shm_tell(shm_run *r, _Atomic int64_t *counter, int64_t value)
{
    atomic_store_explicit(counter, value, memory_order_release);
    shm_ring(r->me);
}

static int shm_reduces(int32_t operation) { return operation == TN_ALL_REDUCE || operation == TN_REDUCE_SCATTER; }
static int shm_pairs(int32_t operation) { return operation == TN_SEND || operation == TN_RECEIVE; }

static shm_call shm_call_of(const tn_transfer *t)
{
    shm_call call = {.operation = t->operation};
    if (shm_reduces(t->operation))
        call.reduce = t->reduce;
    if (t->operation == TN_BROADCAST || shm_pairs(t->operation))
        call.peer = t->peer;
    if (t->operation != TN_BARRIER) {
        call.dtype = t->dtype;
        call.count = t->count;
    }
    return call;
}

static const char *shm_dtype(tn_dtype dtype, char *text, size_t size)
{
    const shm_type *type = shm_find_type(dtype);
    if (type && dtype.lanes == 1)
        return type->name;
    snprintf(text, size, "%s%d x %d",
             dtype.code == TN_UINT  ? "u"
             : dtype.code == TN_INT ? "i"
                                    : "dtype ",
             dtype.bits, dtype.lanes);
    return text;
}

static void shm_describe(const shm_call *call, int64_t sequence, char *text, size_t size)
{
    static const char *const operations[] = {"all-reduce", "reduce-scatter", "all-gather", "broadcast",
                                             "send",       "receive",        "barrier"};
    static const char *const reductions[] = {" (sum)", " (max)", " (mean)"};
    char dtype[32], peer[32] = "", count[64] = "";
    if (call->operation == TN_BROADCAST || call->operation == TN_RECEIVE)
        snprintf(peer, sizeof peer, " from rank %d", call->peer);
    else if (call->operation == TN_SEND)
        snprintf(peer, sizeof peer, " to rank %d", call->peer);
    if (call->operation != TN_BARRIER)
        snprintf(count, sizeof count, " of %lld %s", (long long)call->count,
                 shm_dtype(call->dtype, dtype, sizeof dtype));
    snprintf(text, size, "%s%s%s%s, sequence %lld", operations[call->operation],
             shm_reduces(call->operation) ? reductions[call->reduce] : "", count, peer, (long long)sequence);
}

/* "rank 1", or "rank 1 (3 of the world)" in a part of it. */
static const char *shm_who(const tn_group *group, int32_t rank, char *text, size_t size)
{
    if (group->members && group->members[rank] != rank)
        snprintf(text, size, "rank %d (%d of the world)", rank, group->members[rank]);
    else
        snprintf(text, size, "rank %d", rank);
    return text;
}

/* The failure of the group, if there is one: fills `err` and returns its code; else TN_OK. */
static int32_t shm_failure(const shm_state *s, tn_error *err)
{
    const struct timespec moment = {0, 1000000};
    shm_segment *segment = s->segment;
    for (int i = 0; i < 20 && atomic_load(&segment->failed) == 1; i++) /* its writer may be dead */
        nanosleep(&moment, NULL);
    switch (atomic_load(&segment->failed)) {
    case 0:
        return TN_OK;
    case 1:
        return tn_fail(err, TN_E_IO, "collective shm: the group failed, and the rank that found out died");
    default:
        return tn_fail(err, segment->code, "%s", segment->text);
    }
}

/* Ends the group: every rank that waits, and every later call, gets this error. */
static __attribute__((format(printf, 3, 4))) int32_t shm_fail(shm_run *r, int32_t code, const char *format, ...)
{
    shm_segment *segment = r->s->segment;
    char text[sizeof segment->text];
    int32_t none = 0;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (atomic_compare_exchange_strong(&segment->failed, &none, 1)) {
        segment->code = code;
        memcpy(segment->text, text, sizeof text);
        atomic_store(&segment->failed, 2);
        for (int32_t p = 0; p < r->s->size; p++)
            shm_ring(&segment->ranks[p]);
    }
    return tn_fail(r->err, code, "%s", text);
}

static shm_entry *shm_entry_of(const shm_run *r, int32_t p)
{
    shm_entry *entries = r->s->segment->ranks[p].entries;
    for (int i = 0; i < 2; i++)
        if (atomic_load_explicit(&entries[i].sequence, memory_order_acquire) == r->t->sequence)
            return &entries[i];
    return NULL;
}

/* The entry with which `p` went past this operation without taking part, or NULL. */
static shm_entry *shm_passed(const shm_run *r, int32_t p)
{
    shm_entry *entries = r->s->segment->ranks[p].entries;
    for (int i = 0; i < 2; i++)
        if (atomic_load(&entries[i].sequence) > r->t->sequence)
            return &entries[i];
    return NULL;
}

typedef enum shm_event { POSTED, FILLED, DRAINED, DONE } shm_event;

static int shm_happened(const shm_run *r, int32_t p, shm_event event, int64_t value)
{
    shm_entry *entry;
    if (event == DONE)
        return atomic_load_explicit(&r->s->segment->ranks[p].done, memory_order_acquire) >= value;
    entry = shm_entry_of(r, p);
    if (event == POSTED)
        return entry || shm_passed(r, p);
    return entry &&
           atomic_load_explicit(event == FILLED ? &entry->filled : &entry->drained, memory_order_acquire) >= value;
}

static int shm_alive(const shm_state *s, int32_t p)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = p, .l_len = 1};
    return fcntl(s->fd, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

static int32_t shm_lost(shm_run *r, int32_t p, const char *what)
{
    const shm_call mine = shm_call_of(r->t);
    char who[48], me[48], call[160];
    shm_describe(&mine, r->t->sequence, call, sizeof call);
    return shm_fail(r, TN_E_IO, "collective shm: %s (process %d) %s while %s was in %s",
                    shm_who(r->group, p, who, sizeof who), r->s->segment->ranks[p].pid, what,
                    shm_who(r->group, r->s->rank, me, sizeof me), call);
}

/* Who is to blame: the end of the chain of ranks that sleep for each other. */
static int32_t shm_late(shm_run *r, int32_t p)
{
    const shm_call mine = shm_call_of(r->t);
    char who[48], me[48], call[160];
    for (int32_t i = 0; i < r->s->size; i++) {
        int32_t next = atomic_load(&r->s->segment->ranks[p].waits_for);
        if (next < 0 || next == r->s->rank)
            break;
        p = next;
    }
    shm_describe(&mine, r->t->sequence, call, sizeof call);
    return shm_fail(r, TN_E_IO,
                    "collective shm: %s (process %d) did not come within %g s to %s of %s: it hangs, is slower than "
                    "that, or calls something else",
                    shm_who(r->group, p, who, sizeof who), r->s->segment->ranks[p].pid, r->t->timeout, call,
                    shm_who(r->group, r->s->rank, me, sizeof me));
}

static int32_t shm_sleep(shm_run *r, int32_t p, shm_event event, int64_t value)
{
    shm_rank *rank = &r->s->segment->ranks[p];
    for (;;) {
        const uint32_t bell = atomic_load(&rank->bell);
        const int64_t left = r->deadline - shm_now(), slice = left < SLICE ? left : SLICE;
        const struct timespec pause = {0, slice > 0 ? slice : 0};
        if (shm_happened(r, p, event, value))
            return TN_OK;
        int32_t status = shm_failure(r->s, r->err);
        if (status != TN_OK)
            return status;
        if (left <= 0)
            return shm_late(r, p);
        if (syscall(SYS_futex, &rank->bell, FUTEX_WAIT, bell, &pause, NULL, 0) == 0 || errno != ETIMEDOUT)
            continue;
        const int32_t closed = atomic_load(&rank->left), gone = !closed && !shm_alive(r->s, p);
        if ((closed || gone) && !shm_happened(r, p, event, value))
            return shm_lost(r, p, closed ? "left the group" : "died");
    }
}

/* Sleeps, after a short look, until rank `p` has done it. */
static int32_t shm_await(shm_run *r, int32_t p, shm_event event, int64_t value)
{
    for (int i = 0; i < SPINS; i++) {
        if (shm_happened(r, p, event, value))
            return TN_OK;
        shm_pause();
    }
    shm_rank *rank = &r->s->segment->ranks[p];
    atomic_store(&r->me->waits_for, p);
    atomic_fetch_add(&rank->waiters, 1);
    int32_t status = shm_sleep(r, p, event, value);
    atomic_fetch_sub(&rank->waiters, 1);
    atomic_store(&r->me->waits_for, -1);
    return status;
}

/* The partner after `p` (-1: the first) of an operation with rank `with`, or with all (-1); size: no more. */
static int32_t shm_partner(const shm_state *s, int32_t with, int32_t p)
{
    if (with >= 0)
        return p < with ? with : s->size;
    return p + 1 == s->rank ? p + 2 < s->size ? p + 2 : s->size : p + 1;
}

static int32_t shm_with(const tn_transfer *t) { return shm_pairs(t->operation) ? t->peer : -1; }

#define PARTNERS(p, s, with) (int32_t p = shm_partner(s, with, -1); p < (s)->size; p = shm_partner(s, with, p))

static int32_t shm_await_all(shm_run *r, shm_event event, int64_t value)
{
    for
        PARTNERS(p, r->s, shm_with(r->t))
        {
            int32_t status = shm_await(r, p, event, value);
            if (status != TN_OK)
                return status;
        }
    return TN_OK;
}

/* ---- data ---- */

static char *shm_buffer(const shm_run *r, int32_t p, int64_t chunk)
{
    const shm_state *s = r->s;
    const int64_t entry = p == s->rank ? r->mine - r->me->entries : shm_entry_of(r, p) - s->segment->ranks[p].entries;
    return (char *)s->segment + s->data_at + ((p * 2 + entry) * 2 + chunk % 2) * s->stride;
}

static void shm_move(void *to, const void *from, int64_t bytes)
{
    if (bytes > 0 && to && to != from)
        memmove(to, from, (size_t)bytes);
}

/* What one chunk holds: bytes of a move, elements of an all-reduce, elements of each part of a reduce-scatter. */
static int64_t shm_step(const shm_run *r)
{
    const int64_t chunk = r->s->chunk, width = r->type ? r->type->dtype.bits / 8 : 1;
    const int64_t parts = r->t->operation == TN_REDUCE_SCATTER ? r->s->size : 1;
    return chunk / (width * parts) > 0 ? chunk / (width * parts) : 1;
}

static int64_t shm_least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Fills this rank's buffer with chunk `c` of what it gives; the caller tells. */
static void shm_fill(shm_run *r, int64_t c)
{
    const tn_transfer *t = r->t;
    const int64_t width = r->type ? r->type->dtype.bits / 8 : 1, step = shm_step(r) * width, at = c * step;
    const int64_t bytes = shm_least(step, r->bytes - at);
    char *to = shm_buffer(r, r->s->rank, c);
    if (t->operation != TN_REDUCE_SCATTER)
        memcpy(to, (const char *)t->from + at, (size_t)bytes);
    else
        for
            PARTNERS(p, r->s, -1)
    memcpy(to + p * step, (const char *)t->from + p * r->bytes + at, (size_t)bytes);
}

/* The same, once the buffer is free, and tells that `filled` steps are done. */
static int32_t shm_give(shm_run *r, int64_t c, int64_t filled)
{
    if (c == 0 && r->ready)
        return TN_OK;
    int32_t status = shm_await_all(r, DRAINED, c - 1);
    if (status != TN_OK)
        return status;
    shm_fill(r, c);
    shm_tell(r, &r->mine->filled, filled);
    return TN_OK;
}

static int shm_is_small(const shm_run *r)
{
    return r->t->operation == TN_ALL_REDUCE && r->bytes <= SMALL && r->bytes <= r->s->chunk;
}

/* All ranks reduce all of it. The entry keeps the data until everyone has done the operation. */
static int32_t shm_small(shm_run *r)
{
    const char *from[MAX_RANKS];
    for (int32_t p = 0; p < r->s->size; p++)
        from[p] = p == r->s->rank ? r->t->from : shm_buffer(r, p, 0);
    shm_reduce(r->type, r->t->reduce, from, r->s->size, (char *const[]){r->t->to}, 1,
               r->bytes / (r->type->dtype.bits / 8));
    return TN_OK;
}

/* Where the part of `rank` begins among n elements: on a cache line, so that no two ranks write one. */
static int64_t shm_part(const shm_state *s, int64_t n, int32_t rank)
{
    return rank == s->size ? n : n / s->size * rank & ~(int64_t)31;
}

static int32_t shm_all_reduce_chunk(shm_run *r, int64_t c, char *own, int64_t n)
{
    const shm_state *s = r->s;
    const int64_t width = r->type->dtype.bits / 8, at = c * shm_step(r) * width;
    const int64_t begin = shm_part(s, n, s->rank), end = shm_part(s, n, s->rank + 1);
    const char *from[MAX_RANKS];
    char *to = (char *)r->t->to + at;
    int32_t status = shm_await_all(r, FILLED, 2 * c + 1);
    if (status != TN_OK)
        return status;
    for (int32_t p = 0; p < s->size; p++)
        from[p] = (p == s->rank ? (const char *)r->t->from + at : shm_buffer(r, p, c)) + begin * width;
    shm_reduce(r->type, r->t->reduce, from, s->size, (char *const[]){to + begin * width, own + begin * width}, 2,
               end - begin);
    shm_tell(r, &r->mine->filled, 2 * c + 2);
    for
        PARTNERS(p, s, -1)
        {
            const int64_t first = shm_part(s, n, p) * width, last = shm_part(s, n, p + 1) * width;
            if ((status = shm_await(r, p, FILLED, 2 * c + 2)) != TN_OK)
                return status;
            memcpy(to + first, shm_buffer(r, p, c) + first, (size_t)(last - first));
        }
    shm_tell(r, &r->mine->drained, c + 1);
    return TN_OK;
}

static int32_t shm_all_reduce(shm_run *r)
{
    const int64_t step = shm_step(r), n = r->bytes / (r->type->dtype.bits / 8);
    int32_t status = TN_OK;
    for (int64_t c = 0; status == TN_OK && c * step < n; c++) {
        status = shm_give(r, c, 2 * c + 1);
        if (status == TN_OK)
            status = shm_all_reduce_chunk(r, c, shm_buffer(r, r->s->rank, c), shm_least(step, n - c * step));
    }
    return status;
}

static int32_t shm_reduce_scatter(shm_run *r)
{
    const shm_state *s = r->s;
    const int64_t width = r->type->dtype.bits / 8, step = shm_step(r), n = r->bytes / width;
    const char *from[MAX_RANKS];
    int32_t status;
    for (int64_t c = 0; c * step < n; c++) {
        const int64_t at = c * step * width;
        if ((status = shm_give(r, c, c + 1)) != TN_OK || (status = shm_await_all(r, FILLED, c + 1)) != TN_OK)
            return status;
        for (int32_t p = 0; p < s->size; p++)
            from[p] = p == s->rank ? (const char *)r->t->from + p * r->bytes + at
                                   : shm_buffer(r, p, c) + s->rank * step * width;
        shm_reduce(r->type, r->t->reduce, from, s->size, (char *const[]){(char *)r->t->to + at}, 1,
                   shm_least(step, n - c * step));
        shm_tell(r, &r->mine->drained, c + 1);
    }
    return TN_OK;
}

/* The rank that gives in a broadcast, send or receive. */
static int32_t shm_source(const shm_run *r) { return r->t->operation == TN_SEND ? r->s->rank : r->t->peer; }

/* All-gather, broadcast, send, receive: some give, some take. */
static int32_t shm_copy(shm_run *r)
{
    const shm_state *s = r->s;
    const int32_t all = r->t->operation == TN_ALL_GATHER, source = shm_source(r);
    const int64_t step = shm_step(r);
    int32_t status = TN_OK;
    for (int64_t c = 0; c * step < r->bytes; c++) {
        const int64_t at = c * step, bytes = shm_least(step, r->bytes - at);
        if ((all || source == s->rank) && (status = shm_give(r, c, c + 1)) != TN_OK)
            return status;
        for
            PARTNERS(p, s, all ? -1 : source)
            {
                if (p == s->rank)
                    continue;
                if ((status = shm_await(r, p, FILLED, c + 1)) != TN_OK)
                    return status;
                memcpy((char *)r->t->to + (all ? p * r->bytes : 0) + at, shm_buffer(r, p, c), (size_t)bytes);
            }
        shm_tell(r, &r->mine->drained, c + 1);
    }
    return TN_OK;
}

/* ---- straight between arenas ---- */

/* Where memory lies in the segment, if in this rank's arena; else -1. */
static int64_t shm_at(const shm_run *r, const void *memory, int64_t bytes)
{
    const int64_t at = (int64_t)((uintptr_t)memory - (uintptr_t)r->s->segment);
    return memory && at >= r->me->arena_at && at + bytes <= r->me->arena_at + r->me->arena_bytes ? at : -1;
}

static int shm_straight(const shm_run *r)
{
    const int32_t operation = r->t->operation;
    if (operation >= TN_BROADCAST) {
        const int32_t source = shm_source(r);
        return (source == r->s->rank ? r->mine : shm_entry_of(r, source))->from_at >= 0;
    }
    for (int32_t p = 0; p < r->s->size; p++) {
        const shm_entry *entry = p == r->s->rank ? r->mine : shm_entry_of(r, p);
        if (entry->from_at < 0 || (operation == TN_ALL_REDUCE && entry->to_at < 0))
            return 0;
    }
    return 1;
}

static char *shm_theirs(const shm_run *r, int32_t p) { return (char *)r->s->segment + shm_entry_of(r, p)->from_at; }

static void shm_reduce_straight(shm_run *r)
{
    const shm_state *s = r->s;
    const int64_t width = r->type->dtype.bits / 8, n = r->bytes / width;
    const int32_t scatter = r->t->operation == TN_REDUCE_SCATTER;
    const int64_t begin = scatter ? 0 : shm_part(s, n, s->rank), end = scatter ? n : shm_part(s, n, s->rank + 1);
    const int64_t skip = (scatter ? s->rank * n : begin) * width;
    const char *from[MAX_RANKS];
    char *to[MAX_RANKS] = {(char *)r->t->to + begin * width};
    int32_t copies = 1;
    for (int32_t p = 0; p < s->size; p++) {
        from[p] = shm_theirs(r, p) + skip;
        if (!scatter && p != s->rank)
            to[copies++] = (char *)s->segment + shm_entry_of(r, p)->to_at + begin * width;
    }
    shm_reduce(r->type, r->t->reduce, from, s->size, to, copies, end - begin);
}

/* Nobody leaves before all have read and written. */
static int32_t shm_run_straight(shm_run *r)
{
    const int32_t all = r->t->operation == TN_ALL_GATHER;
    if (r->type)
        shm_reduce_straight(r);
    else
        for
            PARTNERS(p, r->s, all ? -1 : shm_source(r))
    if (p != r->s->rank)
        memcpy((char *)r->t->to + (all ? p * r->bytes : 0), shm_theirs(r, p), (size_t)r->bytes);
    shm_tell(r, &r->mine->filled, 1);
    return shm_await_all(r, FILLED, 1);
}

/* ---- an operation ---- */

static int64_t shm_share(const tn_transfer *t)
{
    return t->operation == TN_BARRIER ? 0 : t->count * (t->dtype.bits * (int64_t)t->dtype.lanes / 8);
}

static int shm_gives(const shm_run *r)
{
    return r->bytes > 0 &&
           (r->t->operation < TN_BROADCAST || (r->t->operation <= TN_RECEIVE && shm_source(r) == r->s->rank));
}

/* Says what this rank calls, with the first chunk if that goes through the buffers. */
static int32_t shm_post(shm_run *r)
{
    shm_state *s = r->s;
    const int64_t parts = r->t->operation == TN_REDUCE_SCATTER ? s->size : 1;
    shm_entry *mine = r->mine;
    if (s->operations >= 2)
        for
            PARTNERS(p, s, s->with[r->index])
            {
                int32_t status = shm_await(r, p, DONE, s->used[r->index]);
                if (status != TN_OK)
                    return status;
            }
    atomic_store(&mine->sequence, -1);
    mine->call = shm_call_of(r->t);
    mine->from_at = shm_gives(r) ? shm_at(r, r->t->from, r->bytes * parts) : -1;
    mine->to_at = r->t->operation == TN_ALL_REDUCE ? shm_at(r, r->t->to, r->bytes) : -1;
    r->ready = shm_gives(r) && (shm_is_small(r) || mine->from_at < 0);
    if (r->ready)
        shm_fill(r, 0);
    atomic_store(&mine->filled, r->ready);
    atomic_store(&mine->drained, 0);
    s->used[r->index] = r->t->sequence;
    s->with[r->index] = shm_with(r->t);
    s->operations++;
    shm_tell(r, &mine->sequence, r->t->sequence);
    return TN_OK;
}

static int shm_agree(const shm_run *r, int32_t p, const shm_call *theirs)
{
    shm_call expected = r->mine->call;
    if (shm_pairs(expected.operation)) {
        expected.operation = expected.operation == TN_SEND ? TN_RECEIVE : TN_SEND;
        expected.peer = theirs->peer == r->s->rank && r->t->peer == p ? r->s->rank : -1;
    }
    return expected.operation == theirs->operation && expected.reduce == theirs->reduce &&
           expected.peer == theirs->peer && expected.count == theirs->count &&
           !memcmp(&expected.dtype, &theirs->dtype, sizeof expected.dtype);
}

static int32_t shm_meet(shm_run *r, int32_t p)
{
    char me[48], who[48], mine[160], other[160];
    int32_t status = shm_await(r, p, POSTED, 0);
    const shm_entry *theirs = shm_entry_of(r, p);
    if (status != TN_OK || (theirs && shm_agree(r, p, &theirs->call)))
        return status;
    while (!theirs) /* it may be posting its next */
        theirs = shm_passed(r, p);
    shm_describe(&r->mine->call, r->t->sequence, mine, sizeof mine);
    shm_describe(&theirs->call, theirs->sequence, other, sizeof other);
    return shm_fail(r, TN_E_INVALID,
                    "collective shm: %s calls %s; %s calls %s; the members of a group must make the same calls in the "
                    "same order",
                    shm_who(r->group, r->s->rank, me, sizeof me), mine, shm_who(r->group, p, who, sizeof who), other);
}

static int32_t shm_move_data(shm_run *r)
{
    if (r->bytes == 0)
        return TN_OK;
    if (shm_is_small(r))
        return shm_small(r);
    if (shm_straight(r))
        return shm_run_straight(r);
    return r->t->operation == TN_ALL_REDUCE       ? shm_all_reduce(r)
           : r->t->operation == TN_REDUCE_SCATTER ? shm_reduce_scatter(r)
                                                  : shm_copy(r);
}

/* What stays on this rank. */
static void shm_own(const shm_run *r)
{
    if (r->t->operation == TN_ALL_GATHER)
        shm_move((char *)r->t->to + r->s->rank * r->bytes, r->t->from, r->bytes);
    else if (r->s->size == 1 || (r->t->operation == TN_BROADCAST && r->t->peer == r->s->rank))
        shm_move(r->t->to, r->t->from, r->bytes);
}

static int32_t shm_execute(tn_group *group, const tn_transfer *t, tn_error *err)
{
    shm_state *s = group->state;
    shm_run r = {.group = group, .t = t, .err = err, .s = s, .me = &s->segment->ranks[s->rank]};
    int32_t status = TN_OK;
    r.bytes = shm_share(t);
    r.type = shm_reduces(t->operation) ? shm_find_type(t->dtype) : NULL;
    r.deadline = shm_deadline(t->timeout);
    r.index = (int32_t)(s->operations % 2);
    r.mine = &r.me->entries[r.index];
    if (s->size > 1) {
        status = shm_failure(s, err);
        if (status == TN_OK)
            status = shm_post(&r);
        for
            PARTNERS(p, s, shm_with(t))
        if (status == TN_OK)
            status = shm_meet(&r, p);
        if (status == TN_OK)
            status = shm_move_data(&r);
    }
    if (status != TN_OK)
        return status;
    shm_own(&r);
    shm_tell(&r, &r.me->done, t->sequence);
    return TN_OK;
}

/* ---- start and wait ---- */

static int32_t shm_check_call(const shm_state *s, const tn_transfer *t, tn_error *err)
{
    if (t->operation < TN_ALL_REDUCE || t->operation > TN_BARRIER)
        return tn_fail(err, TN_E_INVALID, "collective shm: operation %d is none of 0 to %d", t->operation, TN_BARRIER);
    if (t->sequence < s->next)
        return tn_fail(err, TN_E_INVALID, "collective shm: sequence %lld after %lld, needed a larger one",
                       (long long)t->sequence, (long long)s->next - 1);
    if ((t->operation == TN_BROADCAST || shm_pairs(t->operation)) && (t->peer < 0 || t->peer >= s->size))
        return tn_fail(err, TN_E_INVALID, "collective shm: peer is rank %d, needed 0 to %d", t->peer, s->size - 1);
    if (shm_pairs(t->operation) && t->peer == s->rank)
        return tn_fail(err, TN_E_INVALID, "collective shm: peer is rank %d, which is this rank itself", t->peer);
    if (!(t->timeout > 0))
        return tn_fail(err, TN_E_INVALID, "collective shm: timeout is %g s, needed more than 0", t->timeout);
    return TN_OK;
}

static int32_t shm_check_reduce(const tn_transfer *t, tn_error *err)
{
    const shm_type *type = shm_find_type(t->dtype);
    if (!shm_reduces(t->operation))
        return TN_OK;
    if (!type)
        return tn_fail(err, TN_E_UNSUPPORTED,
                       "collective shm: reduces f64, f32, bf16, f16, i64 and i32, not dtype code %d of %d bits",
                       t->dtype.code, t->dtype.bits);
    if (t->reduce < TN_REDUCE_SUM || t->reduce > TN_REDUCE_MEAN)
        return tn_fail(err, TN_E_INVALID, "collective shm: reduction %d is none of sum (0), max (1), mean (2)",
                       t->reduce);
    if (t->reduce == TN_REDUCE_MEAN && t->dtype.code == TN_INT)
        return tn_fail(err, TN_E_INVALID, "collective shm: a mean of %s, needed a floating type", type->name);
    if (((uintptr_t)t->from | (uintptr_t)t->to) % (t->dtype.bits / 8u))
        return tn_fail(err, TN_E_INVALID, "collective shm: from or to is not aligned to elements of %d bits",
                       t->dtype.bits);
    return TN_OK;
}

static int32_t shm_check_data(const shm_state *s, const tn_transfer *t, tn_error *err)
{
    const int64_t bits = t->dtype.bits * (int64_t)t->dtype.lanes;
    const int32_t root = t->peer == s->rank;
    int64_t bytes;
    if (t->operation == TN_BARRIER)
        return TN_OK;
    if (bits <= 0 || bits % 8)
        return tn_fail(err, TN_E_INVALID, "collective shm: elements of %lld bits, needed whole bytes", (long long)bits);
    if (t->count < 0 || __builtin_mul_overflow(t->count, bits / 8 * s->size, &bytes))
        return tn_fail(err, TN_E_INVALID, "collective shm: count is %lld", (long long)t->count);
    const int gives = t->operation == TN_BROADCAST ? root : t->operation != TN_RECEIVE;
    const int takes = t->operation == TN_BROADCAST ? !root : t->operation != TN_SEND;
    if (bytes > 0 && ((gives && !t->from) || (takes && !t->to)))
        return tn_fail(err, TN_E_INVALID, "collective shm: %s is NULL with count %lld",
                       gives && !t->from ? "from" : "to", (long long)t->count);
    return shm_check_reduce(t, err);
}

static int32_t shm_next(tn_group *group, tn_error *err)
{
    shm_state *s = group->state;
    return shm_execute(group, &s->pending[s->finished++ % PENDING], err);
}

static int32_t shm_start(tn_group *group, const tn_transfer *transfer, int64_t *ret_ticket, tn_error *err)
{
    shm_state *s = group->state;
    int32_t status = shm_failure(s, err);
    if (status == TN_OK)
        status = shm_check_call(s, transfer, err);
    if (status == TN_OK)
        status = shm_check_data(s, transfer, err);
    if (status == TN_OK && s->tickets - s->finished == PENDING)
        status = shm_next(group, err);
    if (status != TN_OK)
        return status;
    s->pending[s->tickets % PENDING] = *transfer;
    s->next = transfer->sequence + 1;
    *ret_ticket = ++s->tickets;
    return TN_OK;
}

static int32_t shm_wait(tn_group *group, int64_t ticket, tn_error *err)
{
    shm_state *s = group->state;
    int32_t status = TN_OK;
    if (ticket < 1 || ticket > s->tickets)
        return tn_fail(err, TN_E_INVALID, "collective shm: ticket %lld, given out so far: 1 to %lld", (long long)ticket,
                       (long long)s->tickets);
    if (ticket <= s->finished)
        return shm_failure(s, err);
    while (status == TN_OK && s->finished < ticket)
        status = shm_next(group, err);
    return status;
}

/* ---- the segment ---- */

static int64_t shm_round(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

/* From the chunk and each rank's arena; where the arenas lie goes into `arena_at`. */
static void shm_lay_out(shm_state *s, const int64_t *arena, int64_t *arena_at)
{
    s->stride = s->size > 1 ? shm_round(s->chunk > 8 * s->size ? s->chunk : 8 * s->size, 64) : 0;
    s->data_at = shm_round((int64_t)(sizeof(shm_segment) + (size_t)s->size * sizeof(shm_rank)), 4096);
    s->bytes = shm_round(s->data_at + s->size * 4 * s->stride, 4096);
    for (int32_t p = 0; p < s->size; p++) {
        arena_at[p] = s->bytes;
        if (__builtin_add_overflow(s->bytes, arena[p] > INT64_MAX - 4096 ? arena[p] : shm_round(arena[p], 4096),
                                   &s->bytes))
            s->bytes = INT64_MAX;
    }
}

static int32_t shm_no_space(const shm_state *s, int why, tn_error *err)
{
    struct statvfs disk = {0};
    const int known = statvfs("/dev/shm", &disk) == 0;
    return tn_fail(err, why == ENOSPC || why == ENOMEM || why == EFBIG ? TN_E_MEMORY : TN_E_IO,
                   "collective shm: /dev/shm refused %.1f MB for %d ranks (%s), of which %.1f MB are buffers of the "
                   "row chunk (now %lld bytes) and the rest arenas; %.1f MB are free: make it larger (mount -o "
                   "remount,size=...; docker --shm-size) or choose a smaller chunk",
                   (double)s->bytes / 1e6, s->size, strerror(why), (double)(s->size * 4 * s->stride) / 1e6,
                   (long long)s->chunk, known ? (double)disk.f_bavail * (double)disk.f_frsize / 1e6 : 0.0);
}

/* The limit on file sizes would raise a signal. */
static int shm_allocate(int fd, int64_t bytes)
{
    struct rlimit limit;
    int why;
    if (bytes == INT64_MAX || (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < (rlim_t)bytes))
        return EFBIG;
    do
        why = posix_fallocate(fd, 0, bytes);
    while (why == EINTR);
    return why;
}

static int32_t shm_map(shm_state *s, tn_error *err)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = s->rank, .l_len = 1};
    void *memory = mmap(NULL, (size_t)s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, s->fd, 0);
    if (memory == MAP_FAILED)
        return tn_fail(err, TN_E_MEMORY, "collective shm: mapping %.1f MB: %s", (double)s->bytes / 1e6,
                       strerror(errno));
    s->segment = memory;
    if (fcntl(s->fd, F_SETLK, &lock) != 0)
        return tn_fail(err, TN_E_IO, "collective shm: locking byte %d of the segment: %s", s->rank, strerror(errno));
    return TN_OK;
}

static int32_t shm_create(shm_state *s, const int64_t *arena, tn_error *err)
{
    int64_t arena_at[MAX_RANKS];
    int32_t status;
    int why;
    shm_lay_out(s, arena, arena_at);
    s->fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (s->fd < 0)
        return tn_fail(err, TN_E_IO, "collective shm: a file in /dev/shm: %s", strerror(errno));
    if ((why = shm_allocate(s->fd, s->bytes)) != 0)
        return shm_no_space(s, why, err);
    if ((status = shm_map(s, err)) != TN_OK)
        return status;
    for (int32_t p = 0; p < s->size; p++) {
        shm_rank *rank = &s->segment->ranks[p];
        rank->waits_for = -1;
        rank->done = -1;
        rank->arena_at = arena_at[p];
        rank->arena_bytes = arena[p];
        rank->entries[0].sequence = rank->entries[1].sequence = -1;
    }
    return TN_OK;
}

static void shm_release(shm_state *s)
{
    if (s->segment)
        munmap(s->segment, (size_t)s->bytes);
    if (s->fd >= 0)
        close(s->fd);
    s->segment = NULL;
    s->fd = -1;
}

/* ---- meeting: rank 0 listens, the others come; it hands out the segment when all are there ---- */

#define SHM_MAGIC 0x6d68736e6f6e6574 /* "tenonshm" */

typedef struct shm_hello {
    int64_t magic;
    int32_t rank, size;
    int64_t chunk, arena;
} shm_hello;

/* Rank 0 sends it twice: with the segment, and when all hold it. */
typedef struct shm_answer {
    int32_t code, reserved; /* not TN_OK: nothing comes of it, `text` says why */
    int64_t bytes;
    char text[sizeof(((tn_error *)0)->msg)];
} shm_answer;

typedef struct shm_meeting {
    const tn_group *group;
    const char *name;
    double patience;
    int64_t deadline;
    struct sockaddr_un address;
    socklen_t length;
    int32_t sockets[MAX_RANKS]; /* by rank, of those who came; -1. Entry 0: the one that rank 0 listens on */
    int64_t arena[MAX_RANKS];
    int32_t pid[MAX_RANKS];
} shm_meeting;

/* An abstract address holds 107 bytes: a long name is hashed as the members are. */
static void shm_address(shm_meeting *m)
{
    uint64_t hash = 14695981039346656037u;
    for (const char *c = m->name; *c; c++)
        hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    for (int32_t p = 0; p < m->group->size; p++)
        hash = (hash ^ (uint32_t)(m->group->members ? m->group->members[p] : p)) * 1099511628211u;
    m->address.sun_family = AF_UNIX;
    int length = snprintf(m->address.sun_path + 1, sizeof m->address.sun_path - 1, "tenon-shm-%d-%.40s-%016llx",
                          (int)geteuid(), m->name, (unsigned long long)hash);
    m->length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static int shm_left_ms(const shm_meeting *m)
{
    int64_t left = (m->deadline - shm_now() + 999999) / 1000000;
    return left <= 0 ? 0 : left < INT_MAX ? (int)left : INT_MAX;
}

/* 1: something can be read (or the other side is gone); 0: the time is over. */
static int shm_readable(int fd, int ms)
{
    struct pollfd ask = {.fd = fd, .events = POLLIN};
    int64_t deadline = shm_now() + ms * (int64_t)1000000;
    for (;;) {
        int n = poll(&ask, 1, ms);
        if (n >= 0 || errno != EINTR)
            return n > 0;
        ms = (int)((deadline - shm_now()) / 1000000);
        ms = ms < 0 ? 0 : ms;
    }
}

/* The process at the other end of a socket, or -1 if it is another user's. */
static int32_t shm_peer(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != geteuid())
        return -1;
    return peer.pid;
}

static void shm_answer_all(const shm_meeting *m, const shm_answer *answer, int fd)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec data = {(void *)(uintptr_t)answer, sizeof *answer};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
    if (fd >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    for (int32_t p = 1; p < m->group->size; p++)
        if (m->sockets[p] >= 0) /* who is gone shows when it does not answer */
            (void)!sendmsg(m->sockets[p], &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

static int32_t shm_listen(shm_meeting *m, tn_error *err)
{
    const struct timespec moment = {0, 2000000};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return tn_fail(err, TN_E_IO, "collective shm: a socket: %s", strerror(errno));
    m->sockets[0] = fd;
    while (bind(fd, (struct sockaddr *)&m->address, m->length) != 0) {
        if (errno != EADDRINUSE)
            return tn_fail(err, TN_E_IO, "collective shm: name %s: %s", m->name, strerror(errno));
        if (shm_left_ms(m) == 0)
            return tn_fail(err, TN_E_IO,
                           "collective shm: name %s has been in use by another rank 0 for %g s: a run of the same name "
                           "is starting; choose another (row name, or TENON_SHM)",
                           m->name, m->patience);
        nanosleep(&moment, NULL);
    }
    if (listen(fd, MAX_RANKS) != 0)
        return tn_fail(err, TN_E_IO, "collective shm: name %s: %s", m->name, strerror(errno));
    return TN_OK;
}

static int32_t shm_check_hello(const shm_meeting *m, const shm_state *s, const shm_hello *hello, int32_t pid,
                               tn_error *err)
{
    if (hello->size != s->size || hello->rank < 1 || hello->rank >= s->size)
        return tn_fail(err, TN_E_INVALID, "collective shm: process %d comes as rank %d of %d; rank 0 is of %d", pid,
                       hello->rank, hello->size, s->size);
    if (m->sockets[hello->rank] >= 0)
        return tn_fail(err, TN_E_INVALID, "collective shm: processes %d and %d both come as rank %d of %d",
                       m->pid[hello->rank], pid, hello->rank, s->size);
    if (pid == getpid())
        return tn_fail(err, TN_E_UNSUPPORTED, "collective shm: process %d comes as rank 0 and rank %d; needed one each",
                       pid, hello->rank);
    if (hello->chunk != s->chunk)
        return tn_fail(err, TN_E_INVALID,
                       "collective shm: chunk is %lld on rank 0 and %lld on rank %d; needed the same",
                       (long long)s->chunk, (long long)hello->chunk, hello->rank);
    return TN_OK;
}

/* One that knocks. Who does not say hello in a second, or speaks otherwise, is sent off; its rank is waited for. */
static int32_t shm_admit(shm_meeting *m, const shm_state *s, int32_t *count, tn_error *err)
{
    shm_hello hello = {0};
    int fd = accept4(m->sockets[0], NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return TN_OK;
    const int32_t pid = shm_peer(fd);
    const int left = shm_left_ms(m);
    if (pid < 0 || !shm_readable(fd, left < 1000 ? left : 1000) ||
        recv(fd, &hello, sizeof hello, MSG_DONTWAIT) != sizeof hello || hello.magic != SHM_MAGIC) {
        close(fd);
        return TN_OK;
    }
    int32_t status = shm_check_hello(m, s, &hello, pid, err);
    if (status != TN_OK) {
        shm_answer answer = {.code = status};
        if (err)
            memcpy(answer.text, err->msg, sizeof answer.text);
        (void)!send(fd, &answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT);
        close(fd);
        return status;
    }
    m->sockets[hello.rank] = fd;
    m->arena[hello.rank] = hello.arena;
    m->pid[hello.rank] = pid;
    (*count)++;
    return TN_OK;
}

static int32_t shm_missing(const shm_meeting *m, tn_error *err)
{
    char list[200] = "";
    size_t used = 0;
    for (int32_t p = 1; p < m->group->size && used < sizeof list - 16; p++)
        if (m->sockets[p] < 0)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%d", used ? ", " : "", p);
    return tn_fail(err, TN_E_IO,
                   "collective shm: of %d ranks of %s these did not come within %g s: %s; were they started, with "
                   "the same name and number of ranks?",
                   m->group->size, m->name, m->patience, list);
}

/* Until all are there. */
static int32_t shm_gather(shm_meeting *m, const shm_state *s, tn_error *err)
{
    struct pollfd ask[MAX_RANKS];
    int32_t status = TN_OK, count = 1;
    while (status == TN_OK && count < s->size) {
        for (int32_t p = 0; p < s->size; p++)
            ask[p] = (struct pollfd){.fd = m->sockets[p], .events = POLLIN};
        int n = poll(ask, (nfds_t)s->size, shm_left_ms(m));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return shm_missing(m, err);
        for (int32_t p = 1; p < s->size; p++)
            if (ask[p].fd >= 0 && ask[p].revents)
                return tn_fail(err, TN_E_IO, "collective shm: rank %d (process %d) ended while the group was opening",
                               p, m->pid[p]);
        if (ask[0].revents)
            status = shm_admit(m, s, &count, err);
    }
    return status;
}

/* Until all hold the segment. */
static int32_t shm_confirm(const shm_meeting *m, tn_error *err)
{
    char byte;
    for (int32_t p = 1; p < m->group->size; p++) {
        if (!shm_readable(m->sockets[p], shm_left_ms(m) + 1000))
            return tn_fail(err, TN_E_IO, "collective shm: rank %d (process %d) stopped while the group was opening", p,
                           m->pid[p]);
        if (recv(m->sockets[p], &byte, 1, MSG_DONTWAIT) != 1)
            return tn_fail(err, TN_E_IO, "collective shm: rank %d (process %d) ended while the group was opening", p,
                           m->pid[p]);
    }
    return TN_OK;
}

static int32_t shm_host(shm_meeting *m, shm_state *s, tn_error *err)
{
    tn_error own = {0};
    shm_answer answer = {0};
    int32_t status = s->size > 1 ? shm_listen(m, &own) : TN_OK;
    if (status == TN_OK)
        status = shm_gather(m, s, &own);
    if (s->size > 1) /* before anyone can come for the next meeting of this name */
        close(m->sockets[0]);
    m->sockets[0] = -1;
    if (status == TN_OK)
        status = shm_create(s, m->arena, &own);
    if (status == TN_OK) {
        for (int32_t p = 0; p < s->size; p++)
            s->segment->ranks[p].pid = m->pid[p];
        answer.bytes = s->bytes;
        shm_answer_all(m, &answer, s->fd);
        status = shm_confirm(m, &own);
    }
    answer.code = status;
    memcpy(answer.text, own.msg, sizeof answer.text);
    shm_answer_all(m, &answer, -1);
    return status == TN_OK ? TN_OK : tn_fail(err, status, "%s", own.msg);
}

static int32_t shm_knock(shm_meeting *m, tn_error *err)
{
    const struct timespec moment = {0, 2000000};
    for (;;) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (fd < 0)
            return tn_fail(err, TN_E_IO, "collective shm: a socket: %s", strerror(errno));
        if (connect(fd, (struct sockaddr *)&m->address, m->length) == 0) {
            m->sockets[0] = fd;
            return shm_peer(fd) >= 0 ? TN_OK
                                     : tn_fail(err, TN_E_IO,
                                               "collective shm: name %s is held by another user; choose "
                                               "another (row name, or TENON_SHM)",
                                               m->name);
        }
        int why = errno;
        close(fd);
        if (why != ECONNREFUSED && why != EINTR && why != EAGAIN)
            return tn_fail(err, TN_E_IO, "collective shm: name %s: %s", m->name, strerror(why));
        if (shm_left_ms(m) == 0)
            return tn_fail(err, TN_E_IO,
                           "collective shm: rank 0 of %d did not come within %g s; was it started, with the same "
                           "name (%s) and number of ranks?",
                           m->group->size, m->patience, m->name);
        nanosleep(&moment, NULL);
    }
}

/* Rank 0's next answer; with `ret_fd`, the segment comes with it. */
static int32_t shm_hear(const shm_meeting *m, shm_answer *answer, int32_t *ret_fd, tn_error *err)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec data = {answer, sizeof *answer};
    struct msghdr message = {
        .msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    /* Rank 0 may have come that much later, and says who is missing. */
    if (!shm_readable(m->sockets[0], shm_left_ms(m) + (int)(m->patience * 1000) + 2000))
        return tn_fail(err, TN_E_IO, "collective shm: rank 0 stopped while the group was opening");
    if (recvmsg(m->sockets[0], &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != sizeof *answer)
        return tn_fail(err, TN_E_IO, "collective shm: rank 0 ended while the group was opening");
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (ret_fd && header && header->cmsg_type == SCM_RIGHTS)
        memcpy(ret_fd, CMSG_DATA(header), sizeof *ret_fd);
    if (answer->code != TN_OK)
        return tn_fail(err, answer->code, "%s", answer->text);
    return TN_OK;
}

static int32_t shm_visit(shm_meeting *m, shm_state *s, tn_error *err)
{
    const shm_hello hello = {SHM_MAGIC, s->rank, s->size, s->chunk, m->arena[s->rank]};
    shm_answer answer;
    int64_t unused[MAX_RANKS];
    int32_t status = shm_knock(m, err);
    if (status != TN_OK)
        return status;
    if (send(m->sockets[0], &hello, sizeof hello, MSG_NOSIGNAL) != sizeof hello)
        return tn_fail(err, TN_E_IO, "collective shm: rank 0 ended while the group was opening");
    if ((status = shm_hear(m, &answer, &s->fd, err)) != TN_OK)
        return status;
    shm_lay_out(s, m->arena, unused); /* all but the arenas, which the segment says */
    s->bytes = answer.bytes;
    if ((status = shm_map(s, err)) != TN_OK)
        return status;
    if (send(m->sockets[0], "", 1, MSG_NOSIGNAL) != 1)
        return tn_fail(err, TN_E_IO, "collective shm: rank 0 ended while the group was opening");
    return shm_hear(m, &answer, NULL, err);
}

/* ---- the table ---- */

/* A whole number of the environment, or `none` if it is not set. */
static int32_t shm_environment(const char *name, int64_t least, int64_t most, int64_t none, int64_t *ret, tn_error *err)
{
    const char *text = getenv(name);
    char *end;
    if (!text || !*text) {
        *ret = none;
        return TN_OK;
    }
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < least || value > most)
        return tn_fail(err, TN_E_INVALID, "collective shm: %s is '%s', needed a whole number of %lld to %lld", name,
                       text, (long long)least, (long long)most);
    *ret = value;
    return TN_OK;
}

static int32_t shm_world(const void *hyper, int32_t *ret_rank, int32_t *ret_size, tn_error *err)
{
    const shm *h = hyper;
    int64_t ranks = h->ranks, rank = h->rank;
    int32_t status = TN_OK;
    if (ranks == 0)
        status = shm_environment("TENON_RANKS", 1, MAX_RANKS, 1, &ranks, err);
    if (status == TN_OK && rank < 0)
        status = shm_environment("TENON_RANK", 0, MAX_RANKS - 1, ranks == 1 ? 0 : -1, &rank, err);
    if (status != TN_OK)
        return status;
    if (rank < 0 || rank >= ranks)
        return tn_fail(err, TN_E_INVALID,
                       "collective shm: rank %lld of %lld, needed 0 to %lld (rows rank and ranks, or TENON_RANK and "
                       "TENON_RANKS)",
                       (long long)rank, (long long)ranks, (long long)ranks - 1);
    *ret_rank = (int32_t)rank;
    *ret_size = (int32_t)ranks;
    return TN_OK;
}

static int32_t shm_check_group(const tn_group *group, const char *name, int64_t arena, tn_error *err)
{
    if (group->size < 1 || group->size > MAX_RANKS || group->rank < 0 || group->rank >= group->size)
        return tn_fail(err, TN_E_INVALID, "collective shm: a group of rank %d of %d, needed at most %d ranks",
                       group->rank, group->size, MAX_RANKS);
    if (group->size > 1 && !*name)
        return tn_fail(err, TN_E_INVALID,
                       "collective shm: %d ranks and no name to meet under: set the row name, or TENON_SHM",
                       group->size);
    if (arena < 0)
        return tn_fail(err, TN_E_INVALID, "collective shm: arena_bytes is %lld", (long long)arena);
    return TN_OK;
}

static int32_t shm_open_group(const void *hyper, tn_group *group, tn_error *err)
{
    const shm *h = hyper;
    const char *set = getenv("TENON_SHM"), *name = *h->name ? h->name : set ? set : "";
    const int32_t lends = group->struct_size >= sizeof *group;
    const int64_t arena = lends ? group->arena_bytes : 0;
    shm_state *s = group->state;
    shm_meeting m = {.group = group, .name = name, .patience = h->patience, .deadline = shm_deadline(h->patience)};
    int32_t status = shm_check_group(group, name, arena, err);
    if (status != TN_OK)
        return status;
    s->fd = -1;
    s->rank = group->rank;
    s->size = group->size;
    s->chunk = h->chunk;
    memset(m.sockets, 0xff, sizeof m.sockets);
    m.arena[s->rank] = arena;
    m.pid[s->rank] = getpid();
    shm_address(&m);
    status = s->rank == 0 ? shm_host(&m, s, err) : shm_visit(&m, s, err);
    for (int32_t p = 0; p < s->size; p++)
        if (m.sockets[p] >= 0)
            close(m.sockets[p]);
    if (status != TN_OK)
        shm_release(s);
    else if (lends)
        group->arena = arena > 0 ? (char *)s->segment + s->segment->ranks[s->rank].arena_at : NULL;
    return status;
}

/* What still waits in the queue is dropped; who counts on this rank is told. */
static void shm_close_group(tn_group *group)
{
    shm_state *s = group->state;
    if (!s->segment)
        return;
    atomic_store(&s->segment->ranks[s->rank].left, 1);
    shm_ring(&s->segment->ranks[s->rank]);
    shm_release(s);
}

static const tn_collective shm_table = {sizeof(tn_collective), 1,         sizeof(shm_state), shm_world, shm_open_group,
                                        shm_close_group,       shm_start, shm_wait};

TN_COMPONENT(shm, "collective", TN_COLLECTIVE, 0u, HYPER, "The processes of one machine, through shared memory", "",
             shm_table);
TN_PLUGIN("org.tenon.shm", "0.1.0", "Apache-2.0", shm)
