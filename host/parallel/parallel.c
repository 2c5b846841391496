/* SPDX-License-Identifier: Apache-2.0
 *
 * parallel.c: opening a mesh. Groups are opened axis by axis: those of one axis share no process, so nobody waits for
 * someone who waits.
 */
#include "host/parallel/parallel.h"

#include "host/base/error.h"
#include "host/base/memory.h"

static int32_t no_memory(tn_error *err) { return tn_error_set(err, TN_E_MEMORY, "no memory for the mesh"); }

int32_t tn_parallel_agree(const tn_parallel *parallel, uint64_t number, const char *what, tn_error *err)
{
    int32_t size = tn_comm_size(parallel->world), status = TN_OK;
    uint64_t *all = tn_alloc((size_t)size, sizeof *all);
    if (!all)
        return no_memory(err);
    status = tn_comm_all_gather(parallel->world, &number, all, sizeof number, err);
    for (int32_t i = 1; i < size && status == TN_OK; i++)
        if (all[i] != all[0])
            status = tn_error_set(err, TN_E_INVALID,
                                  "ranks 0 and %d differ in %s; start all processes with the same experiment", i, what);
    tn_free(all);
    return status;
}

static int32_t open_groups(tn_parallel *p, tn_error *err)
{
    int32_t status = TN_OK, *ranks = tn_alloc((size_t)tn_mesh_size(&p->mesh), sizeof *ranks);
    if (!ranks)
        return no_memory(err);
    for (int32_t axis = 0; axis < 3 && status == TN_OK; axis++) {
        int32_t count = tn_mesh_group(&p->mesh, p->rank, axis, ranks);
        status = tn_comm_split(p->world, ranks, count, &p->group[axis], err);
    }
    tn_free(ranks);
    return status;
}

static int32_t open_timetable(tn_parallel *p, int32_t micro_batches, tn_error *err)
{
    p->sets = 1;
    if (p->mesh.pipeline == 1)
        return TN_OK;
    int32_t status = tn_timetable_create(&p->strategies, &p->mesh, micro_batches, &p->timetable, err);
    if (status == TN_OK)
        status = tn_timetable_steps(p->timetable, p->place[TN_MESH_PIPELINE], &p->steps, &p->step_count, &p->sets, err);
    return status;
}

static uint64_t hash_of(const tn_parallel *p)
{
    uint64_t hash =
        ((uint64_t)p->mesh.data * 1000003u + (uint64_t)p->mesh.tensor) * 1000003u + (uint64_t)p->mesh.pipeline;
    return p->timetable ? hash ^ tn_timetable_hash(p->timetable) : hash;
}

static int32_t open_all(tn_parallel *p, const tn_parallel_options *o, tn_error *err)
{
    int32_t size = tn_comm_size(o->world), status = tn_mesh_check(&o->mesh, err);
    if (status != TN_OK)
        return status;
    if (tn_mesh_size(&o->mesh) != size)
        return tn_error_set(err, TN_E_INVALID,
                            "a mesh of data %d x tensor %d x pipeline %d has %d processes; %d were started",
                            o->mesh.data, o->mesh.tensor, o->mesh.pipeline, tn_mesh_size(&o->mesh), size);
    tn_mesh_place(&p->mesh, p->rank, p->place);
    status = tn_strategies_load(o->registry, o->strategies, o->strategy_count, &p->strategies, err);
    if (status == TN_OK)
        status = open_timetable(p, o->micro_batches, err);
    if (status == TN_OK)
        status = tn_parallel_agree(p, hash_of(p), "the mesh, the strategies or the number of micro-batches", err);
    return status == TN_OK ? open_groups(p, err) : status;
}

int32_t tn_parallel_open(const tn_parallel_options *options, tn_parallel **ret, tn_error *err)
{
    tn_parallel *p = tn_alloc(1, sizeof *p);
    if (!p)
        return no_memory(err);
    p->mesh = options->mesh;
    p->mesh.struct_size = sizeof p->mesh;
    p->world = options->world;
    p->rank = tn_comm_rank(options->world);
    int32_t status = open_all(p, options, err);
    if (status != TN_OK) {
        tn_parallel_close(p);
        return status;
    }
    *ret = p;
    return TN_OK;
}

void tn_parallel_close(tn_parallel *parallel)
{
    if (!parallel)
        return;
    for (int32_t axis = 0; axis < 3; axis++)
        tn_comm_close(parallel->group[axis]);
    tn_timetable_destroy(parallel->timetable);
    tn_free(parallel->steps);
    tn_free(parallel);
}
