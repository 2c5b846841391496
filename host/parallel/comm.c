/* SPDX-License-Identifier: Apache-2.0
 *
 * comm.c: groups of a collective. Each group counts its own sequence: all of its members take part in every operation.
 * A send concerns two members only, so in a group of more it goes through a group of those two, opened when they first
 * meet.
 */
#include "host/parallel/comm.h"

#include <string.h>

#include "host/base/error.h"
#include "host/base/memory.h"

#define TIMEOUT 60.0 /* seconds, where the collective has no row `timeout` */
#define BLOCK   64   /* exact sums gathered at a time */

struct tn_comm {
    tn_collective table;
    const tn_instance *collective;
    tn_group group;
    int32_t open; /* 1: group needs closing */
    int32_t failed;
    tn_error failure; /* what ended the group */
    int32_t *members;
    void *state;
    tn_comm **pairs; /* by rank: NULL until used */
    int64_t next;    /* sequence */
    double timeout;
    tn_exact *gathered; /* size * BLOCK */
    int32_t *flags;     /* size */
};

/* ---- life ---- */

void tn_comm_close(tn_comm *comm)
{
    if (!comm)
        return;
    for (int32_t i = 0; comm->pairs && i < comm->group.size; i++)
        tn_comm_close(comm->pairs[i]);
    if (comm->open)
        comm->table.close(&comm->group);
    tn_free(comm->members);
    tn_free(comm->state);
    tn_free(comm->pairs);
    tn_free(comm->gathered);
    tn_free(comm->flags);
    tn_free(comm);
}

static double timeout_of(const tn_instance *collective)
{
    const tn_row *row = tn_instance_row(collective, "timeout");
    double *value = row ? tn_instance_real(collective, row) : NULL;
    return value && *value > 0 ? *value : TIMEOUT;
}

/* Everything but the members' ranks and the collective's own part of it. */
static tn_comm *make(const tn_collective *table, const tn_instance *collective, int32_t size)
{
    tn_comm *comm = tn_alloc(1, sizeof *comm);
    if (!comm)
        return NULL;
    comm->table = *table;
    comm->collective = collective;
    comm->timeout = timeout_of(collective);
    comm->members = tn_alloc((size_t)size, sizeof *comm->members);
    comm->state = tn_alloc_aligned((size_t)table->state_bytes + 64);
    comm->pairs = tn_alloc((size_t)size, sizeof *comm->pairs);
    comm->gathered = tn_alloc((size_t)size * BLOCK, sizeof *comm->gathered);
    comm->flags = tn_alloc((size_t)size, sizeof *comm->flags);
    if (comm->members && comm->state && comm->pairs && comm->gathered && comm->flags)
        return comm;
    tn_comm_close(comm);
    return NULL;
}

static int32_t join(tn_comm *comm, int32_t rank, int32_t size, tn_comm **ret, tn_error *err)
{
    comm->group = (tn_group){
        .struct_size = sizeof comm->group, .rank = rank, .size = size, .members = comm->members, .state = comm->state};
    tn_error_clear(err);
    int32_t status = comm->table.open(comm->collective->hyper, &comm->group, err);
    if (status != TN_OK) {
        tn_comm_close(comm);
        return tn_error_wrap(err, status, "opening a group of %d processes", size);
    }
    comm->open = 1;
    *ret = comm;
    return TN_OK;
}

