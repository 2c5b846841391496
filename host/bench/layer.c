/* SPDX-License-Identifier: Apache-2.0
 *
 * layer.c: every layer of the registry by itself, forward and backward under TN_TRAIN, cut into pieces over the threads
 * as a graph cuts them (call.c), against a stream of the bytes that it has to move: what it is lent and reads, once,
 * and what it leaves, once. Layers that compute much, such as those with matrix products, are far from theirs.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/bench/internal.h"
#include "host/experiment/instance.h"

#include <tenon/layer.h>

#define PORTS   8
#define PIECE   8192 /* elements of a piece, as in a graph */
#define PIECES  64   /* at most, of a layer on rows */
#define COLUMNS 1024
#define FLAGS   (TN_TRAIN | TN_WANT_DX | TN_WANT_DW)

typedef struct held {
    tn_tensor view;
    int64_t shape[TN_MAX_DIMS], strides[TN_MAX_DIMS];
    int64_t bytes;
} held;

typedef struct subject {
    tn_bench_run *run;
    tn_instance *instance;
    tn_layer layer;
    tn_compute compute;
    tn_context context;
    const char *axis;
    held x[2], dx[2], y, dy, parameter[PORTS], gradient[PORTS], buffer[PORTS], saved[PORTS];
    int32_t inputs, parameters, buffers, saveds;
    int64_t workspace_bytes;
    char *workspace;                                  /* of each thread */
    char *partials;                                   /* of each piece */
    int64_t partial_at[PORTS], partial_bytes;         /* of one piece */
    int64_t total, extent, pieces;                    /* of the axis */
    int32_t backward;                                 /* of the call at hand */
    tn_tensor lent_x[2], lent_dx[2], lent_y, lent_dy; /* likewise */
    tn_error *err;
} subject;

/* ---- tensors ---- */

static int64_t elements_of(const held *t)
{
    int64_t n = 1;
    for (int32_t i = 0; i < t->view.ndim; i++)
        n *= t->shape[i];
    return n;
}

/* Numbers in (-1, 1) of f32; other types get zeros. */
static int32_t hold(held *t, tn_dtype dtype, int32_t ndim, const int64_t *shape, tn_error *err)
{
    int64_t n = 1;
    if (ndim < 0 || ndim > TN_MAX_DIMS)
        return tn_error_set(err, TN_E_PLUGIN, "a tensor of %d axes, needed 0 to %d", ndim, TN_MAX_DIMS);
    for (int32_t i = ndim - 1; i >= 0; i--) {
        t->shape[i] = shape[i];
        t->strides[i] = n;
        n *= shape[i];
    }
    t->bytes = n * dtype.bits / 8;
    t->view =
        (tn_tensor){.device = {TN_CPU, 0}, .ndim = ndim, .dtype = dtype, .shape = t->shape, .strides = t->strides};
    if (n < 0 || !(t->view.data = tn_alloc_aligned((size_t)t->bytes + 64)))
        return tn_bench_no_memory(err);
    for (int64_t i = 0; i < n && dtype.code == TN_FLOAT && dtype.bits == 32; i++)
        ((float *)t->view.data)[i] = (float)((int32_t)((uint64_t)i * 2654435761u + 12345u)) * 0x1p-31f;
    return TN_OK;
}

static const tn_dtype f32 = {TN_FLOAT, 32, 1};

/* ---- the planner ---- */

static int32_t plan_output(void *host, int32_t ndim, const int64_t *shape)
{
    subject *s = host;
    int32_t status = s->y.view.data ? tn_error_set(s->err, TN_E_PLUGIN, "it plans two outputs")
                                    : hold(&s->y, f32, ndim, shape, s->err);
    return status ? status : hold(&s->dy, f32, ndim, shape, s->err);
}

static int32_t too_many(subject *s)
{
    return tn_error_set(s->err, TN_E_PLUGIN, "it plans more than %d tensors", PORTS);
}

static int32_t plan_parameter(void *host, const tn_weight *weight)
{
    subject *s = host;
    int32_t i = s->parameters;
    if (i == PORTS)
        return too_many(s);
    int32_t status = hold(&s->parameter[i], f32, weight->ndim, weight->shape, s->err);
    if (!status)
        status = hold(&s->gradient[i], f32, weight->ndim, weight->shape, s->err);
    s->parameters++;
    s->partial_at[i] = s->partial_bytes;
    s->partial_bytes += (s->gradient[i].bytes + 63) / 64 * 64;
    return status;
}

