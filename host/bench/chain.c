/* SPDX-License-Identifier: Apache-2.0
 *
 * chain.c: a chain over tensors of its own, and streams over the pages of both.
 */
#include <stdio.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/bench/internal.h"
#include "host/experiment/links.h"
#include "host/update/chain.h"

#define COLUMNS    1024 /* of a tensor with a whole number of rows of these */
#define PASSES_MAX 8

struct tn_bench_tensors {
    tn_parameters parameters;
    char (*names)[32];
    void **p_of, **g_of; /* scattered */
    int64_t n;           /* elements of each */
    float *block;        /* likewise, what they point into */
};

struct tn_bench_chain {
    tn_instance **links;
    size_t link_count;
    tn_chain *chain;
    int64_t attempt;
    int32_t status;
    tn_error err;
    double elements;
    tn_stream passes[PASSES_MAX];
    int32_t pass_count;
    char name[64];
};

/* ---- tensors ---- */

static void name_tensor(tn_bench_tensors *t, int64_t i)
{
    tn_parameter *parameter = &t->parameters.list[i];
    int matrix = t->n % COLUMNS == 0;
    snprintf(t->names[i], sizeof *t->names, "tensor.%lld", (long long)i);
    *parameter = (tn_parameter){.struct_size = sizeof *parameter,
                                .role = TN_ROLE_WEIGHT,
                                .name = t->names[i],
                                .layer = t->names[i],
                                .ndim = matrix ? 2 : 1,
                                .n = t->n,
                                .fan_in_axis = matrix ? 1 : -1,
                                .fan_out_axis = matrix ? 0 : -1,
                                .tied = -1,
                                .tensor_axis = -1,
                                .replicas = 1,
                                .dtype = {TN_FLOAT, 32, 1}};
    parameter->shape[0] = matrix ? t->n / COLUMNS : t->n;
    parameter->shape[1] = matrix ? COLUMNS : 0;
    t->parameters.present[i] = 1;
    t->parameters.at[i] = t->parameters.elements;
    t->parameters.elements += (t->n + TN_ALIGN_ELEMENTS - 1) / TN_ALIGN_ELEMENTS * TN_ALIGN_ELEMENTS;
}

/* Numbers in [-1, 1), the same in every run. */
static void fill(float *to, int64_t n, uint64_t salt)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t x = ((uint64_t)i + salt) * 0x9E3779B97F4A7C15u;
        x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9u;
        to[i] = (float)((int32_t)(x >> 32)) * 0x1p-31f;
    }
}

static int32_t make_arenas(tn_bench_tensors *t, tn_error *err)
{
    size_t bytes = (size_t)t->parameters.elements * sizeof(float);
    t->parameters.p = tn_alloc_aligned(bytes);
    t->parameters.g = tn_alloc_aligned(bytes);
    if (!t->parameters.p || !t->parameters.g)
        return tn_bench_no_memory(err);
    fill(t->parameters.p, t->parameters.elements, 1);
    fill(t->parameters.g, t->parameters.elements, 1 << 20);
    return TN_OK;
}

/* Each array begins where the one before ends, the first off any line. */
static int32_t make_arrays(tn_bench_tensors *t, tn_error *err)
{
    int64_t count = t->parameters.count;
    t->p_of = tn_alloc((size_t)count, sizeof *t->p_of);
    t->g_of = tn_alloc((size_t)count, sizeof *t->g_of);
    t->block = tn_alloc_aligned((size_t)(2 * count * t->n + 1) * sizeof *t->block);
    if (!t->p_of || !t->g_of || !t->block)
        return tn_bench_no_memory(err);
    fill(t->block, 2 * count * t->n + 1, 1);
    for (int64_t i = 0; i < count; i++) {
        t->p_of[i] = t->block + 1 + i * t->n;
        t->g_of[i] = t->block + 1 + (count + i) * t->n;
    }
    t->parameters.p_of = t->p_of;
    t->parameters.g_of = t->g_of;
    return TN_OK;
}

int32_t tn_bench_tensors_create(int64_t count, int64_t elements, int scattered, tn_bench_tensors **ret, tn_error *err)
{
    size_t many = (size_t)count;
    tn_bench_tensors *t = tn_alloc(1, sizeof *t);
    if (!t)
        return tn_bench_no_memory(err);
    t->n = elements;
    t->names = tn_alloc(many, sizeof *t->names);
    t->parameters = (tn_parameters){.real = 32,
                                    .count = count,
                                    .list = tn_alloc(many, sizeof *t->parameters.list),
                                    .at = tn_alloc(many, sizeof *t->parameters.at),
                                    .present = tn_alloc(many, 1)};
    int32_t status = TN_OK;
    if (!t->names || !t->parameters.list || !t->parameters.at || !t->parameters.present)
        status = tn_bench_no_memory(err);
    for (int64_t i = 0; i < count && !status; i++)
        name_tensor(t, i);
    if (!status)
        status = scattered ? make_arrays(t, err) : make_arenas(t, err);
    if (status)
        tn_bench_tensors_free(t);
    else
        *ret = t;
    return status;
}

void tn_bench_tensors_free(tn_bench_tensors *t)
{
    if (!t)
        return;
    void *const blocks[] = {t->names,        t->parameters.list, t->parameters.at, t->parameters.present,
                            t->parameters.p, t->parameters.g,    t->p_of,          t->g_of,
                            t->block};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        tn_free(blocks[i]);
    tn_free(t);
}