int32_t tn_comm_open(tn_registry *registry, const tn_instance *collective, tn_comm **ret, tn_error *err)
{
    tn_collective table;
    int32_t rank = 0, size = 1, status = tn_registry_load(registry, collective->entry, &table, sizeof table, err);
    if (status != TN_OK)
        return status;
    if (!table.world || !table.open || !table.close || !table.start || !table.wait || table.state_bytes < 0)
        return tn_error_set(err, TN_E_PLUGIN, "collective %s: its table lacks world, open, close, start or wait",
                            collective->info->name);
    tn_error_clear(err);
    if ((status = table.world(collective->hyper, &rank, &size, err)) != TN_OK)
        return status;
    if (size < 1 || rank < 0 || rank >= size)
        return tn_error_set(err, TN_E_PLUGIN, "collective %s: rank %d of a world of %d", collective->info->name, rank,
                            size);
    if (size == 1) {
        *ret = NULL;
        return TN_OK;
    }
    tn_comm *comm = make(&table, collective, size);
    if (!comm)
        return tn_error_set(err, TN_E_MEMORY, "no memory for a world of %d processes", size);
    for (int32_t i = 0; i < size; i++)
        comm->members[i] = i;
    return join(comm, rank, size, ret, err);
}

/* This process's place among the members, or -1; refuses ranks that are not of the world or come twice. */
static int32_t place_among(const tn_comm *world, const int32_t *members, int32_t count, int32_t *ret, tn_error *err)
{
    int32_t place = -1, size = tn_comm_size(world);
    for (int32_t i = 0; i < count; i++) {
        if (members[i] < 0 || members[i] >= size)
            return tn_error_set(err, TN_E_INVALID, "member %d of a group is rank %d of a world of %d", i, members[i],
                                size);
        for (int32_t j = 0; j < i; j++)
            if (members[j] == members[i])
                return tn_error_set(err, TN_E_INVALID, "rank %d is twice among the members of a group", members[i]);
        if (members[i] == tn_comm_rank(world))
            place = i;
    }
    if (place < 0)
        return tn_error_set(err, TN_E_INVALID, "rank %d opens a group of %d that it is no member of",
                            tn_comm_rank(world), count);
    *ret = place;
    return TN_OK;
}

int32_t tn_comm_split(tn_comm *world, const int32_t *members, int32_t count, tn_comm **ret, tn_error *err)
{
    int32_t place = 0, status = place_among(world, members, count, &place, err);
    if (status != TN_OK)
        return status;
    if (count == 1) {
        *ret = NULL;
        return TN_OK;
    }
    tn_comm *comm = make(&world->table, world->collective, count);
    if (!comm)
        return tn_error_set(err, TN_E_MEMORY, "no memory for a group of %d processes", count);
    for (int32_t i = 0; i < count; i++)
        comm->members[i] = world->members[members[i]];
    return join(comm, place, count, ret, err);
}

int32_t tn_comm_rank(const tn_comm *comm) { return comm ? comm->group.rank : 0; }
int32_t tn_comm_size(const tn_comm *comm) { return comm ? comm->group.size : 1; }

/* ---- operations ---- */

/* Starts it and waits. The first failure stays: what the others did by then is unknown. */
static int32_t operate(tn_comm *comm, tn_transfer t, tn_error *err)
{
    int64_t ticket = 0;
    if (comm->failed)
        return tn_error_set(err, comm->failed, "%s", comm->failure.msg);
    t.struct_size = sizeof t;
    t.sequence = comm->next++;
    t.timeout = comm->timeout;
    tn_error_clear(&comm->failure);
    comm->failed = comm->table.start(&comm->group, &t, &ticket, &comm->failure);
    if (comm->failed == TN_OK)
        comm->failed = comm->table.wait(&comm->group, ticket, &comm->failure);
    if (comm->failed == TN_OK)
        return TN_OK;
    const char *text = comm->failure.msg[0] ? comm->failure.msg : "the collective failed without a message";
    return tn_error_set(err, comm->failed, "%s", text);
}

static const tn_dtype byte = {TN_UINT, 8, 1};

int32_t tn_comm_all_reduce(tn_comm *comm, tn_dtype dtype, void *data, int64_t count, int32_t reduce, tn_error *err)
{
    tn_transfer t = {
        .operation = TN_ALL_REDUCE, .reduce = reduce, .dtype = dtype, .from = data, .to = data, .count = count};
    return comm ? operate(comm, t, err) : TN_OK;
}