static int32_t plan_buffer(void *host, const char *name, int32_t ndim, const int64_t *shape, double initial)
{
    subject *s = host;
    (void)name;
    if (s->buffers == PORTS)
        return too_many(s);
    held *t = &s->buffer[s->buffers++];
    int32_t status = hold(t, f32, ndim, shape, s->err);
    for (int64_t i = 0, n = status ? 0 : elements_of(t); i < n; i++)
        ((float *)t->view.data)[i] = (float)initial;
    return status;
}

static int32_t plan_saved(void *host, tn_dtype dtype, int32_t ndim, const int64_t *shape)
{
    subject *s = host;
    return s->saveds == PORTS ? too_many(s)
                              : hold(&s->saved[s->saveds++], dtype.bits ? dtype : f32, ndim, shape, s->err);
}

static int32_t plan_workspace(void *host, int64_t bytes)
{
    subject *s = host;
    s->workspace_bytes = bytes > s->workspace_bytes ? (bytes + 63) / 64 * 64 : s->workspace_bytes;
    return TN_OK;
}

/* ---- pieces ---- */

static void set_pieces(subject *s)
{
    int64_t all = elements_of(&s->y), rows = s->y.view.ndim ? s->y.shape[0] : 1;
    int64_t columns = s->y.view.ndim ? s->y.shape[s->y.view.ndim - 1] : 1;
    s->total = s->extent = rows;
    if (!strcmp(s->axis, "rows")) {
        int64_t least = ceil_div(PIECE, ceil_div(all, rows)), most = ceil_div(rows, PIECES);
        s->extent = least > most ? least : most;
    } else if (!strcmp(s->axis, "columns")) {
        s->total = columns;
        s->extent = ceil_div(ceil_div(PIECE, ceil_div(all, columns)), 16) * 16;
    } else if (!strcmp(s->axis, "elements")) {
        s->total = all;
        s->extent = PIECE;
    }
    s->pieces = ceil_div(s->total, s->extent);
}

static int by_pieces(const subject *s) { return s->backward && s->parameters && !strcmp(s->axis, "rows"); }

static void one_piece(void *arg, int64_t index, int32_t thread)
{
    subject *s = arg;
    tn_tensor parameter[PORTS], gradient[PORTS], buffer[PORTS], saved[PORTS];
    for (int i = 0; i < PORTS; i++) {
        parameter[i] = s->parameter[i].view;
        gradient[i] = s->gradient[i].view;
        buffer[i] = s->buffer[i].view;
        saved[i] = s->saved[i].view;
        if (by_pieces(s) && i < s->parameters)
            gradient[i].data = s->partials + index * s->partial_bytes + s->partial_at[i];
    }
    const tn_layer_call call = {.struct_size = sizeof call,
                                .flags = FLAGS,
                                .hyper = s->instance->hyper,
                                .context = &s->context,
                                .compute = !strcmp(s->axis, "whole") ? &s->compute : NULL,
                                .lo = index * s->extent,
                                .n =
                                    s->total - index * s->extent < s->extent ? s->total - index * s->extent : s->extent,
                                .piece = (int32_t)index,
                                .pieces = (int32_t)s->pieces,
                                .x = s->lent_x,
                                .y = &s->lent_y,
                                .dy = &s->lent_dy,
                                .dx = s->lent_dx,
                                .parameter = parameter,
                                .gradient = gradient,
                                .buffer = buffer,
                                .saved = saved,
                                .workspace = s->workspace + thread * s->workspace_bytes};
    (s->backward ? s->layer.backward : s->layer.forward)(&call);
}

/* Partial gradients are added in the order of the pieces. */
static void add_partials(const subject *s)
{
    for (int32_t k = 0; k < s->parameters; k++) {
        float *restrict to = s->gradient[k].view.data;
        for (int64_t piece = 0; piece < s->pieces; piece++) {
            const float *restrict from = (const float *)(s->partials + piece * s->partial_bytes + s->partial_at[k]);
            for (int64_t i = 0, n = elements_of(&s->gradient[k]); i < n; i++)
                to[i] = piece ? to[i] + from[i] : from[i];
        }
    }
}

static int keeps(const subject *s, const char *what)
{
    const char *kept = tn_fact_text(s->instance->info->facts, "keeps", "none");
    return !strcmp(kept, what) || !strcmp(kept, "both");
}

