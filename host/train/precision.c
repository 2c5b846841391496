/* SPDX-License-Identifier: Apache-2.0
 *
 * precision.c: storage of parameters as the experiment's `precision` asks, and the loss scale.
 *
 *   storage with master       the chain steps p in the real type; layers see `seen`, p rounded through the codec
 *   storage without master    the chain steps what lies behind the codec; layers see p, which is decoded from it
 *
 * Other views of the parameters go through `seen` in both.
 */
#include <math.h>

#include "host/base/error.h"
#include "host/base/memory.h"
#include "host/base/philox.h"
#include "host/train/internal.h"
#include "host/update/operand.h"

/* ---- opening ---- */

#define SCALE_SLOTS_MAX 1024

static int32_t named_slots(const tn_component_info *info)
{
    const json_t *list = json_object_get(info->facts, "slots");
    int32_t count = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        count += json_string_length(json_object_get(json_array_get(list, i), "name")) > 0;
    return count;
}

static int32_t open_scale(tn_trainer *t, tn_error *err)
{
    tn_precision *p = &t->precision;
    const tn_instance *instance = t->e->loss_scale;
    int32_t status = tn_registry_load(t->options.registry, instance->entry, &p->scale, sizeof p->scale, err);
    if (status != TN_OK)
        return status;
    if (!p->scale.begin || !p->scale.scale || !p->scale.observe)
        return tn_error_set(err, TN_E_PLUGIN, "%s: the table of %s lacks begin, scale or observe", instance->path,
                            instance->info->name);
    int32_t named = named_slots(instance->info);
    if (p->scale.slots != named || named > SCALE_SLOTS_MAX)
        return tn_error_set(err, TN_E_PLUGIN,
                            "%s: the table of %s has %d slots and its note names %d, needed the same number, 0 to %d; "
                            "correct the plugin",
                            instance->path, instance->info->name, p->scale.slots, named, SCALE_SLOTS_MAX);
    p->scale_slots = tn_alloc((size_t)p->scale.slots + 1, sizeof *p->scale_slots);
    if (!p->scale_slots)
        return tn_error_set(err, TN_E_MEMORY, "no memory for the loss scale");
    p->scale.begin(instance->hyper, p->scale_slots);
    return TN_OK;
}

int32_t tn_precision_open(tn_trainer *t, tn_error *err)
{
    tn_precision *p = &t->precision;
    int32_t status = tn_codec_open(t->options.registry, t->e->storage, &p->storage_table, &p->storage, err);
    if (status == TN_OK)
        status = tn_codec_open(t->options.registry, t->e->state_codec, &p->state_table, &p->state, err);
    return status == TN_OK && t->e->loss_scale ? open_scale(t, err) : status;
}

/* The chunks of all parameters are cut over the pool. */
static int32_t plan_chunks(tn_trainer *t, const tn_parameters *all)
{
    tn_precision *p = &t->precision;
    p->chunk_at = tn_alloc((size_t)all->count + 1, sizeof *p->chunk_at);
    p->keys = tn_alloc((size_t)all->count + 1, sizeof *p->keys);
    p->scratch_bytes = (tn_codec_bytes(&p->storage_table, all->real, TN_CHUNK) + 63) / 64 * 64;
    p->scratch = tn_alloc_aligned((size_t)(p->scratch_bytes * tn_pool_threads(t->pool)));
    if (!p->chunk_at || !p->keys || !p->scratch)
        return 0;
    for (int64_t i = 0; i < all->count; i++) {
        p->chunk_at[i + 1] = p->chunk_at[i] + ceil_div(all->list[i].n, TN_CHUNK);
        p->keys[i] = tn_hash_key(t->e->seed, all->list[i].name, "storage");
    }
    return 1;
}

static int plan_seen(tn_trainer *t, const tn_parameters *all)
{
    tn_precision *p = &t->precision;
    int64_t bytes = all->elements * (all->real / 8);
    p->bytes += bytes;
    return (p->seen = tn_alloc_aligned((size_t)bytes + 64)) != NULL;
}

static int64_t stored_bytes(const tn_precision *p, const tn_parameters *all, int64_t i)
{
    return (tn_codec_bytes(&p->storage_table, all->real, all->list[i].n) + 63) / 64 * 64;
}

static int plan_stored(tn_trainer *t, const tn_parameters *all)
{
    tn_precision *p = &t->precision;
    int64_t bytes = 0, at = 0;
    for (int64_t i = 0; i < all->count; i++)
        bytes += stored_bytes(p, all, i);
    p->stored_at = tn_alloc((size_t)all->count + 1, sizeof *p->stored_at);
    p->stored = tn_alloc_aligned((size_t)bytes + 64);
    if (!p->stored_at || !p->stored)
        return 0;
    for (int64_t i = 0; i < all->count; at += stored_bytes(p, all, i++))
        p->stored_at[i] = p->stored + at;
    p->bytes += bytes;
    p->parameters = *all;
    p->parameters.p_of = p->stored_at;
    return 1;
}

