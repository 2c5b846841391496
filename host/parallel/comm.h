/* SPDX-License-Identifier: Apache-2.0
 *
 * comm.h: processes that work together: a group of a collective, with the sequence numbers and time-outs kept here.
 * Everywhere a NULL tn_comm means one process: then each call does nothing but copy.
 *
 * All members call the same functions in the same order, from one thread. A call ends once its data is there; one that
 * the others do not answer fails after the collective's row `timeout` (60 s where it has none). Any failure is final
 * for the group: later calls repeat it.
 */
#ifndef TENON_HOST_PARALLEL_COMM_H
#define TENON_HOST_PARALLEL_COMM_H

#include <tenon/parallel.h>

#include "host/base/exact.h"
#include "host/experiment/instance.h"

typedef struct tn_comm tn_comm;

/* The world this process was started into. *ret is NULL where it is alone. Close with tn_comm_close. `collective` must
 * outlive it. [main] */
int32_t tn_comm_open(tn_registry *registry, const tn_instance *collective, tn_comm **ret, tn_error *err);
/* A group of members of `world`, by their ranks there, this process among them; every member calls it. *ret is NULL for
 * one of itself alone. It may outlive `world`, which may be NULL. [main] */
int32_t tn_comm_split(tn_comm *world, const int32_t *members, int32_t count, tn_comm **ret, tn_error *err);
/* Accepts NULL. */
void tn_comm_close(tn_comm *comm);

int32_t tn_comm_rank(const tn_comm *comm); /* 0 without */
int32_t tn_comm_size(const tn_comm *comm); /* 1 without */

/* data: count elements of `dtype`, replaced by the sum (TN_REDUCE_*) over the group, added in the order of ranks. */
int32_t tn_comm_all_reduce(tn_comm *comm, tn_dtype dtype, void *data, int64_t count, int32_t reduce, tn_error *err);
/* to: size * bytes, the blocks in the order of ranks. `from` may be this process's own block. */
int32_t tn_comm_all_gather(tn_comm *comm, const void *from, void *to, int64_t bytes, tn_error *err);
int32_t tn_comm_broadcast(tn_comm *comm, void *data, int64_t bytes, int32_t root, tn_error *err);
/* Both return once the other side has come. In a group of more than two the first exchange of a pair opens a group of
 * theirs, which allocates. */
int32_t tn_comm_send(tn_comm *comm, const void *data, int64_t bytes, int32_t to, tn_error *err);
int32_t tn_comm_receive(tn_comm *comm, void *data, int64_t bytes, int32_t from, tn_error *err);
int32_t tn_comm_barrier(tn_comm *comm, tn_error *err);
/* 1 into *ret if any member passes a flag other than 0. */
int32_t tn_comm_any(tn_comm *comm, int32_t flag, int32_t *ret, tn_error *err);
/* Each sum becomes the exact sum over the group. Allocates nothing. */
int32_t tn_comm_sum_exact(tn_comm *comm, tn_exact *sums, int64_t count, tn_error *err);

#endif
