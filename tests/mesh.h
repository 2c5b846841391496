/* SPDX-License-Identifier: Apache-2.0
 *
 * mesh.h: what tests of stages and parts share: a small model as one process runs it, and the same one as a place of a
 * mesh; micro-batches of unequal sizes. Failures end the test.
 */
#ifndef TENON_TESTS_MESH_H
#define TENON_TESTS_MESH_H

#include "host/base/memory.h"
#include "host/base/philox.h"
#include "host/parallel/pipeline.h"
#include "tests/processes.h"

#define MESH_FEATURES 7
#define MESH_CLASSES  4
#define MESH_BATCH    9
#define MESH_MICRO    8 /* micro-batches at most */

typedef struct mesh_case {
    tn_mesh mesh;
    uint32_t real;
    int32_t micro_batches;
    const char *order, *skip;   /* of pipeline-1f1b and tensor-pair; NULL: the defaults */
    const tn_setting *settings; /* of the model mlp */
    size_t count;
    const char *recompute; /* a policy, or NULL */
} mesh_case;

typedef struct mesh_fixture {
    tn_pool *pool;
    tn_backend backend;
    tn_instance *model, *loss, *recompute, *strategies[2];
    tn_parallel *parallel;
    tn_comm *data; /* borrowed */
    tn_graph *graph;
} mesh_fixture;

static inline tn_instance *mesh_instance(const char *kind, const char *name, uint32_t real, const tn_setting *settings,
                                         size_t count)
{
    tn_instance *instance = NULL;
    tn_error err = {0};
    ck_ok(tn_instance_create(test_plugins(), kind, name, real, kind, settings, count, &instance, &err), err);
    return instance;
}

static inline void mesh_begin(const mesh_case *c, mesh_fixture *f)
{
    const tn_entry_info *entry;
    const tn_setting order = {"order", c->order}, skip = {"skip", c->skip};
    tn_error err = {0};
    memset(f, 0, sizeof *f);
    ck_ok(tn_pool_create(2, &f->pool, &err), err);
    ck_ok(tn_registry_find(test_plugins(), "backend", "reference", NULL, 0, &entry, &err), err);
    ck_ok(tn_registry_load(test_plugins(), entry, &f->backend, sizeof f->backend, &err), err);
    f->model = mesh_instance("model", "mlp", c->real, c->settings, c->count);
    f->loss = mesh_instance("loss", "cross-entropy", c->real, NULL, 0);
    f->recompute = c->recompute ? mesh_instance("recompute", c->recompute, c->real, NULL, 0) : NULL;
    f->strategies[0] = mesh_instance("strategy", "pipeline-1f1b", c->real, &order, c->order != NULL);
    f->strategies[1] = mesh_instance("strategy", "tensor-pair", c->real, &skip, c->skip != NULL);
}

static inline void mesh_end(mesh_fixture *f)
{
    tn_graph_destroy(f->graph);
    tn_parallel_close(f->parallel);
    tn_instance_free(f->model);
    tn_instance_free(f->loss);
    tn_instance_free(f->recompute);
    tn_instance_free(f->strategies[0]);
    tn_instance_free(f->strategies[1]);
    tn_pool_destroy(f->pool);
}

static inline int32_t mesh_open(const mesh_case *c, tn_comm *world, mesh_fixture *f, tn_error *err)
{
    const tn_parallel_options options = {test_plugins(), f->strategies, 2, c->mesh, c->micro_batches, world};
    return tn_parallel_open(&options, &f->parallel, err);
}

/* With f->parallel where that is open, else whole. */
static inline int32_t mesh_graph(const mesh_case *c, mesh_fixture *f, tn_error *err)
{
    static const int64_t shape[] = {MESH_FEATURES};
    const tn_graph_options options = {.registry = test_plugins(),
                                      .model = f->model,
                                      .loss = f->loss,
                                      .real = c->real,
                                      .batch = MESH_BATCH,
                                      .ndim = 1,
                                      .shape = shape,
                                      .classes = MESH_CLASSES,
                                      .backend = &f->backend,
                                      .pool = f->pool,
                                      .seed = 5,
                                      .recompute = f->recompute,
                                      .data = f->parallel ? f->parallel->group[TN_MESH_DATA] : f->data,
                                      .micro_batches = f->parallel ? f->parallel->sets : 0,
                                      .parallel = f->parallel};
    return tn_graph_create(&options, &f->graph, err);
}

