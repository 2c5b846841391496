/* SPDX-License-Identifier: Apache-2.0
 *
 * pool.h: the host's threads. One pool serves a run; components start none.
 *
 * Work is handed out in single indices, so nothing may depend on which thread does which. Threads wait some 20 us
 * awake for the next run, then sleep; with more threads than CPUs they sleep at once. Workers have all signals blocked
 * but those that a thread's own fault raises (SIGSEGV, ...).
 */
#ifndef TENON_HOST_BASE_POOL_H
#define TENON_HOST_BASE_POOL_H

#include "host/base/error.h"

#define TN_POOL_MAX 1024

typedef struct tn_pool tn_pool;

/* A pool of `threads` (1 to TN_POOL_MAX), the caller of tn_pool_run counted in; 1 starts none. The caller owns the
 * pool. TN_E_INVALID, TN_E_MEMORY (also if the system grants no more threads). */
int32_t tn_pool_create(int32_t threads, tn_pool **ret, tn_error *err);

/* Ends the threads and frees the pool; not during a run of it. NULL is allowed. After fork() the child has the pool but
 * not its threads: its runs are done by the caller alone, and this only frees. */
void tn_pool_destroy(tn_pool *pool);

/* Threads as given to tn_pool_create. `pool` NULL: 1. */
int32_t tn_pool_threads(const tn_pool *pool);

/* Calls work(arg, index, thread) once for each index of 0..count-1, on the caller (thread 0) and the workers
 * (threads 1..threads-1), and returns when all calls have returned; what they wrote is then visible to the caller.
 * No two calls at a time have the same `thread`, so it may pick scratch memory. A call from within a run of the same
 * pool is done by the calling thread alone, under its own `thread`. `pool` NULL: the caller does all. Allocates
 * nothing. One thread at a time for one pool. */
void tn_pool_run(tn_pool *pool, void (*work)(void *arg, int64_t index, int32_t thread), void *arg, int64_t count);

/* How many CPUs this process may use, at least 1 and at most TN_POOL_MAX. Any thread. */
int32_t tn_default_threads(void);

#endif