double tn_bench_tensors_elements(const tn_bench_tensors *t) { return (double)t->n * (double)t->parameters.count; }

/* ---- streams ---- */

/* The chain's arrays in the order p, slots, g; all are laid out as the parameters are. Returns how many. */
static int32_t list_arrays(const tn_bench_tensors *t, const tn_chain *chain, char **ret)
{
    int32_t count = 0;
    ret[count++] = t->parameters.p;
    for (size_t i = 0; i < tn_chain_slot_count(chain) && count < TN_STREAM_ARRAYS - 1; i++) {
        tn_chain_slot slot;
        tn_chain_slot_at(chain, i, &slot);
        if (slot.parameter == 0 && strcmp(slot.shape, "like") == 0)
            ret[count++] = slot.data;
    }
    ret[count++] = t->parameters.g;
    return count;
}

/* Arrays read by the pass over memory that writes: all of them; then by passes that only read, the gradient first. */
static void make_passes(tn_bench_chain *c, const tn_bench_tensors *t, tn_pool *pool)
{
    char *array[TN_STREAM_ARRAYS];
    int32_t count = list_arrays(t, c->chain, array);
    int64_t bytes = t->parameters.elements * (int64_t)sizeof(float) / 256 * 256;
    double arrays = tn_bench_chain_work(c) / (c->elements * sizeof(float));
    int32_t left = (int32_t)(arrays + 0.5) - (2 * (count - 1) + 1);
    int32_t reads = count + (left > 0 ? left : 0);
    for (; left > 0 && c->pass_count < PASSES_MAX - 1; left -= count) {
        tn_stream *pass = &c->passes[c->pass_count++];
        *pass = (tn_stream){.reads = left < count ? left : count, .bytes = bytes, .pool = pool};
        for (int32_t j = 0; j < pass->reads; j++)
            pass->array[j] = array[j ? j - 1 : count - 1];
    }
    tn_stream *last = &c->passes[c->pass_count++];
    *last = (tn_stream){.both = count - 1, .reads = 1, .bytes = bytes, .pool = pool};
    memcpy(last->array, array, (size_t)count * sizeof *array);
    snprintf(c->name, sizeof c->name, "%d reads, %d write%s", reads, count - 1, count > 2 ? "s" : "");
}

double tn_bench_chain_work(const tn_bench_chain *c) { return (double)tn_chain_bytes_moved(c->chain); }

double tn_bench_chain_stream_work(const tn_bench_chain *c)
{
    double work = 0;
    for (int32_t i = 0; i < c->pass_count; i++)
        work += tn_stream_work(&c->passes[i]);
    return work;
}

void tn_bench_chain_stream(void *arg)
{
    tn_bench_chain *c = arg;
    for (int32_t i = 0; i < c->pass_count; i++)
        tn_stream_run(&c->passes[i]);
}

const char *tn_bench_chain_stream_name(const tn_bench_chain *c) { return c->name; }

/* ---- the chain ---- */

/* "clip-norm,adamw" is a list of YAML but for its brackets. */
static int32_t parse(const tn_bench_run *run, const char *links, tn_bench_chain *c, tn_error *err)
{
    char *list = strchr("[{", *links) && *links ? tn_strdup(links) : tn_format("[%s]", links);
    if (!list)
        return tn_bench_no_memory(err);
    int32_t status = tn_links_parse(run->options->registry, list, 32, &c->links, &c->link_count, err);
    tn_free(list);
    return status;
}

int32_t tn_bench_chain_open(const tn_bench_run *run, const tn_bench_tensors *tensors, const char *links,
                            tn_bench_chain **ret, tn_error *err)
{
    static const tn_services services = {.struct_size = sizeof(tn_services)};
    tn_bench_chain *c = tn_alloc(1, sizeof *c);
    if (!c)
        return tn_bench_no_memory(err);
    c->elements = tn_bench_tensors_elements(tensors);
    int32_t status = parse(run, links, c, err);
    const tn_chain_options options = {.registry = run->options->registry,
                                      .links = c->links,
                                      .link_count = c->link_count,
                                      .parameters = &tensors->parameters,
                                      .pool = run->pool,
                                      .services = &services,
                                      .seed = 1};
    if (!status)
        status = tn_chain_create(&options, &c->chain, err);
    if (status) {
        tn_bench_chain_free(c);
        return status;
    }
    if (!tensors->block)
        make_passes(c, tensors, run->pool);
    *ret = c;
    return TN_OK;
}

void tn_bench_chain_free(tn_bench_chain *c)
{
    if (!c)
        return;
    tn_chain_destroy(c->chain);
    tn_links_free(c->links, c->link_count);
    tn_free(c);
}

void tn_bench_chain_step(void *arg)
{
    tn_bench_chain *c = arg;
    tn_step_result result;
    tn_error err = {0};
    /* Always the same way, rules that learn their step size would take ever larger ones. */
    double scale = c->attempt % 2 ? -1 : 1;
    int32_t status = tn_chain_step(c->chain, &(tn_step){.scale = scale, .attempt = c->attempt++}, &result, &err);
    if (!status && !result.committed)
        status = tn_error_set(&err, TN_E_NUMERIC, "a step was skipped: something became not finite");
    if (status && !c->status) {
        c->status = status;
        c->err = err;
    }
}

int32_t tn_bench_chain_status(const tn_bench_chain *c, tn_error *err)
{
    if (c->status)
        *err = c->err;
    return c->status;
}