/* On processes that share a batch over `data`, or one (NULL). */
static inline void mesh_whole(const mesh_case *c, tn_comm *data, mesh_fixture *f)
{
    tn_error err = {0};
    mesh_begin(c, f);
    f->data = data;
    ck_ok(mesh_graph(c, f, &err), err);
}

static inline void mesh_place(const mesh_case *c, tn_comm *world, mesh_fixture *f)
{
    tn_error err = {0};
    mesh_begin(c, f);
    ck_ok(mesh_open(c, world, f, &err), err);
    ck_ok(mesh_graph(c, f, &err), err);
}

/* ---- a window ---- */

static const int64_t mesh_samples[MESH_MICRO] = {5, 9, 2, 7, 9, 1, 4, 6};

static inline void mesh_fill(uint32_t real, int32_t data_place, int32_t micro_batch, void *x, void *target)
{
    int64_t n = mesh_samples[micro_batch];
    if (x)
        tn_random_normal(11 + (uint64_t)data_place, (uint64_t)micro_batch, 0, n * MESH_FEATURES, 0, 1, real, x);
    for (int64_t i = 0; i < n && target; i++)
        ((int32_t *)target)[i] = (int32_t)((i * 3 + micro_batch) % MESH_CLASSES);
}

static inline tn_graph_run mesh_run_options(void)
{
    return (tn_graph_run){.flags = TN_TRAIN, .attempt = 3, .update = 2, .seed = 0.25};
}

/* All micro-batches one after the other. */
static inline void mesh_run(const mesh_case *c, mesh_fixture *f, tn_exact sums[TN_SUMS_MAX])
{
    tn_graph_run run = mesh_run_options();
    tn_error err = {0};
    memset(sums, 0, TN_SUMS_MAX * sizeof *sums);
    for (int32_t m = 0; m < c->micro_batches; m++) {
        mesh_fill(c->real, tn_comm_rank(f->data), m, tn_graph_input(f->graph), tn_graph_target(f->graph));
        run.n = mesh_samples[m];
        run.micro = m;
        run.flags = TN_TRAIN | (m ? TN_ACCUMULATE : 0);
        ck_ok(tn_graph_run_batch(f->graph, &run, sums, &err), err);
    }
}

/* Element j of parameter i, of p (gradient 0) or g. */
static inline double mesh_value(const mesh_fixture *f, int32_t gradient, int64_t i, int64_t j)
{
    const tn_parameters *all = tn_graph_parameters(f->graph);
    const void *arena = gradient ? all->g : all->p;
    return all->real == 64 ? ((const double *)arena)[all->at[i] + j] : ((const float *)arena)[all->at[i] + j];
}

/* Element j of parameter i of `f` is which element of the whole? */
static inline int64_t mesh_whole_index(const mesh_fixture *f, int64_t i, int64_t j)
{
    const tn_parameter *p = &tn_graph_parameters(f->graph)->list[i];
    int64_t inner = 1;
    if (p->tensor_count == 0)
        return j;
    for (int32_t k = p->tensor_axis + 1; k < p->ndim; k++)
        inner *= p->shape[k];
    int64_t extent = p->shape[p->tensor_axis], outer = j / (extent * inner), rest = j % (extent * inner);
    return (outer * p->tensor_count + p->tensor_index) * extent * inner + rest;
}

/* p starts as the whole's, g is within `tolerance` (0: the same bits) of it. Returns how many parameters are here. */
static inline int64_t mesh_compare(const mesh_fixture *f, const mesh_fixture *whole, double tolerance)
{
    const tn_parameters *all = tn_graph_parameters(f->graph), *of = tn_graph_parameters(whole->graph);
    int64_t here = 0;
    ck_assert_int_eq(all->count, of->count);
    for (int64_t i = 0; i < all->count; i++) {
        const tn_parameter *p = &all->list[i];
        ck_assert_str_eq(p->name, of->list[i].name);
        ck_assert(p->n == 0 || p->n * (p->tensor_count ? p->tensor_count : 1) == of->list[i].n);
        here += p->n > 0;
        for (int64_t j = 0; j < p->n; j++) {
            int64_t at = mesh_whole_index(f, i, j);
            double g = mesh_value(f, 1, i, j), expected = mesh_value(whole, 1, i, at);
            expect(mesh_value(f, 0, i, j) == mesh_value(whole, 0, i, at), "%s[%d] starts elsewhere", p->name, (int)at);
            expect(tolerance > 0 ? !(g - expected > tolerance || expected - g > tolerance) : g == expected,
                   "the gradient of %s[%d] is %.17g, not %.17g", p->name, (int)at, g, expected);
        }
    }
    return here;
}

#endif