int32_t tn_precision_plan(tn_trainer *t, tn_error *err)
{
    const tn_parameters *all = tn_graph_parameters(t->graph);
    if (!t->e->storage)
        return TN_OK;
    if (!plan_chunks(t, all) || !plan_seen(t, all) || (!t->e->master && !plan_stored(t, all)))
        return tn_error_set(err, TN_E_MEMORY, "no memory for stored parameters");
    tn_precision_store(t);
    return TN_OK;
}

void tn_precision_close(tn_trainer *t)
{
    tn_precision *p = &t->precision;
    void *const owned[] = {p->scale_slots, p->seen, p->stored, p->stored_at, p->chunk_at, p->keys, p->scratch};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        tn_free(owned[i]);
}

const tn_parameters *tn_precision_parameters(tn_trainer *t)
{
    return t->precision.stored ? &t->precision.parameters : tn_graph_parameters(t->graph);
}

/* ---- parameters through the codec ---- */

typedef struct {
    tn_trainer *t;
    const tn_parameters *all;
    tn_context context;
    int32_t stored;   /* 1: by way of its place in `stored`; 0: of scratch */
    const char *from; /* arena; NULL: what is stored already */
    char *to;         /* arena */
} passing;

static int64_t parameter_of(const tn_precision *p, int64_t count, int64_t chunk)
{
    int64_t lo = 0, hi = count;
    while (hi - lo > 1) {
        int64_t middle = (lo + hi) / 2;
        if (p->chunk_at[middle] <= chunk)
            lo = middle;
        else
            hi = middle;
    }
    return lo;
}

static void pass_chunk(void *arg, int64_t chunk, int32_t thread)
{
    const passing *w = arg;
    const tn_precision *p = &w->t->precision;
    int64_t i = parameter_of(p, w->all->count, chunk), at = (chunk - p->chunk_at[i]) * TN_CHUNK;
    const tn_parameter *parameter = &w->all->list[i];
    int64_t n = parameter->n - at < TN_CHUNK ? parameter->n - at : TN_CHUNK, lo = parameter->lo + at;
    int64_t place = (w->all->at[i] + at) * (w->all->real / 8);
    void *scratch = p->scratch + thread * p->scratch_bytes;
    tn_operand operand =
        w->stored ? tn_operand_stored(w->all->real, &p->storage, 0, p->stored_at[i], NULL, parameter->lo, parameter->n,
                                      p->keys[i], &w->context)
                  : tn_operand_stored(w->all->real, &p->storage, 0, scratch, NULL, lo, n, p->keys[i], &w->context);
    if (w->from)
        tn_operand_write(&operand, lo, n, w->from + place);
    tn_operand_read(&operand, lo, n, w->to + place);
}

static void pass_all(tn_trainer *t, int32_t stored, const void *from, void *to)
{
    const tn_parameters *all = tn_graph_parameters(t->graph);
    int64_t update = t->chain ? *tn_chain_update(t->chain) : 0;
    passing w = {t, all, {sizeof(tn_context), 0, t->attempt, update, 0, &t->services}, stored, from, to};
    tn_pool_run(t->pool, pass_chunk, &w, t->precision.chunk_at[all->count]);
}

const void *tn_precision_show(tn_trainer *t, const void *view)
{
    tn_precision *p = &t->precision;
    void *own = tn_graph_parameters(t->graph)->p;
    if (!p->seen)
        return view;
    if (p->stored && !view) {
        pass_all(t, 1, NULL, own);
        return NULL;
    }
    pass_all(t, 0, view ? view : own, p->seen);
    return p->seen;
}

void tn_precision_store(tn_trainer *t)
{
    void *own = tn_graph_parameters(t->graph)->p;
    if (t->precision.stored)
        pass_all(t, 1, own, own);
}

/* ---- the loss scale ---- */

int32_t tn_precision_scale(const tn_trainer *t, double *ret, tn_error *err)
{
    const tn_precision *p = &t->precision;
    const tn_instance *instance = t->e->loss_scale;
    int exponent;
    double scale = instance ? p->scale.scale(instance->hyper, p->scale_slots) : 1;
    if (!isfinite(scale) || frexp(scale, &exponent) != 0.5)
        return tn_error_set(err, TN_E_PLUGIN,
                            "%s: %s gives the loss scale %.17g, needed a finite power of two above 0; correct the "
                            "plugin",
                            instance->path, instance->info->name, scale);
    *ret = scale;
    return TN_OK;
}

void tn_precision_observe(tn_trainer *t, int32_t overflow)
{
    if (t->e->loss_scale)
        t->precision.scale.observe(t->e->loss_scale->hyper, overflow, t->precision.scale_slots);
}
