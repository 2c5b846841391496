/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/parameter.h: what the host tells of one parameter, and of its clock.
 */
#ifndef TENON_PARAMETER_H
#define TENON_PARAMETER_H

#include <tenon/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The chunk grid belongs to the logical tensor: runs of TN_CHUNK elements from its element 0. All cuts (threads,
 * shards, codec blocks) fall on chunks, so a sum over a chunk has the same bits however the work is split. */
#define TN_CHUNK 4096

/* Clocks advance on commit only, one per parameter: an absent gradient leaves state and clock alone. */
typedef struct tn_clock {
    uint32_t struct_size;
    uint32_t reserved;
    int64_t t;       /* the update being computed for these parameters: 1, 2, ... */
    int64_t update;  /* committed updates of the run, from 0 */
    int64_t attempt; /* tried updates of the run, from 0 */
    const tn_services *services;
} tn_clock;
TN_AT(tn_clock, t, 8);
TN_AT(tn_clock, services, 32);
TN_SIZE(tn_clock, 40);

/* What a tensor is to the model. */
#define TN_ROLE_OTHER     0
#define TN_ROLE_WEIGHT    1
#define TN_ROLE_BIAS      2
#define TN_ROLE_NORM      3 /* gain and shift of a normalizer */
#define TN_ROLE_EMBEDDING 4
#define TN_ROLE_HEAD      5

/* Never a bare pointer: everything the host knows of one parameter. Lives as long as the run. */
typedef struct tn_parameter {
    uint32_t struct_size;
    int32_t role;      /* TN_ROLE_* */
    const char *name;  /* stable and global: "hidden.0.linear.weight" */
    const char *layer; /* what it shares a layer with: "hidden.0.linear" */
    int32_t ndim;
    int32_t tensor_count;          /* processes that tensor parallelism splits it over; 0: not split */
    int64_t shape[TN_MAX_DIMS];    /* logical, whole, row-major; if split so, of this process's part */
    int64_t lo, n;                 /* the slice of it that this process holds, in elements; on chunks */
    int32_t fan_in_axis;           /* -1: none */
    int32_t fan_out_axis;          /* -1: none */
    int32_t tied;                  /* id shared by tied tensors; -1: not tied */
    int32_t tensor_axis;           /* axis split by tensor parallelism; -1: none */
    int32_t tensor_index;          /* this process's place on that axis */
    int32_t replicas;              /* processes that hold the same slice, >= 1 */
    int32_t part_count;            /* sub-blocks along axis 0 (q, k, v; heads); 0: one block */
    tn_dtype dtype;                /* as stored; pieces are always in the component's real type */
    const int64_t *part_rows;      /* part_count row counts */
    const char *const *part_names; /* part_count names */
} tn_parameter;
TN_AT(tn_parameter, name, 8);
TN_AT(tn_parameter, ndim, 24);
TN_AT(tn_parameter, shape, 32);
TN_AT(tn_parameter, lo, 96);
TN_AT(tn_parameter, fan_in_axis, 112);
TN_AT(tn_parameter, dtype, 140);
TN_AT(tn_parameter, part_rows, 144);
TN_SIZE(tn_parameter, 160);

#ifdef __cplusplus
}
#endif
#endif
