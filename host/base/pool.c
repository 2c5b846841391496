/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.c: the host's threads.
 *
 * The indices of a run are cut into one stretch for each thread; a stretch is the count of its indices that nobody has
 * claimed. A thread claims single indices, first of its own stretch, then of the others'. Whoever holds a claim
 * keeps the run open, so a claim is enough to read the run's fields, and a worker that wakes late claims in whatever
 * run is open by then. A run is over when all its indices are done: no sleeping worker is waited for.
 */
#include "host/base/pool.h"

#include <fenv.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "host/base/memory.h"

#define CACHE_LINE 64
#define SPIN_NS    20000

typedef struct worker {
    tn_pool *pool;
    pthread_t thread;
    int32_t index;
    _Alignas(CACHE_LINE) _Atomic int64_t unclaimed; /* indices left in this thread's stretch */
} worker;

struct tn_pool {
    int32_t threads, started; /* workers whose thread runs: 1..started-1 */
    int64_t spin_ns;
    pid_t owner;

    /* the open run; read only while holding a claim */
    void (*work)(void *arg, int64_t index, int32_t thread);
    void *arg;
    int64_t count;

    _Alignas(CACHE_LINE) _Atomic uint32_t runs; /* changes with every run; workers sleep on it */
    _Atomic int32_t sleepers;
    _Atomic int32_t stop;
    _Alignas(CACHE_LINE) _Atomic int64_t unfinished; /* indices of the open run not done yet */
    _Atomic uint32_t caller_sleeps;                  /* the caller sleeps on it */
    worker worker[];                                 /* [threads] */
};

/* In which pool's run this thread takes part, and as which thread. */
static _Thread_local const tn_pool *inside;
static _Thread_local int32_t inside_as;

/* ---- waiting ---- */

static void futex(_Atomic uint32_t *word, int operation, uint32_t value)
{
    syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
}

