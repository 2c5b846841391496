/* SPDX-License-Identifier: Apache-2.0
 *
 * host/base/pool: every index once, whatever the threads do; nesting, forking, failing.
 */
#include <dirent.h>
#include <fenv.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "host/base/memory.h"
#include "host/base/pool.h"
#include "tests/support.h"

#define COUNT 1000

typedef struct job {
    tn_pool *pool;
    int32_t threads;
    int32_t times[COUNT];              /* how often each index was done */
    _Atomic int32_t busy[TN_POOL_MAX]; /* calls at this moment, by thread */
    _Atomic int32_t wrong;
} job;

static void count_index(void *arg, int64_t index, int32_t thread)
{
    job *j = arg;
    j->wrong += thread < 0 || thread >= j->threads || atomic_fetch_add(&j->busy[thread], 1) != 0;
    j->times[index]++;
    atomic_fetch_sub(&j->busy[thread], 1);
}

static void assert_all_done(const job *j, int64_t count, int32_t times)
{
    int64_t right = 0;
    for (int64_t i = 0; i < COUNT; i++)
        right += j->times[i] == (i < count ? times : 0);
    ck_assert_int_eq(right, COUNT);
    ck_assert_int_eq(j->wrong, 0);
}

static tn_pool *make(int32_t threads)
{
    tn_pool *pool = NULL;
    tn_error err = {0};
    ck_assert_msg(tn_pool_create(threads, &pool, &err) == TN_OK, "%s", err.msg);
    ck_assert_int_eq(tn_pool_threads(pool), threads);
    return pool;
}

static void nap(long us) { nanosleep(&(struct timespec){0, us * 1000}, NULL); }

START_TEST(every_index_is_done_once)
{
    static const int64_t counts[] = {0, 1, 2, 3, 7, 64, 999, COUNT};
    for (int32_t threads = 1; threads <= 9; threads += 1 + (threads == 4) * 4) {
        tn_pool *pool = make(threads);
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            job j = {.pool = pool, .threads = threads};
            for (int32_t times = 1; times <= 20; times++) {
                tn_pool_run(pool, count_index, &j, counts[i]);
                assert_all_done(&j, counts[i], times);
            }
        }
        tn_pool_destroy(pool);
    }
}
END_TEST

/* Runs of different jobs in close succession and with pauses, so that late workers meet the next run. */
START_TEST(runs_do_not_mix)
{
    tn_pool *pool = make(4);
    job a = {.threads = 4}, b = {.threads = 4};
    for (int32_t i = 1; i <= 3000; i++) {
        tn_pool_run(pool, count_index, &a, 5);
        if (i % 100 == 0)
            nap(300);
        tn_pool_run(pool, count_index, &b, 3);
    }
    assert_all_done(&a, 5, 3000);
    assert_all_done(&b, 3, 3000);
    tn_pool_destroy(pool);
}
END_TEST

static void sum_squares(void *arg, int64_t index, int32_t thread)
{
    (void)thread;
    ((int64_t *)arg)[index] = index * index;
}

START_TEST(results_are_visible_to_the_caller)
{
    tn_pool *pool = make(3);
    static int64_t square[COUNT];
    for (int round = 0; round < 200; round++) {
        memset(square, 0, sizeof square);
        tn_pool_run(pool, sum_squares, square, COUNT);
        int64_t right = 0;
        for (int64_t i = 0; i < COUNT; i++)
            right += square[i] == i * i;
        ck_assert_int_eq(right, COUNT);
    }
    tn_pool_destroy(pool);
}
END_TEST

/* Index 0 waits until all others are done: ends only if idle threads take over the rest of its thread's stretch. */
static void wait_for_others(void *arg, int64_t index, int32_t thread)
{
    _Atomic int32_t *done = arg;
    (void)thread;
    if (index)
        atomic_fetch_add(done, 1);
    else
        while (atomic_load(done) < COUNT - 1)
            nap(50);
}

START_TEST(idle_threads_take_over)
{
    tn_pool *pool = make(2);
    _Atomic int32_t done = 0;
    tn_pool_run(pool, wait_for_others, &done, COUNT);
    ck_assert_int_eq(done, COUNT - 1);
    tn_pool_destroy(pool);
}
END_TEST

/* All indices wait for each other: ends only if as many threads as asked for work at the same time. */
static void meet(void *arg, int64_t index, int32_t thread)
{
    job *j = arg;
    j->times[index] = thread + 1;
    atomic_fetch_add(&j->busy[0], 1);
    while (atomic_load(&j->busy[0]) < j->threads)
        nap(20);
}

