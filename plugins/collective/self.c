/* SPDX-License-Identifier: Apache-2.0
 *
 * Self: the world of one process. Every operation is a copy; sending to oneself is refused, as it would never end
 * anywhere else.
 */
#include <tenon/parallel.h>
#include <tenon/sdk.h>

typedef struct self_state {
    int64_t next;    /* the smallest sequence number that may come */
    int64_t tickets; /* given out so far: 1 .. tickets */
} self_state;

static int32_t self_world(const void *hyper, int32_t *ret_rank, int32_t *ret_size, tn_error *err)
{
    (void)hyper;
    (void)err;
    *ret_rank = 0;
    *ret_size = 1;
    return TN_OK;
}

static int32_t self_open(const void *hyper, tn_group *group, tn_error *err)
{
    (void)hyper;
    group->arena = NULL; /* any memory is as good */
    if (group->rank != 0 || group->size != 1)
        return tn_fail(err, TN_E_INVALID,
                       "collective self: the group has rank %d of %d, needed rank 0 of 1; "
                       "choose another collective (`parallel: {collective: shm}`) or a mesh of 1",
                       group->rank, group->size);
    return TN_OK;
}

static void self_close(tn_group *group) { (void)group; }

static int32_t self_check(const tn_group *group, const tn_transfer *t, tn_error *err)
{
    const self_state *state = group->state;
    if (t->operation < TN_ALL_REDUCE || t->operation > TN_BARRIER)
        return tn_fail(err, TN_E_INVALID, "collective self: operation %d is none of 0 to %d", t->operation, TN_BARRIER);
    if (t->operation == TN_SEND || t->operation == TN_RECEIVE)
        return tn_fail(err, TN_E_INVALID, "collective self: rank 0 of 1 has nobody to %s rank %d",
                       t->operation == TN_SEND ? "send to: peer is" : "receive from: peer is", t->peer);
    if (t->sequence < state->next)
        return tn_fail(err, TN_E_INVALID, "collective self: sequence %lld after %lld, needed a larger one",
                       (long long)t->sequence, (long long)state->next - 1);
    if (t->operation <= TN_REDUCE_SCATTER && (t->reduce < TN_REDUCE_SUM || t->reduce > TN_REDUCE_MEAN))
        return tn_fail(err, TN_E_INVALID, "collective self: reduction %d is none of sum (0), max (1), mean (2)",
                       t->reduce);
    if (t->operation <= TN_REDUCE_SCATTER && t->reduce == TN_REDUCE_MEAN && t->dtype.code != TN_FLOAT &&
        t->dtype.code != TN_BFLOAT)
        return tn_fail(err, TN_E_INVALID, "collective self: a mean of dtype code %d, needed a floating type",
                       t->dtype.code);
    if (t->operation == TN_BROADCAST && t->peer != 0)
        return tn_fail(err, TN_E_INVALID, "collective self: broadcast from rank %d of a group of 1", t->peer);
    return TN_OK;
}

/* Bytes that an operation moves. */
static int32_t self_bytes(const tn_transfer *t, int64_t *ret, tn_error *err)
{
    int64_t bits = t->dtype.bits * (int64_t)t->dtype.lanes, bytes;
    if (t->operation == TN_BARRIER) {
        *ret = 0;
        return TN_OK;
    }
    if (bits <= 0 || bits % 8)
        return tn_fail(err, TN_E_INVALID, "collective self: elements of %lld bits, needed whole bytes",
                       (long long)bits);
    if (t->count < 0 || __builtin_mul_overflow(t->count, bits / 8, &bytes))
        return tn_fail(err, TN_E_INVALID, "collective self: count is %lld", (long long)t->count);
    if (bytes > 0 && (!t->from || !t->to))
        return tn_fail(err, TN_E_INVALID, "collective self: %s is NULL with count %lld", t->from ? "to" : "from",
                       (long long)t->count);
    *ret = bytes;
    return TN_OK;
}

static int32_t self_start(tn_group *group, const tn_transfer *transfer, int64_t *ret_ticket, tn_error *err)
{
    self_state *state = group->state;
    int64_t bytes = 0;
    int32_t status = self_check(group, transfer, err);
    if (status == TN_OK)
        status = self_bytes(transfer, &bytes, err);
    if (status != TN_OK)
        return status;
    if (bytes > 0 && transfer->to != transfer->from)
        memmove(transfer->to, transfer->from, (size_t)bytes);
    state->next = transfer->sequence + 1;
    *ret_ticket = ++state->tickets;
    return TN_OK;
}

static int32_t self_wait(tn_group *group, int64_t ticket, tn_error *err)
{
    const self_state *state = group->state;
    if (ticket < 1 || ticket > state->tickets)
        return tn_fail(err, TN_E_INVALID, "collective self: ticket %lld, given out so far: 1 to %lld",
                       (long long)ticket, (long long)state->tickets);
    return TN_OK;
}

static const tn_collective self_table = {
    sizeof(tn_collective), 1, sizeof(self_state), self_world, self_open, self_close, self_start, self_wait};

TN_COMPONENT(self, "collective", TN_COLLECTIVE, 0u, TN_NO_HYPER, "The world of one process", "", self_table);
TN_PLUGIN("org.tenon.self", "0.1.0", "Apache-2.0", self)
