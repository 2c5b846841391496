/* SPDX-License-Identifier: Apache-2.0
 *
 * update.h: a world of parameters and a chain over them. Failures end the test.
 */
#ifndef TENON_TESTS_UPDATE_H
#define TENON_TESTS_UPDATE_H

#include <math.h>
#include <sched.h>
#include <stdarg.h>

#include "host/base/memory.h"
#include "host/update/chain.h"
#include "tests/support.h"

#ifndef WORLD_PARAMETERS
#define WORLD_PARAMETERS 64
#endif
#define WORLD_LINKS 6

typedef struct world {
    tn_registry *registry;
    tn_pool *pool;
    tn_parameters parameters;
    tn_parameter list[WORLD_PARAMETERS];
    char names[WORLD_PARAMETERS][16];
    int64_t at[WORLD_PARAMETERS];
    uint8_t present[WORLD_PARAMETERS];
    tn_instance *links[WORLD_LINKS];
    size_t link_count;
    int32_t check_finite;
    uint64_t seed;
    const tn_signals *signals; /* NULL: none */
    tn_compute_host *compute;  /* likewise */
    tn_comm *comm;
    tn_codec_use p, g, state; /* without table: in the real type */
    tn_chain *chain;
    tn_step_result result;
    tn_error err;
    int64_t attempt;
} world;

typedef struct world_meeting {
    _Atomic int32_t here;
    int32_t all;
} world_meeting;

static inline void world_meet(void *arg, int64_t index, int32_t thread)
{
    world_meeting *meeting = arg;
    (void)index;
    (void)thread;
    for (meeting->here++; meeting->here < meeting->all;)
        sched_yield();
}

static inline world *world_new(uint32_t real, int32_t threads)
{
    world *w = calloc(1, sizeof *w);
    ck_assert_ptr_nonnull(w);
    w->registry = test_plugins();
    ck_ok(tn_pool_create(threads, &w->pool, &w->err), w->err);
    world_meeting meeting = {0, threads};
    tn_pool_run(w->pool, world_meet, &meeting, threads); /* a sanitizer allocates when a thread starts to run */
    w->parameters = (tn_parameters){.real = real, .list = w->list, .at = w->at, .present = w->present};
    return w;
}

static inline void world_free(world *w)
{
    tn_chain_destroy(w->chain);
    tn_pool_destroy(w->pool);
    for (size_t i = 0; i < w->link_count; i++)
        tn_instance_free(w->links[i]);
    tn_free(w->parameters.p);
    tn_free(w->parameters.g);
    free(w);
}

/* A parameter with elements lo to lo + n of a shape; n < 0: all. Named "p0", "p1", ... */
static inline void world_slice(world *w, int32_t ndim, const int64_t *shape, int64_t lo, int64_t n)
{
    int64_t i = w->parameters.count++, whole = 1;
    ck_assert_int_lt(i, WORLD_PARAMETERS);
    snprintf(w->names[i], sizeof w->names[i], "p%d", (int)i);
    tn_parameter *p = &w->list[i];
    *p = (tn_parameter){.struct_size = sizeof *p,
                        .role = TN_ROLE_WEIGHT,
                        .name = w->names[i],
                        .layer = w->names[i],
                        .ndim = ndim,
                        .lo = lo,
                        .fan_in_axis = -1,
                        .fan_out_axis = -1,
                        .tied = -1,
                        .tensor_axis = -1,
                        .replicas = 1,
                        .dtype = {TN_FLOAT, (uint8_t)w->parameters.real, 1}};
    for (int32_t j = 0; j < ndim; j++)
        whole *= p->shape[j] = shape[j];
    p->n = n < 0 ? whole - lo : n;
    w->present[i] = 1;
    w->at[i] = w->parameters.elements;
    w->parameters.elements += (p->n + TN_ALIGN_ELEMENTS - 1) / TN_ALIGN_ELEMENTS * TN_ALIGN_ELEMENTS;
}

static inline void world_vector(world *w, int64_t n) { world_slice(w, 1, &n, 0, -1); }

/* After the last parameter: the arenas, with rubbish in the padding. */
static inline void world_arenas(world *w)
{
    size_t bytes = (size_t)w->parameters.elements * (w->parameters.real / 8);
    w->parameters.p = tn_alloc_aligned(bytes);
    w->parameters.g = tn_alloc_aligned(bytes);
    ck_assert(w->parameters.p && w->parameters.g);
    memset(w->parameters.p, 0xFF, bytes); /* nan */
    memset(w->parameters.g, 0xFF, bytes);
}

static inline double world_at(const world *w, const void *data, int64_t element)
{
    return w->parameters.real == 32 ? (double)((const float *)data)[element] : ((const double *)data)[element];
}

static inline double world_get(const world *w, const void *arena, int64_t i, int64_t element)
{
    return world_at(w, arena, w->at[i] + element);
}

static inline void world_put(const world *w, void *arena, int64_t i, int64_t element, double value)
{
    int64_t at = w->at[i] + element;
    if (w->parameters.real == 32)
        ((float *)arena)[at] = (float)value;
    else
        ((double *)arena)[at] = value;
}

static inline double world_p(const world *w, int64_t i, int64_t element)
{
    return world_get(w, w->parameters.p, i, element);
}

