/* SPDX-License-Identifier: Apache-2.0
 *
 * processes.h: a test in several processes over the collective shm. Include it after tests/support.h.
 *
 *     static void body(tn_comm *world, void *arg) { ... ck_assert...(tn_comm_rank(world) ...) ... }
 *     START_TEST(name) { processes_run(2, body, &arg); } END_TEST
 *
 * Each process is a fork of the test: what the test set up before is there, what the body changes is its own but for
 * memory of processes_shared. Check's assertions work in the body: the first that fails is the test's. A body must not
 * use a thread pool made before the fork; it may make its own. For tests that do not run under ThreadSanitizer.
 */
#ifndef TENON_TESTS_PROCESSES_H
#define TENON_TESTS_PROCESSES_H

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "host/parallel/comm.h"
#include "tests/support.h"

typedef void process_body(tn_comm *world, void *arg);

/* Zeroed memory that the processes share; the test's end frees it. */
static inline void *processes_shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
    return memory;
}

static inline void process_main(int32_t rank, const tn_instance *collective, process_body *body, void *arg)
{
    char text[16];
    tn_comm *world = NULL;
    tn_error err = {0};
    snprintf(text, sizeof text, "%d", rank);
    setenv("TENON_RANK", text, 1);
    ck_ok(tn_comm_open(test_plugins(), collective, &world, &err), err);
    body(world, arg);
    tn_comm_close(world);
}

/* What a process ended with, as the test wants it. */
static inline int process_is_well(int status, int killed)
{
    return killed ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0;
}

/* Runs `body` in `count` processes and waits. `timeout` in seconds as text, of an operation. With one process `world`
 * is NULL. `killed`: each must die of SIGKILL. */
static inline void processes_wait(const char *timeout, int32_t count, process_body *body, void *arg, int killed)
{
    static int runs;
    char name[64], ranks[16];
    tn_instance *collective = NULL;
    tn_error err = {0};
    pid_t pids[256];
    int failed = 0;
    snprintf(name, sizeof name, "processes-%d-%d", (int)getpid(), runs++);
    snprintf(ranks, sizeof ranks, "%d", count);
    setenv("TENON_SHM", name, 1);
    setenv("TENON_RANKS", ranks, 1);
    const tn_setting settings[] = {{"timeout", timeout}};
    ck_ok(tn_instance_create(test_plugins(), "collective", "shm", 32, "collective", settings, 1, &collective, &err),
          err);
    for (int32_t rank = 0; rank < count; rank++) {
        pids[rank] = fork();
        ck_assert_int_ge(pids[rank], 0);
        if (pids[rank] == 0) {
            process_main(rank, collective, body, arg);
            _exit(0);
        }
    }
    for (int32_t rank = 0; rank < count; rank++) {
        int status = 0;
        ck_assert_int_eq(waitpid(pids[rank], &status, 0), pids[rank]);
        if (!process_is_well(status, killed) && !failed && !(WIFEXITED(status) && WEXITSTATUS(status) == 1))
            ck_abort_msg("process %d of %d ended with wait status %d", rank, count, status);
        failed |= !process_is_well(status, killed);
    }
    if (failed)
        _exit(1); /* the assertion that failed has told Check */
    tn_instance_free(collective);
}

static inline void processes_run_within(const char *timeout, int32_t count, process_body *body, void *arg)
{
    processes_wait(timeout, count, body, arg, 0);
}

/* The bodies kill themselves. */
static inline void processes_run_killed(int32_t count, process_body *body, void *arg)
{
    processes_wait("30", count, body, arg, 1);
}

static inline void processes_run(int32_t count, process_body *body, void *arg)
{
    processes_run_within("30", count, body, arg);
}

#endif
