/* SPDX-License-Identifier: Apache-2.0
 *
 * strategies.h: the strategies of a run and the mesh they are asked about. Nothing here needs more than one process.
 */
#ifndef TENON_HOST_PARALLEL_STRATEGIES_H
#define TENON_HOST_PARALLEL_STRATEGIES_H

#include <tenon/strategy.h>

#include "host/experiment/instance.h"

#define TN_STRATEGIES_MAX 8

typedef struct tn_strategies {
    size_t count;
    const tn_instance *instance[TN_STRATEGIES_MAX]; /* borrowed; hyper is read at each question */
    tn_strategy table[TN_STRATEGIES_MAX];
} tn_strategies;

/* Loads them, in the order in which they are asked. [main] */
int32_t tn_strategies_load(tn_registry *registry, tn_instance *const *instances, size_t count, tn_strategies *ret,
                           tn_error *err);

/* TN_OK if all extents are >= 1 and their product fits. [any] */
int32_t tn_mesh_check(const tn_mesh *mesh, tn_error *err);
/* Processes of a checked mesh. [any] */
int32_t tn_mesh_size(const tn_mesh *mesh);
/* The place of a rank on each axis, by TN_MESH_*; and back. [any] */
void tn_mesh_place(const tn_mesh *mesh, int32_t rank, int32_t ret[3]);
int32_t tn_mesh_rank(const tn_mesh *mesh, const int32_t place[3]);
/* The ranks of the group along `axis` that `rank` belongs to, in order of place; returns how many. `ret` has room for
 * the axis's extent. [any] */
int32_t tn_mesh_group(const tn_mesh *mesh, int32_t rank, int32_t axis, int32_t *ret);

#endif