START_TEST(all_threads_work_at_once)
{
    for (int32_t threads = 2; threads <= 8; threads *= 2) {
        tn_pool *pool = make(threads);
        for (int round = 0; round < 20; round++) {
            job j = {.threads = threads};
            tn_pool_run(pool, meet, &j, threads);
            int32_t seen = 0;
            for (int32_t i = 0; i < threads; i++)
                seen |= 1 << (j.times[i] - 1);
            ck_assert_int_eq(seen, (1 << threads) - 1);
            if (round % 4 == 0)
                nap(200); /* long enough for the workers to fall asleep */
        }
        tn_pool_destroy(pool);
    }
}
END_TEST

typedef struct nest {
    tn_pool *pool;
    int32_t outer_thread;
    int64_t expected, in_order;
    pthread_t self;
} nest;

static void inner(void *arg, int64_t index, int32_t thread)
{
    nest *n = arg;
    if (thread == n->outer_thread && index == n->expected && pthread_equal(n->self, pthread_self()))
        n->in_order++;
    n->expected++;
}

static void outer(void *arg, int64_t index, int32_t thread)
{
    nest *n = (nest *)arg + index;
    n->outer_thread = thread;
    n->self = pthread_self();
    tn_pool_run(n->pool, inner, n, 10);
    nap(20);
}

START_TEST(nested_runs_stay_on_their_thread)
{
    tn_pool *pool = make(3);
    for (int round = 0; round < 20; round++) {
        nest n[12] = {{0}};
        for (int i = 0; i < 12; i++)
            n[i].pool = pool;
        tn_pool_run(pool, outer, n, 12);
        for (int i = 0; i < 12; i++)
            ck_assert_int_eq(n[i].in_order, 10);
    }
    tn_pool_destroy(pool);
}
END_TEST

typedef struct two_pools {
    tn_pool *inner;
    job job;
} two_pools;

static void run_inner_pool(void *arg, int64_t index, int32_t thread)
{
    two_pools *p = arg;
    (void)thread;
    if (index == 0)
        for (int i = 0; i < 50; i++)
            tn_pool_run(p->inner, count_index, &p->job, 7);
}

START_TEST(a_run_may_use_another_pool)
{
    tn_pool *pool = make(2);
    two_pools p = {.inner = make(3), .job = {.threads = 3}};
    tn_pool_run(pool, run_inner_pool, &p, 2);
    assert_all_done(&p.job, 7, 50);
    tn_pool_destroy(p.inner);
    tn_pool_destroy(pool);
}
END_TEST

START_TEST(without_a_pool_the_caller_works)
{
    job j = {.threads = 1};
    tn_pool_run(NULL, count_index, &j, COUNT);
    assert_all_done(&j, COUNT, 1);
    ck_assert_int_eq(tn_pool_threads(NULL), 1);
    tn_pool_destroy(NULL);
}
END_TEST

typedef struct state {
    _Atomic int32_t met, unblocked, rounding;
} state;

static void look_at_state(void *arg, int64_t index, int32_t thread)
{
    state *s = arg;
    sigset_t blocked;
    (void)index;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    if (thread) {
        static const int outside[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGCHLD, SIGPIPE, SIGPROF};
        for (size_t i = 0; i < sizeof outside / sizeof *outside; i++)
            s->unblocked += !sigismember(&blocked, outside[i]);
        s->rounding += fegetround() != FE_TONEAREST;
    }
    atomic_fetch_add(&s->met, 1);
    while (atomic_load(&s->met) < 3)
        nap(20);
}

START_TEST(workers_block_signals_and_round_to_nearest)
{
    sigset_t before, after;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    fesetround(FE_UPWARD);
    tn_pool *pool = make(3);
    ck_assert_int_eq(fegetround(), FE_UPWARD);
    fesetround(FE_TONEAREST);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int signal = 1; signal < 32; signal++)
        ck_assert_int_eq(sigismember(&before, signal), sigismember(&after, signal));
    state s = {0};
    tn_pool_run(pool, look_at_state, &s, 3);
    ck_assert_int_eq(s.unblocked, 0);
    ck_assert_int_eq(s.rounding, 0);
    tn_pool_destroy(pool);
}
END_TEST

START_TEST(runs_allocate_nothing)
{
    tn_pool *pool = make(4);
    job j = {.threads = 4};
    int64_t before = tn_memory_count();
    for (int i = 0; i < 100; i++)
        tn_pool_run(pool, count_index, &j, COUNT);
    ck_assert_int_eq(tn_memory_count(), before);
    tn_pool_destroy(pool);
}
END_TEST

/* Threads of this process, ended ones that the system has not yet put away included. */
static int thread_count(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    ck_assert_ptr_nonnull(tasks);
    for (const struct dirent *task; (task = readdir(tasks));)
        count += task->d_name[0] != '.';
    closedir(tasks);
    return count;
}

