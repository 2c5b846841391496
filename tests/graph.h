/* SPDX-License-Identifier: Apache-2.0
 *
 * graph.h: a graph under test: samples of 7 numbers in 3 classes, cross-entropy with smoothing 0.1, the plugins of
 * tests/extra at hand. Failures end the test.
 */
#ifndef TENON_TESTS_GRAPH_H
#define TENON_TESTS_GRAPH_H

#include <math.h>

#include "host/base/memory.h"
#include "host/base/philox.h"
#include "host/graph/graph.h"
#include "tests/support.h"

#define SAMPLE  7
#define CLASSES 3

/* What a test may choose; 0 for the rest. */
typedef struct {
    const char *model;
    const tn_setting *settings; /* of the model */
    size_t count;
    uint32_t real;         /* 0: 64 */
    int32_t threads;       /* 0: 1 */
    int64_t batch;         /* 0: 65 */
    const char *backend;   /* NULL: reference */
    const char *loss;      /* NULL: cross-entropy */
    const char *recompute; /* NULL: none */
    const char *segment;   /* of recompute: its row "nodes"; NULL: its default */
    const char *codec;     /* of storage; NULL: none */
    int32_t sets;          /* of activations; 0: one */
    tn_comm *data;
    const tn_services *services;
} graph_choice;

typedef struct {
    graph_choice choice;
    tn_registry *registry;
    tn_pool *pool;
    tn_backend backend;
    tn_instance *model, *loss, *recompute, *codec;
    tn_codec codec_table;
    tn_graph *graph;
    tn_parameters *all;
    size_t bytes; /* of an arena of parameters */
} graph_fixture;

static inline tn_instance *graph_instance(const graph_fixture *f, const char *kind, const char *name, const char *row,
                                          const char *value)
{
    tn_instance *instance = NULL;
    tn_error err = {0};
    tn_setting setting = {row, value};
    ck_ok(tn_instance_create(f->registry, kind, name, f->choice.real, kind, &setting, value ? 1 : 0, &instance, &err),
          err);
    return instance;
}

/* All but the graph. */
static inline void graph_prepare(graph_fixture *f, const graph_choice *choice)
{
    tn_error err = {0};
    const tn_entry_info *entry;
    *f = (graph_fixture){.choice = *choice};
    graph_choice *c = &f->choice;
    c->real = c->real ? c->real : 64;
    c->batch = c->batch ? c->batch : 65;
    f->registry = test_registry("TENON_TEST_PLUGINS");
    ck_ok(tn_pool_create(c->threads ? c->threads : 1, &f->pool, &err), err);
    ck_ok(tn_registry_find(f->registry, "backend", c->backend ? c->backend : "reference", NULL, 0, &entry, &err), err);
    ck_ok(tn_registry_load(f->registry, entry, &f->backend, sizeof f->backend, &err), err);
    ck_ok(tn_instance_create(f->registry, "model", c->model, c->real, "model", c->settings, c->count, &f->model, &err),
          err);
    f->loss = graph_instance(f, "loss", c->loss ? c->loss : "cross-entropy", "smoothing", c->loss ? NULL : "0.1");
    if (c->recompute)
        f->recompute = graph_instance(f, "recompute", c->recompute, "nodes", c->segment);
    if (c->codec) {
        f->codec = graph_instance(f, "codec", c->codec, NULL, NULL);
        ck_ok(tn_registry_load(f->registry, f->codec->entry, &f->codec_table, sizeof f->codec_table, &err), err);
    }
}