static void call(subject *s, int32_t backward)
{
    s->backward = backward;
    for (int32_t i = 0; i < s->inputs; i++) {
        s->lent_x[i] = s->x[i].view;
        s->lent_dx[i] = s->dx[i].view;
        if (backward && !keeps(s, "input"))
            s->lent_x[i].data = NULL;
    }
    s->lent_y = s->y.view;
    s->lent_dy = s->dy.view;
    if (backward && !keeps(s, "output"))
        s->lent_y.data = NULL;
    tn_pool_run(strcmp(s->axis, "whole") ? s->run->pool : NULL, one_piece, s, s->pieces);
    if (by_pieces(s))
        add_partials(s);
}

static void forward(void *arg) { call(arg, 0); }
static void backward(void *arg) { call(arg, 1); }

/* ---- bytes ---- */

static int64_t bytes_of(const held *list, int32_t count)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < count; i++)
        bytes += list[i].bytes;
    return bytes;
}

/* Saved tensors count as written by forward and read by backward; buffers are small. */
static void count_bytes(const subject *s, int32_t back, int64_t *ret_read, int64_t *ret_written)
{
    int64_t x = bytes_of(s->x, s->inputs), parameter = bytes_of(s->parameter, s->parameters);
    int64_t saved = bytes_of(s->saved, s->saveds);
    *ret_read = x + parameter;
    *ret_written = s->y.bytes + saved;
    if (back) {
        *ret_read =
            s->dy.bytes + saved + parameter + (keeps(s, "input") ? x : 0) + (keeps(s, "output") ? s->y.bytes : 0);
        *ret_written = x + parameter;
    }
}

static int64_t round_to(double value, int64_t least, int64_t most)
{
    int64_t whole = (int64_t)(value + 0.5);
    return whole < least ? least : whole > most ? most : whole;
}

/* A stream of as many bytes, with as many arrays read for one written, or written for one read, as come nearest. */
static int32_t make_stream(const subject *s, int64_t read, int64_t written, tn_stream *ret, char **ret_block,
                           tn_error *err)
{
    *ret = (tn_stream){.reads = (int32_t)round_to((double)read / (double)written, 1, 4),
                       .writes = (int32_t)round_to((double)written / (double)read, 1, 3),
                       .pool = s->run->pool};
    int32_t arrays = ret->reads + ret->writes;
    ret->bytes = ceil_div(ceil_div(read + written, arrays), 256) * 256;
    int64_t apart = ret->bytes + 17 * 64;
    if (!(*ret_block = tn_alloc_aligned((size_t)(apart * arrays))))
        return tn_bench_no_memory(err);
    for (int32_t i = 0; i < arrays; i++)
        ret->array[i] = *ret_block + i * apart;
    return TN_OK;
}

static int32_t measure(subject *s, const char *group, int32_t back, tn_error *err)
{
    int64_t read, written;
    tn_stream stream;
    char *block = NULL, name[96], limit[48];
    count_bytes(s, back, &read, &written);
    if (read <= 0 || written <= 0)
        return TN_OK;
    int32_t status = make_stream(s, read, written, &stream, &block, err);
    snprintf(name, sizeof name, "%s %s", s->instance->entry->name, back ? "backward" : "forward");
    snprintf(limit, sizeof limit, "%d read, %d written", stream.reads, stream.writes);
    const tn_bench_side sides[] = {{name, back ? backward : forward, s, (double)(read + written), 1},
                                   {limit, tn_stream_run, &stream, tn_stream_work(&stream), -1}};
    if (!status)
        status = tn_bench_measure(s->run, group, sides, 2, err);
    tn_free(block);
    return status;
}

/* ---- one layer ---- */

static void drop(held *list, int32_t count)
{
    for (int32_t i = 0; i < count; i++) {
        tn_free(list[i].view.data);
        list[i] = (held){.bytes = 0};
    }
}

static void clear(subject *s)
{
    drop(s->x, 2);
    drop(s->dx, 2);
    drop(&s->y, 1);
    drop(&s->dy, 1);
    drop(s->parameter, PORTS);
    drop(s->gradient, PORTS);
    drop(s->buffer, PORTS);
    drop(s->saved, PORTS);
    tn_free(s->workspace);
    tn_free(s->partials);
    s->workspace = s->partials = NULL;
    s->parameters = s->buffers = s->saveds = 0;
    s->workspace_bytes = s->partial_bytes = 0;
}