START_TEST(pools_come_and_go)
{
    int before = thread_count(), left = INT_MAX;
    for (int i = 0; i < 100; i++) {
        tn_pool *pool = make(1 + i % 5);
        job j = {.threads = 1 + i % 5};
        if (i % 3)
            tn_pool_run(pool, count_index, &j, COUNT);
        assert_all_done(&j, COUNT, i % 3 != 0);
        tn_pool_destroy(pool);
    }
    for (int i = 0; i < 10000 && left > before + 1; i++, nap(1000)) /* a sanitizer may have begun one of its own */
        left = thread_count();
    ck_assert_int_le(left, before + 1);
}
END_TEST

/* The thread sanitizer ends a forked child that starts threads. */
#if defined __has_feature
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__
#endif
#endif
#ifdef __SANITIZE_THREAD__
#define CHILD_THREADS 1
#else
#define CHILD_THREADS 2
#endif

START_TEST(a_forked_child_works_alone)
{
    tn_pool *pool = make(3);
    job j = {.threads = 3}, started = {.threads = 3};
    tn_pool_run(pool, meet, &started, 3); /* the address sanitizer's locks do not survive a fork while threads start */
    tn_pool_run(pool, count_index, &j, COUNT);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (!child) {
        tn_pool_run(pool, count_index, &j, COUNT);
        tn_pool_destroy(pool);
        pool = NULL;
        if (tn_pool_create(CHILD_THREADS, &pool, NULL))
            _exit(2);
        tn_pool_run(pool, count_index, &j, COUNT);
        tn_pool_destroy(pool);
        for (int i = 0; i < COUNT; i++)
            if (j.times[i] != 3)
                _exit(3);
        _exit(0);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
    tn_pool_run(pool, count_index, &j, COUNT);
    assert_all_done(&j, COUNT, 2);
    tn_pool_destroy(pool);
}
END_TEST

START_TEST(bad_counts_are_refused)
{
    static const int32_t counts[] = {0, -1, TN_POOL_MAX + 1, INT32_MIN};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        tn_pool *pool = (tn_pool *)&pool;
        tn_error err = {0};
        ck_assert_int_eq(tn_pool_create(counts[i], &pool, &err), TN_E_INVALID);
        ck_assert_ptr_eq(pool, &pool);
        ck_assert_ptr_nonnull(strstr(err.msg, "1 to 1024"));
    }
}
END_TEST

START_TEST(no_memory_is_reported)
{
    tn_pool *pool = NULL;
    tn_error err = {0};
    tn_memory_fail_at(0);
    ck_assert_int_eq(tn_pool_create(4, &pool, &err), TN_E_MEMORY);
    ck_assert_int_eq(err.code, TN_E_MEMORY);
    ck_assert_ptr_null(pool);
}
END_TEST

START_TEST(the_default_follows_the_affinity)
{
    cpu_set_t all, one;
    ck_assert_int_eq(sched_getaffinity(0, sizeof all, &all), 0);
    ck_assert_int_eq(tn_default_threads(), CPU_COUNT(&all));
    size_t cpu = 0;
    while (!CPU_ISSET(cpu, &all))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
    ck_assert_int_eq(tn_default_threads(), 1);
    tn_pool *pool = make(4); /* more threads than CPUs */
    job j = {.threads = 4};
    for (int i = 0; i < 200; i++)
        tn_pool_run(pool, count_index, &j, COUNT);
    assert_all_done(&j, COUNT, 200);
    tn_pool_destroy(pool);
}
END_TEST

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

START_TEST(idle_pools_do_not_burn)
{
    tn_pool *pool = make(4);
    job j = {.threads = 4};
    tn_pool_run(pool, count_index, &j, COUNT);
    double least = HUGE_VAL; /* a pool that burns does so each time; the system may charge us for others once */
    for (int i = 0; i < 3; i++) {
        double before = cpu_seconds();
        nap(300000);
        least = fmin(least, cpu_seconds() - before);
    }
    ck_assert_double_lt(least, 0.05);
    tn_pool_destroy(pool);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("pool");
    TCase *tests = tcase_create("pool");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, every_index_is_done_once);
    tcase_add_test(tests, runs_do_not_mix);
    tcase_add_test(tests, results_are_visible_to_the_caller);
    tcase_add_test(tests, idle_threads_take_over);
    tcase_add_test(tests, all_threads_work_at_once);
    tcase_add_test(tests, nested_runs_stay_on_their_thread);
    tcase_add_test(tests, a_run_may_use_another_pool);
    tcase_add_test(tests, without_a_pool_the_caller_works);
    tcase_add_test(tests, workers_block_signals_and_round_to_nearest);
    tcase_add_test(tests, runs_allocate_nothing);
    tcase_add_test(tests, pools_come_and_go);
    tcase_add_test(tests, a_forked_child_works_alone);
    tcase_add_test(tests, bad_counts_are_refused);
    tcase_add_test(tests, no_memory_is_reported);
    tcase_add_test(tests, the_default_follows_the_affinity);
    tcase_add_test(tests, idle_pools_do_not_burn);
    suite_add_tcase(suite, tests);
    return test_main(suite);
}
