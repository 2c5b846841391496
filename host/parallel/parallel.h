/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.h: this process's place in a mesh, its groups along the axes, and the tables that all follow.
 */
#ifndef TENON_HOST_PARALLEL_PARALLEL_H
#define TENON_HOST_PARALLEL_PARALLEL_H

#include "host/parallel/comm.h"
#include "host/parallel/timetable.h"

typedef struct tn_parallel {
    tn_strategies strategies;
    tn_mesh mesh;
    int32_t rank, place[3];  /* by TN_MESH_* */
    tn_comm *world;          /* borrowed */
    tn_comm *group[3];       /* along each axis, in order of place */
    tn_timetable *timetable; /* of a pipeline of more than one stage; else NULL */
    tn_pipeline_step *steps; /* this stage's */
    int64_t step_count;
    int32_t sets; /* of activations that this stage holds; for tn_graph_options.micro_batches */
} tn_parallel;

typedef struct tn_parallel_options {
    tn_registry *registry;
    tn_instance *const *strategies; /* borrowed, must outlive it */
    size_t strategy_count;
    tn_mesh mesh;
    int32_t micro_batches; /* of a window; a pipeline's timetable is made for them */
    tn_comm *world;        /* as many processes as the mesh has; must outlive it */
} tn_parallel_options;

/* Every process of the world calls it. Refuses a mesh that does not fit the world, and timetables that differ between
 * the processes. [main] */
int32_t tn_parallel_open(const tn_parallel_options *options, tn_parallel **ret, tn_error *err);
/* Accepts NULL. */
void tn_parallel_close(tn_parallel *parallel);

/* TN_OK if every process passes the same number; else TN_E_INVALID on all, naming `what` and two ranks. Every process
 * of the world calls it. [main] */
int32_t tn_parallel_agree(const tn_parallel *parallel, uint64_t number, const char *what, tn_error *err);

#endif