/* Plans the layer for inputs of a shape. */
static int32_t plan(subject *s, int32_t inputs, int32_t ndim, const int64_t *shape, tn_error *err)
{
    tn_tensor x[2];
    int32_t status = TN_OK;
    s->inputs = inputs;
    s->err = err;
    for (int32_t i = 0; i < inputs && !status; i++) {
        status = hold(&s->x[i], f32, ndim, shape, err);
        if (!status)
            status = hold(&s->dx[i], f32, ndim, shape, err);
        x[i] = s->x[i].view;
        x[i].data = NULL;
    }
    const tn_layer_planner planner = {sizeof planner, 0,           s,          plan_output,
                                      plan_parameter, plan_buffer, plan_saved, plan_workspace};
    if (!status)
        status = s->layer.infer(s->instance->hyper, x, inputs, &planner, err);
    if (!status && !s->y.view.data)
        status = tn_error_set(err, TN_E_PLUGIN, "it plans no output");
    if (!status && s->layer.check)
        status = s->layer.check(s->instance->hyper, x, FLAGS, err);
    if (status)
        return status;
    set_pieces(s);
    s->workspace = tn_alloc_aligned((size_t)(s->workspace_bytes * s->run->threads) + 64);
    s->partials = tn_alloc_aligned((size_t)(!strcmp(s->axis, "rows") ? s->partial_bytes * s->pieces : 0) + 64);
    return s->workspace && s->partials ? TN_OK : tn_bench_no_memory(err);
}

/* The first shape, and number of inputs, that the layer accepts; *err is of the first. */
static int32_t plan_some(subject *s, int64_t elements, tn_error *err)
{
    int64_t flat[] = {elements / COLUMNS ? elements / COLUMNS : 1, elements < COLUMNS ? elements : COLUMNS};
    int64_t side = elements >= 1 << 20 ? 32 : 4, images[] = {elements / (64 * side * side), 64, side, side};
    images[0] = images[0] ? images[0] : 1;
    int32_t first = TN_OK;
    for (int32_t attempt = 0; attempt < 4; attempt++) {
        tn_error refused = {0};
        int32_t status =
            attempt % 2 ? plan(s, 1 + attempt / 2, 4, images, &refused) : plan(s, 1 + attempt / 2, 2, flat, &refused);
        if (!status || status == TN_E_MEMORY) {
            *err = refused;
            return status;
        }
        clear(s);
        if (attempt == 0) {
            first = status;
            *err = refused;
        }
    }
    return first;
}

static int32_t bench_layer(subject *s, const tn_entry_info *entry, int64_t elements, tn_error *err)
{
    tn_error refused = {0};
    tn_registry *registry = s->run->options->registry;
    int32_t status =
        tn_instance_create(registry, entry->kind, entry->name, 32, entry->name, NULL, 0, &s->instance, &refused);
    s->layer = (tn_layer){.struct_size = sizeof s->layer};
    if (!status)
        status = tn_registry_load(registry, s->instance->entry, &s->layer, sizeof s->layer, &refused);
    if (!status) {
        s->axis = tn_fact_text(s->instance->info->facts, "axis", "whole");
        status = plan_some(s, elements, &refused);
    }
    if (status == TN_E_MEMORY)
        return tn_bench_no_memory(err);
    if (status)
        return tn_bench_skip(s->run, entry->kind, entry->name, refused.msg, err);
    forward(s); /* what backward reads */
    status = measure(s, entry->kind, 0, err);
    return status ? status : measure(s, entry->kind, 1, err);
}

static int is_layer(const tn_entry_info *entry)
{
    return entry->state == TN_FOUND && entry->real == 32 && !strcmp(entry->device, "cpu") &&
           !strncmp(entry->interface, "tenon.layer/", 12);
}

int32_t tn_bench_layer(tn_bench_run *run, tn_error *err)
{
    int64_t elements = tn_bench_fit(run, (int64_t)16 << 20, 12);
    tn_backend backend;
    tn_compute_host host;
    int32_t status = tn_bench_backend(run, &backend, &host, err);
    for (size_t i = 0; i < tn_registry_count(run->options->registry) && !status; i++) {
        const tn_entry_info *entry = tn_registry_at(run->options->registry, i);
        subject s = {.run = run, .compute = tn_compute_open(&host), .context = {.struct_size = sizeof s.context}};
        if (!is_layer(entry))
            continue;
        status = bench_layer(&s, entry, elements, err);
        clear(&s);
        tn_instance_free(s.instance);
        if (!status)
            status = tn_compute_take_failure(&host, err);
    }
    return status;
}