static inline int32_t graph_create(graph_fixture *f, tn_error *err)
{
    static const int64_t shape[] = {SAMPLE};
    tn_graph_options options = {.registry = f->registry,
                                .model = f->model,
                                .loss = f->loss,
                                .real = f->choice.real,
                                .batch = f->choice.batch,
                                .ndim = 1,
                                .shape = shape,
                                .classes = CLASSES,
                                .backend = &f->backend,
                                .pool = f->pool,
                                .services = f->choice.services,
                                .seed = 3,
                                .recompute = f->recompute,
                                .data = f->choice.data,
                                .micro_batches = f->choice.sets,
                                .storage = {f->codec ? &f->codec_table : NULL, f->codec}};
    int32_t status = tn_graph_create(&options, &f->graph, err);
    if (status == TN_OK) {
        f->all = tn_graph_parameters(f->graph);
        f->bytes = (size_t)f->all->elements * f->choice.real / 8;
    }
    return status;
}

static inline void graph_open(graph_fixture *f, const graph_choice *choice)
{
    tn_error err = {0};
    graph_prepare(f, choice);
    ck_ok(graph_create(f, &err), err);
}

static inline void graph_close(graph_fixture *f)
{
    tn_graph_destroy(f->graph);
    tn_instance_free(f->model);
    tn_instance_free(f->loss);
    tn_instance_free(f->recompute);
    tn_instance_free(f->codec);
    tn_pool_destroy(f->pool);
    tn_registry_close(f->registry);
}

/* Every allocation of graph_create fails in turn, with TN_E_MEMORY and words; at least `least` of them. */
static inline void graph_fail_allocations(const graph_choice *choice, int64_t least)
{
    graph_fixture f;
    int64_t nth = 1;
    int32_t status;
    graph_prepare(&f, choice);
    do {
        tn_error err = {0};
        tn_memory_fail_at(nth++);
        status = graph_create(&f, &err);
        tn_memory_fail_at(-1);
        ck_assert_msg(status == TN_OK || (status == TN_E_MEMORY && err.msg[0]), "allocation %lld: status %d: %s",
                      (long long)nth - 1, status, err.msg);
    } while (status != TN_OK);
    ck_assert_int_gt(nth - 2, least);
    graph_close(&f);
}

/* Samples [lo, lo + n) of an endless set that `key` names. */
static inline void graph_fill_from(graph_fixture *f, uint64_t key, int64_t lo, int64_t n)
{
    double *values = tn_alloc((size_t)(n * SAMPLE), sizeof *values);
    tn_random_normal(key, 0, lo * SAMPLE, n * SAMPLE, 0, 1, 64, values);
    for (int64_t i = 0; i < n * SAMPLE; i++)
        if (f->choice.real == 64)
            ((double *)tn_graph_input(f->graph))[i] = values[i];
        else
            ((float *)tn_graph_input(f->graph))[i] = (float)values[i];
    for (int64_t i = 0; i < n; i++)
        ((int32_t *)tn_graph_target(f->graph))[i] = (int32_t)((lo + i) % CLASSES);
    tn_free(values);
}

static inline void graph_fill(graph_fixture *f, int64_t n) { graph_fill_from(f, 11, 0, n); }

/* Number i of `data`, in the graph's real type. */
static inline double graph_number(const graph_fixture *f, const void *data, int64_t i)
{
    return f->choice.real == 64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

/* A copy of an arena of parameters; tn_free when done. */
static inline void *graph_copy(const graph_fixture *f, const void *arena)
{
    void *copy = tn_alloc(f->bytes, 1);
    ck_assert_ptr_nonnull(copy);
    return memcpy(copy, arena, f->bytes);
}

/* The mean loss of a run; 0 where it counts nothing. */
static inline double graph_run(graph_fixture *f, const tn_graph_run *run)
{
    tn_exact sums[TN_SUMS_MAX];
    tn_error err = {0};
    for (size_t i = 0; i < TN_SUMS_MAX; i++)
        tn_exact_clear(&sums[i]);
    ck_ok(tn_graph_run_batch(f->graph, run, sums, &err), err);
    double count = tn_exact_value(&sums[TN_SUM_COUNT]);
    return count > 0 ? tn_exact_value(&sums[TN_SUM_LOSS]) / count : 0;
}

#endif
