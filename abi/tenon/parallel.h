/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/parallel.h: more than one process. Interface "tenon.collective/0.1", kind collective, which moves bytes. What
 * lies where is said by strategies (strategy.h).
 */
#ifndef TENON_PARALLEL_H
#define TENON_PARALLEL_H

#include <tenon/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TN_COLLECTIVE "tenon.collective/0.1"

#define TN_ALL_REDUCE     0
#define TN_REDUCE_SCATTER 1
#define TN_ALL_GATHER     2
#define TN_BROADCAST      3
#define TN_SEND           4
#define TN_RECEIVE        5
#define TN_BARRIER        6

#define TN_REDUCE_SUM 0
#define TN_REDUCE_MAX 1
/* Floating types only: the sum, as wide as the collective adds (f32 or wider), divided by the size of the group, then
 * rounded once to the type. A mean of f16 or bf16 neither overflows nor vanishes on the way. */
#define TN_REDUCE_MEAN 2

/* A group of processes as the host knows it; opaque words are the collective's own, in memory the host lends. */
typedef struct tn_group {
    uint32_t struct_size;
    int32_t rank, size; /* in this group */
    int32_t reserved;
    const int32_t *members; /* world ranks */
    void *state;            /* state_bytes of the collective, zeroed by the host at open */
    /* Memory from which transfers are fastest: the host asks for arena_bytes (0: none; members may differ), open sets
     * `arena` to zeroed memory that is the caller's until close, or to NULL if this collective has none to offer. */
    int64_t arena_bytes;
    void *arena;
} tn_group;
TN_AT(tn_group, members, 16);
TN_AT(tn_group, arena, 40);
TN_SIZE(tn_group, 48);

/* One operation. All members pass the same sequence, operation, dtype and count, which the collective checks before
 * it moves anything: members that disagree get an error that names both sides, within the time-out. Of a send and its
 * receive both sides pass the same sequence. On each member sequences rise, with gaps where it takes no part. */
typedef struct tn_transfer {
    uint32_t struct_size;
    int32_t operation;
    int32_t reduce;
    int32_t peer; /* root of a broadcast, other side of send and receive: rank in the group */
    int64_t sequence;
    tn_dtype dtype;
    int32_t reserved;
    const void *from; /* count elements (reduce-scatter: size * count) */
    void *to;         /* count elements (all-gather: size * count); may be `from` in an all-reduce */
    int64_t count;
    double timeout; /* seconds */
} tn_transfer;
TN_AT(tn_transfer, sequence, 16);
TN_AT(tn_transfer, from, 32);
TN_AT(tn_transfer, timeout, 56);
TN_SIZE(tn_transfer, 64);

typedef struct tn_collective {
    uint32_t struct_size;
    int32_t ordered;     /* 1: reductions add in rank order, so the bits do not depend on timing */
    int64_t state_bytes; /* for each group */
    /* The world this process was started into. [load] */
    int32_t (*world)(const void *hyper, int32_t *ret_rank, int32_t *ret_size, tn_error *err);
    int32_t (*open)(const void *hyper, tn_group *group, tn_error *err); /* [main] */
    void (*close)(tn_group *group);                                     /* [main] */
    /* Starts an operation, or queues it; `ret_ticket` identifies it to wait. Until wait has returned, `from` stays
     * unchanged and `to` unread. Operations end in the order of their start: a wait ends all earlier ones. Once a wait
     * or a start fails for another reason than its arguments, the group is only good for close. [main] */
    int32_t (*start)(tn_group *group, const tn_transfer *transfer, int64_t *ret_ticket, tn_error *err);
    int32_t (*wait)(tn_group *group, int64_t ticket, tn_error *err); /* [main] */
} tn_collective;
TN_AT(tn_collective, state_bytes, 8);
TN_AT(tn_collective, wait, 48);
TN_SIZE(tn_collective, 56);

#ifdef __cplusplus
}
#endif
#endif