static inline void world_set_p(world *w, int64_t i, double value)
{
    for (int64_t j = 0; j < w->list[i].n; j++)
        world_put(w, w->parameters.p, i, j, value);
}

static inline void world_set_g(world *w, int64_t i, double value)
{
    for (int64_t j = 0; j < w->list[i].n; j++)
        world_put(w, w->parameters.g, i, j, value);
}

/* Numbers in (-1, 1) that differ by tensor, element and `salt`; in a slice as in the whole tensor. */
static inline double world_noise(int64_t tensor, int64_t element, uint64_t salt)
{
    uint64_t x = (uint64_t)(tensor * 1000003 + element) * 0x9E3779B97F4A7C15u + salt * 0xD1B54A32D192ED03u;
    x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9u;
    return (double)(int64_t)(x ^ (x >> 32)) * 0x1p-63;
}

static inline void world_fill(world *w, void *arena, uint64_t salt)
{
    for (int64_t i = 0; i < w->parameters.count; i++)
        for (int64_t j = 0; j < w->list[i].n; j++)
            world_put(w, arena, i, j, world_noise(i, w->list[i].lo + j, salt));
}

/* Adds a link; settings are text pairs (name, value) that end in NULL. Its path is "update.NAME", its handle NAME. */
static inline int32_t world_try_link(world *w, const char *name, ...)
{
    tn_setting settings[12];
    size_t count = 0;
    char path[64];
    va_list args;
    va_start(args, name);
    for (const char *row; (row = va_arg(args, const char *)); count++)
        settings[count] = (tn_setting){row, va_arg(args, const char *)};
    va_end(args);
    snprintf(path, sizeof path, "update.%s", name);
    int32_t status = tn_instance_create(w->registry, NULL, name, w->parameters.real, path, settings, count,
                                        &w->links[w->link_count], &w->err);
    w->link_count += status == TN_OK;
    return status;
}
#define world_link(w, ...) ck_ok(world_try_link(w, __VA_ARGS__, NULL), (w)->err)

static inline int32_t world_try_chain(world *w)
{
    static const tn_services services = {.struct_size = sizeof(tn_services)};
    const tn_chain_options options = {.registry = w->registry,
                                      .links = w->links,
                                      .link_count = w->link_count,
                                      .parameters = &w->parameters,
                                      .pool = w->pool,
                                      .services = &services,
                                      .seed = w->seed,
                                      .check_finite = w->check_finite,
                                      .compute = w->compute,
                                      .comm = w->comm,
                                      .p = w->p,
                                      .g = w->g,
                                      .state = w->state,
                                      .signals = w->signals};
    return tn_chain_create(&options, &w->chain, &w->err);
}

static inline void world_chain(world *w) { ck_ok(world_try_chain(w), w->err); }

static inline void world_try_step(world *w, double scale)
{
    ck_ok(tn_chain_step(w->chain, &(tn_step){.scale = scale, .attempt = w->attempt++}, &w->result, &w->err), w->err);
}

static inline void world_step(world *w, double scale)
{
    world_try_step(w, scale);
    ck_assert_msg(w->result.committed, "skipped: parameter %d", (int)w->result.bad_parameter);
}

/* A slot of a link for parameter i; it must be there. */
static inline tn_chain_slot world_slot(const world *w, const char *link, const char *slot, int64_t i)
{
    tn_chain_slot found = {0};
    for (size_t j = 0; j < tn_chain_slot_count(w->chain); j++) {
        tn_chain_slot at;
        tn_chain_slot_at(w->chain, j, &at);
        if (strcmp(at.link, link) == 0 && strcmp(at.slot, slot) == 0 && at.parameter == i)
            found = at;
    }
    ck_assert_msg(found.link != NULL, "no slot %s.%s of parameter %d", link, slot, (int)i);
    return found;
}

static inline double world_state(const world *w, const char *link, const char *slot, int64_t i, int64_t element)
{
    return world_at(w, world_slot(w, link, slot, i).data, element);
}

static inline double world_report(const world *w, const char *name)
{
    const tn_report *reports;
    size_t count = tn_chain_reports(w->chain, &reports);
    for (size_t i = 0; i < count; i++)
        if (strcmp(reports[i].name, name) == 0)
            return reports[i].value;
    ck_abort_msg("no report %s", name);
}

/* A hash of every bit that a step may change: p, state, clocks; padding left out. */
static inline uint64_t world_hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001B3u;
    return hash;
}

static inline uint64_t world_hash(const world *w)
{
    size_t real = w->parameters.real / 8;
    uint64_t hash = 0xCBF29CE484222325u;
    for (int64_t i = 0; i < w->parameters.count; i++)
        hash = world_hash_bytes(hash, (const char *)w->parameters.p + (size_t)w->at[i] * real,
                                (size_t)w->list[i].n * real);
    for (size_t j = 0; j < tn_chain_slot_count(w->chain); j++) {
        tn_chain_slot slot;
        tn_chain_slot_at(w->chain, j, &slot);
        hash = world_hash_bytes(hash, slot.data, (size_t)slot.bytes);
    }
    hash = world_hash_bytes(hash, tn_chain_clocks(w->chain), (size_t)w->parameters.count * sizeof(int64_t));
    return world_hash_bytes(hash, tn_chain_update(w->chain), sizeof(int64_t));
}

#endif