int32_t tn_comm_all_gather(tn_comm *comm, const void *from, void *to, int64_t bytes, tn_error *err)
{
    tn_transfer t = {.operation = TN_ALL_GATHER, .dtype = byte, .from = from, .to = to, .count = bytes};
    if (comm)
        return operate(comm, t, err);
    if (from != to && bytes > 0)
        memmove(to, from, (size_t)bytes);
    return TN_OK;
}

int32_t tn_comm_broadcast(tn_comm *comm, void *data, int64_t bytes, int32_t root, tn_error *err)
{
    tn_transfer t = {.operation = TN_BROADCAST, .peer = root, .dtype = byte, .from = data, .to = data, .count = bytes};
    return comm ? operate(comm, t, err) : TN_OK;
}

/* The group of this process and `peer` alone, and its rank there. */
static int32_t pair_with(tn_comm *comm, int32_t peer, tn_comm **ret, int32_t *ret_rank, tn_error *err)
{
    if (!comm || peer < 0 || peer >= comm->group.size || peer == comm->group.rank)
        return tn_error_set(err, TN_E_INVALID, "rank %d of %d exchanges data with rank %d; needed another one",
                            tn_comm_rank(comm), tn_comm_size(comm), peer);
    int32_t rank = comm->group.rank, low = rank < peer ? rank : peer, status = TN_OK;
    *ret_rank = peer > rank;
    *ret = comm;
    if (comm->group.size == 2)
        return TN_OK;
    if (!comm->pairs[peer])
        status = tn_comm_split(comm, (int32_t[]){low, rank + peer - low}, 2, &comm->pairs[peer], err);
    *ret = comm->pairs[peer];
    return status;
}

static int32_t exchange(tn_comm *comm, tn_transfer t, int32_t peer, tn_error *err)
{
    tn_comm *pair = NULL;
    int32_t status = pair_with(comm, peer, &pair, &t.peer, err);
    if (status != TN_OK)
        return status;
    if (pair == comm)
        t.peer = peer;
    t.dtype = byte;
    return operate(pair, t, err);
}

int32_t tn_comm_send(tn_comm *comm, const void *data, int64_t bytes, int32_t to, tn_error *err)
{
    return exchange(comm, (tn_transfer){.operation = TN_SEND, .from = data, .count = bytes}, to, err);
}

int32_t tn_comm_receive(tn_comm *comm, void *data, int64_t bytes, int32_t from, tn_error *err)
{
    return exchange(comm, (tn_transfer){.operation = TN_RECEIVE, .to = data, .count = bytes}, from, err);
}

int32_t tn_comm_barrier(tn_comm *comm, tn_error *err)
{
    return comm ? operate(comm, (tn_transfer){.operation = TN_BARRIER}, err) : TN_OK;
}

int32_t tn_comm_any(tn_comm *comm, int32_t flag, int32_t *ret, tn_error *err)
{
    int32_t any = 0, own = flag != 0;
    int32_t status = comm ? tn_comm_all_gather(comm, &own, comm->flags, sizeof own, err) : TN_OK;
    if (status != TN_OK)
        return status;
    for (int32_t i = 0; comm && i < comm->group.size; i++)
        any |= comm->flags[i];
    *ret = comm ? any : own;
    return TN_OK;
}

int32_t tn_comm_sum_exact(tn_comm *comm, tn_exact *sums, int64_t count, tn_error *err)
{
    for (int64_t lo = 0; comm && lo < count; lo += BLOCK) {
        int64_t n = count - lo < BLOCK ? count - lo : BLOCK;
        int32_t status = tn_comm_all_gather(comm, sums + lo, comm->gathered, n * (int64_t)sizeof *sums, err);
        if (status != TN_OK)
            return status;
        for (int64_t i = 0; i < n; i++) {
            tn_exact_clear(&sums[lo + i]);
            for (int32_t rank = 0; rank < comm->group.size; rank++)
                tn_exact_merge(&sums[lo + i], &comm->gathered[rank * n + i]);
        }
    }
    return TN_OK;
}