static void relax(void)
{
#if defined __x86_64__
    __builtin_ia32_pause();
#elif defined __aarch64__
    __asm__ volatile("isb" ::: "memory");
#endif
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Waits awake until `there(pool, value)` or the pool's spin time is over; 1 in the first case. */
static int spin(tn_pool *pool, int (*there)(tn_pool *pool, uint32_t value), uint32_t value)
{
    for (int64_t end = pool->spin_ns ? now_ns() + pool->spin_ns : 0; !there(pool, value);) {
        if (!end || now_ns() > end)
            return 0;
        for (int i = 0; i < 8; i++)
            relax();
    }
    return 1;
}

static int another_run(tn_pool *pool, uint32_t seen) { return atomic_load(&pool->runs) != seen; }

static int finished(tn_pool *pool, uint32_t unused)
{
    (void)unused;
    return atomic_load(&pool->unfinished) == 0;
}

/* Returns when `runs` is no longer `seen`. */
static void await_run(tn_pool *pool, uint32_t seen)
{
    if (spin(pool, another_run, seen))
        return;
    atomic_fetch_add(&pool->sleepers, 1);
    while (!another_run(pool, seen))
        futex(&pool->runs, FUTEX_WAIT_PRIVATE, seen);
    atomic_fetch_sub(&pool->sleepers, 1);
}

static void await_finish(tn_pool *pool)
{
    if (spin(pool, finished, 0))
        return;
    for (;;) {
        atomic_store(&pool->caller_sleeps, 1);
        if (finished(pool, 0))
            break;
        futex(&pool->caller_sleeps, FUTEX_WAIT_PRIVATE, 1);
    }
    atomic_store(&pool->caller_sleeps, 0);
}

/* ---- working ---- */

/* The first index of thread t's stretch. */
static int64_t stretch_start(const tn_pool *pool, int64_t count, int32_t t)
{
    int64_t each = count / pool->threads, more = count % pool->threads;
    return each * t + (t < more ? t : more);
}

/* Claims an index of stretch t; 0 if none is left. Returns how many were left, this one included. */
static int64_t claim(tn_pool *pool, int32_t t)
{
    _Atomic int64_t *unclaimed = &pool->worker[t].unclaimed;
    int64_t left = atomic_load_explicit(unclaimed, memory_order_relaxed);
    while (left && !atomic_compare_exchange_weak_explicit(unclaimed, &left, left - 1, memory_order_acquire,
                                                          memory_order_relaxed))
        ;
    return left;
}

/* Does all indices of stretch t that it can claim; returns how many. */
static int64_t do_stretch(tn_pool *pool, int32_t t, int32_t thread)
{
    int64_t done = 0, left;
    for (; (left = claim(pool, t)); done++)
        pool->work(pool->arg, stretch_start(pool, pool->count, t + 1) - left, thread);
    return done;
}

/* Takes part in the open run until nothing is left to claim. */
static void take_part(tn_pool *pool, int32_t thread)
{
    int64_t done = 0;
    for (int32_t i = 0; i < pool->threads; i++)
        done += do_stretch(pool, (thread + i) % pool->threads, thread);
    if (done && atomic_fetch_sub(&pool->unfinished, done) == done && atomic_exchange(&pool->caller_sleeps, 0))
        futex(&pool->caller_sleeps, FUTEX_WAKE_PRIVATE, 1);
}

static void *worker_main(void *arg)
{
    worker *self = arg;
    tn_pool *pool = self->pool;
    inside = pool;
    inside_as = self->index;
    fesetenv(FE_DFL_ENV); /* rounding and subnormals do not depend on who made the pool */
    for (;;) {
        uint32_t seen = atomic_load(&pool->runs);
        if (atomic_load(&pool->stop))
            return NULL;
        take_part(pool, self->index);
        await_run(pool, seen);
    }
}

static void do_alone(void (*work)(void *, int64_t, int32_t), void *arg, int64_t count, int32_t thread)
{
    for (int64_t i = 0; i < count; i++)
        work(arg, i, thread);
}

static void open_run(tn_pool *pool, void (*work)(void *, int64_t, int32_t), void *arg, int64_t count)
{
    pool->work = work;
    pool->arg = arg;
    pool->count = count;
    atomic_store(&pool->unfinished, count);
    for (int32_t t = 0; t < pool->threads; t++) {
        int64_t size = stretch_start(pool, count, t + 1) - stretch_start(pool, count, t);
        atomic_store_explicit(&pool->worker[t].unclaimed, size, memory_order_release);
    }
    atomic_fetch_add(&pool->runs, 1);
    if (atomic_load(&pool->sleepers))
        futex(&pool->runs, FUTEX_WAKE_PRIVATE, (uint32_t)(count < pool->threads ? count : pool->threads) - 1);
}

void tn_pool_run(tn_pool *pool, void (*work)(void *arg, int64_t index, int32_t thread), void *arg, int64_t count)
{
    int32_t nested = pool && inside == pool;
    if (nested || !pool || pool->threads == 1 || count <= 1) {
        do_alone(work, arg, count, nested ? inside_as : 0);
        return;
    }
    const tn_pool *outer = inside;
    int32_t outer_as = inside_as;
    inside = pool;
    inside_as = 0;
    open_run(pool, work, arg, count);
    take_part(pool, 0);
    await_finish(pool);
    inside = outer;
    inside_as = outer_as;
}

/* ---- making ---- */

int32_t tn_default_threads(void)
{
    cpu_set_t set[16]; /* 16384 CPUs */
    if (sched_getaffinity(0, sizeof set, set))
        return 1;
    int count = CPU_COUNT_S(sizeof set, set);
    return count < 1 ? 1 : count > TN_POOL_MAX ? TN_POOL_MAX : count;
}

/* Starts thread t with every signal blocked that may come from outside. */
static int start_worker(tn_pool *pool, int32_t t)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
    sigset_t blocked, own;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &own);
    int failed = pthread_create(&pool->worker[t].thread, NULL, worker_main, &pool->worker[t]);
    pthread_sigmask(SIG_SETMASK, &own, NULL);
    return failed;
}

int32_t tn_pool_create(int32_t threads, tn_pool **ret, tn_error *err)
{
    if (threads < 1 || threads > TN_POOL_MAX)
        return tn_error_set(err, TN_E_INVALID, "thread pool: found %d threads, needed 1 to %d", threads, TN_POOL_MAX);
    tn_pool *pool = tn_alloc_aligned(sizeof *pool + (size_t)threads * sizeof *pool->worker);
    if (!pool)
        return tn_error_set(err, TN_E_MEMORY, "thread pool: no memory for %d threads", threads);
    pool->threads = threads;
    pool->spin_ns = threads <= tn_default_threads() ? SPIN_NS : 0;
    pool->owner = getpid();
    for (int32_t t = 0; t < threads; t++) {
        pool->worker[t].pool = pool;
        pool->worker[t].index = t;
    }
    for (pool->started = 1; pool->started < threads; pool->started++)
        if (start_worker(pool, pool->started)) {
            tn_error_set(err, TN_E_MEMORY, "thread pool: the system refused thread %d of %d; ask for fewer threads",
                         pool->started + 1, threads);
            tn_pool_destroy(pool);
            return TN_E_MEMORY;
        }
    *ret = pool;
    return TN_OK;
}

void tn_pool_destroy(tn_pool *pool)
{
    if (!pool)
        return;
    if (pool->owner == getpid()) {
        atomic_store(&pool->stop, 1);
        atomic_fetch_add(&pool->runs, 1);
        futex(&pool->runs, FUTEX_WAKE_PRIVATE, INT_MAX);
        for (int32_t t = 1; t < pool->started; t++)
            pthread_join(pool->worker[t].thread, NULL);
    }
    tn_free(pool);
}

int32_t tn_pool_threads(const tn_pool *pool) { return pool ? pool->threads : 1; }
