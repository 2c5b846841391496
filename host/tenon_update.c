/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon_update.c: the part of the C API that updates tensors of the caller: a chain over arrays that lie anywhere.
 */
#include <fenv.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <tenon/failure.h>

#include "host/base/failure.h"
#include "host/base/memory.h"
#include "host/base/number.h"
#include "host/base/take.h"
#include "host/base/text.h"
#include "host/experiment/links.h"
#include "host/base/compute.h"
#include "host/handle.h"
#include "host/update/operand.h"

#define ELEMENTS_MAX ((int64_t)1 << 40) /* of a tensor */
#define CLOCK_MAX    ((int64_t)1 << 53) /* counts are exact in f64 up to here */

/* What is not contiguous goes through memory of our own. */
typedef struct tensor {
    char *name, *layer;
    char *data;
    int64_t *strides; /* NULL: contiguous */
    char *p, *g;      /* contiguous copies; g is made when it is first needed */
} tensor;

/* Where a tensor begins. */
typedef struct span {
    const char *data;
    size_t tensor;
} span;

struct tenon_update {
    tn_registry *registry;
    tn_log log;
    tn_services services;
    tn_failures failures;
    tensor *tensors;
    size_t count;
    size_t p_size, g_size; /* bytes of an element */
    tn_parameters parameters;
    void **p_of, **g_of;
    tn_instance **links;
    size_t link_count;
    tn_instance *codecs[3]; /* of p, g and state; NULL: the real type */
    tn_codec codec_tables[3];
    tn_codec_use uses[3];
    tn_instance *backend_instance;
    tn_backend backend;
    tn_compute_host compute_host;
    tn_pool *pool;
    tn_chain *chain;
    int64_t attempts;
    span *spans; /* [count] scratch */
};

static int32_t no_memory(tn_error *err) { return tn_error_set(err, TN_E_MEMORY, "no memory for an update"); }

/* ---- layouts ---- */

/* Extents of one element may have any stride. */
static int is_contiguous(const tn_parameter *parameter, const int64_t *strides)
{
    int64_t expected = 1;
    for (int32_t j = parameter->ndim - 1; j >= 0 && strides; j--) {
        if (parameter->shape[j] != 1 && strides[j] != expected)
            return 0;
        expected *= parameter->shape[j];
    }
    return 1;
}

static void move_element(char *to, const char *from, size_t size)
{
    if (size == 4)
        memcpy(to, from, 4);
    else if (size == 8)
        memcpy(to, from, 8);
    else
        memcpy(to, from, 2);
}

/* Between a contiguous array and one with strides: gathers, or puts back. */
static void copy_strided(const tn_parameter *parameter, const int64_t *strides, size_t size, char *contiguous,
                         char *strided, int back)
{
    int64_t index[TN_MAX_DIMS] = {0}, at = 0;
    for (int64_t i = 0; i < parameter->n; i++) {
        char *a = contiguous + (size_t)i * size, *b = strided + at * (int64_t)size;
        move_element(back ? b : a, back ? a : b, size);
        for (int32_t j = parameter->ndim - 1; j >= 0; j--) {
            at += strides[j];
            if (++index[j] < parameter->shape[j])
                break;
            at -= strides[j] * parameter->shape[j];
            index[j] = 0;
        }
    }
}

static int32_t check_strides(const tensor *t, const tn_parameter *parameter, const int64_t *strides, tn_error *err)
{
    for (int32_t j = 0; j < parameter->ndim; j++)
        if (strides[j] < 0)
            return tn_error_set(err, TN_E_INVALID,
                                "tensor '%s': the stride of axis %d is %" PRId64 ", needed one of at least 0", t->name,
                                j, strides[j]);
    return TN_OK;
}

static const char *end_of(const tenon_update *u, const span *s)
{
    return s->data + (size_t)u->parameters.list[s->tensor].n * u->p_size;
}

static int by_address(const void *a, const void *b)
{
    const span *x = a, *y = b;
    return (x->data > y->data) - (x->data < y->data);
}

/* A tensor that is there twice would be updated twice. Those with strides may lie within one another. p NULL: where
 * they were. */
static int32_t check_shared(const tenon_update *u, void *const *p, tn_error *err)
{
    size_t n = 0;
    const span *last = NULL; /* of those without strides the one that ends last */
    for (size_t i = 0; i < u->count; i++)
        if (u->parameters.list[i].n > 0)
            u->spans[n++] = (span){p ? p[i] : u->tensors[i].data, i};
    qsort(u->spans, n, sizeof *u->spans, by_address);
    for (size_t i = 0; i < n; i++) {
        const span *s = &u->spans[i], *other = i > 0 && s[-1].data == s->data ? s - 1 : NULL;
        int strided = u->tensors[s->tensor].strides != NULL;
        if (!other && !strided && last && end_of(u, last) > s->data)
            other = last;
        if (other)
            return tn_error_set(err, TN_E_INVALID,
                                "tensors '%s' and '%s' share memory, which would be updated twice; list a tied tensor "
                                "once",
                                u->tensors[other->tensor].name, u->tensors[s->tensor].name);
        last = !strided && (!last || end_of(u, s) > end_of(u, last)) ? s : last;
    }
    return TN_OK;
}

/* ---- opening: tensors ---- */

static int32_t take_shape(tensor *t, tn_parameter *parameter, const tenon_tensor *from, tn_error *err)
{
    int64_t elements = 1; /* of the extents that are not 0: strides and rows are products of them */
    if (from->ndim < 0 || from->ndim > TN_MAX_DIMS || (from->ndim && !from->shape))
        return tn_error_set(err, TN_E_INVALID, "tensor '%s' has %d axes%s, needed 0 to %d and a shape", t->name,
                            from->ndim, from->shape ? "" : " without a shape", TN_MAX_DIMS);
    parameter->ndim = from->ndim;
    parameter->n = 1;
    for (int32_t j = 0; j < from->ndim; j++) {
        int64_t extent = from->shape[j] > 0 ? from->shape[j] : 1;
        if (from->shape[j] < 0 || extent > ELEMENTS_MAX / elements)
            return tn_error_set(err, TN_E_INVALID,
                                "tensor '%s': the extent of axis %d is %" PRId64
                                ", needed one of at least 0 and at most 2^40 elements in all",
                                t->name, j, from->shape[j]);
        elements *= extent;
        parameter->shape[j] = from->shape[j];
        parameter->n *= from->shape[j];
    }
    return TN_OK;
}

static int32_t take_strides(const tenon_update *u, tensor *t, const tn_parameter *parameter, const tenon_tensor *from,
                            tn_error *err)
{
    size_t axes = (size_t)parameter->ndim;
    int32_t status = from->strides ? check_strides(t, parameter, from->strides, err) : TN_OK;
    if (status || parameter->n == 0 || is_contiguous(parameter, from->strides))
        return status;
    t->strides = tn_alloc(axes, sizeof *t->strides);
    t->p = tn_alloc_aligned((size_t)parameter->n * u->p_size);
    if (!t->strides || !t->p)
        return no_memory(err);
    memcpy(t->strides, from->strides, axes * sizeof *t->strides);
    return TN_OK;
}

static int32_t take_tensor(tenon_update *u, size_t i, const tenon_tensor *from, tn_error *err)
{
    tensor *t = &u->tensors[i];
    tn_parameter *parameter = &u->parameters.list[i];
    if (!from->name || !*from->name)
        return tn_error_set(err, TN_E_INVALID, "tensor %zu has no name, needed one that no other has", i);
    const char *dot = strrchr(from->name, '.');
    t->name = tn_strdup(from->name);
    t->layer = tn_strndup(from->name, dot ? (size_t)(dot - from->name) : strlen(from->name));
    t->data = from->data;
    if (!t->name || !t->layer)
        return no_memory(err);
    *parameter = (tn_parameter){.struct_size = sizeof *parameter,
                                .role = from->role,
                                .name = t->name,
                                .layer = t->layer,
                                .fan_in_axis = from->ndim >= 2 ? 1 : -1,
                                .fan_out_axis = from->ndim >= 2 ? 0 : -1,
                                .tied = -1,
                                .tensor_axis = -1,
                                .replicas = 1,
                                .dtype = from->dtype};
    int32_t status = take_shape(t, parameter, from, err);
    if (!status && parameter->n > 0 && !t->data)
        status = tn_error_set(err, TN_E_INVALID, "tensor '%s' has no data, needed where its elements are", t->name);
    return status ? status : take_strides(u, t, parameter, from, err);
}

static int same_dtype(tn_dtype a, tn_dtype b) { return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes; }

static const char *codec_of(tn_dtype dtype) { return dtype.code == TN_BFLOAT ? "bf16" : "fp16"; }

static int32_t check_dtype(const char *what, const char *name, tn_dtype dtype, tn_error *err)
{
    int known =
        dtype.lanes == 1 && ((dtype.code == TN_FLOAT && (dtype.bits == 16 || dtype.bits == 32 || dtype.bits == 64)) ||
                             (dtype.code == TN_BFLOAT && dtype.bits == 16));
    return known ? TN_OK
                 : tn_error_set(err, TN_E_INVALID,
                                "tensor '%s': %s has dtype code %d with %d bits and %d lanes, needed f16, bf16, f32 or "
                                "f64 of one lane",
                                name, what, dtype.code, dtype.bits, dtype.lanes);
}

/* What the first tensor has, all have. */
typedef struct dtypes {
    tn_dtype p, g;
} dtypes;

static int32_t check_dtypes(size_t i, const tenon_tensor *from, dtypes *all, tn_error *err)
{
    const dtypes own = {from->dtype, from->gradient_dtype.bits ? from->gradient_dtype : from->dtype};
    int32_t status = check_dtype("it", from->name, own.p, err);
    if (!status)
        status = check_dtype("its gradient", from->name, own.g, err);
    if (status)
        return status;
    if (i == 0)
        *all = own;
    if (!same_dtype(own.p, all->p) || !same_dtype(own.g, all->g))
        return tn_error_set(err, TN_E_UNSUPPORTED,
                            "tensor '%s' or its gradient has another dtype than the first one's, needed the same for "
                            "all; open one update for each dtype",
                            from->name);
    if (own.g.bits > 16 && own.g.bits != (own.p.bits == 64 ? 64 : 32))
        return tn_error_set(err, TN_E_UNSUPPORTED,
                            "tensor '%s' has %d bits and its gradient %d, needed as many, or a gradient of 16 bits, or "
                            "of 32 for a tensor of 16",
                            from->name, own.p.bits, own.g.bits);
    return TN_OK;
}

static int32_t take_tensors(tenon_update *u, const tenon_tensor *tensors, dtypes *ret, tn_error *err)
{
    int64_t end = 0;
    uint32_t stride = u->count ? tensors->struct_size : 0;
    for (size_t i = 0; i < u->count; i++) {
        tenon_tensor from;
        tn_take(&from, sizeof from, (const char *)tensors + i * stride);
        int32_t status = check_dtypes(i, &from, ret, err);
        u->p_size = ret->p.bits / 8;
        u->g_size = ret->g.bits / 8;
        if (!status)
            status = take_tensor(u, i, &from, err);
        if (status)
            return status;
        u->parameters.at[i] = end;
        end += (u->parameters.list[i].n + TN_ALIGN_ELEMENTS - 1) / TN_ALIGN_ELEMENTS * TN_ALIGN_ELEMENTS;
        u->p_of[i] = u->tensors[i].p ? u->tensors[i].p : u->tensors[i].data;
    }
    u->parameters.elements = end;
    u->parameters.real = ret->p.bits == 64 ? 64 : 32;
    return check_shared(u, NULL, err);
}

static int32_t make_lists(tenon_update *u, size_t count, tn_error *err)
{
    u->tensors = tn_alloc(count, sizeof *u->tensors);
    u->spans = tn_alloc(count, sizeof *u->spans);
    u->p_of = tn_alloc(count, sizeof *u->p_of);
    u->g_of = tn_alloc(count, sizeof *u->g_of);
    u->parameters = (tn_parameters){.count = (int64_t)count,
                                    .list = tn_alloc(count, sizeof *u->parameters.list),
                                    .at = tn_alloc(count, sizeof *u->parameters.at),
                                    .p_of = u->p_of,
                                    .g_of = u->g_of,
                                    .present = tn_alloc(count, 1)};
    u->count = u->tensors ? count : 0;
    return u->tensors && u->spans && u->p_of && u->g_of && u->parameters.list && u->parameters.at &&
                   u->parameters.present
               ? TN_OK
               : no_memory(err);
}

/* ---- opening: the chain ---- */

static int32_t open_codec(tenon_update *u, int which, const char *name, const char *path, const char *rounding,
                          tn_error *err)
{
    const tn_setting setting = {"rounding", rounding};
    int32_t status = tn_instance_create(u->registry, "codec", name, u->parameters.real, path, &setting,
                                        rounding != NULL, &u->codecs[which], err);
    return status ? status
                  : tn_codec_open(u->registry, u->codecs[which], &u->codec_tables[which], &u->uses[which], err);
}

static int32_t open_codecs(tenon_update *u, const dtypes *all, const tenon_update_options *options, tn_error *err)
{
    int32_t status = TN_OK;
    if (all->p.bits == 16)
        status = open_codec(u, 0, codec_of(all->p), "tensors", options->rounding, err);
    if (!status && all->g.bits == 16)
        status = open_codec(u, 1, codec_of(all->g), "gradients", NULL, err);
    if (!status && options->state)
        status = open_codec(u, 2, options->state, "state", NULL, err);
    return status;
}

static int32_t open_backend(tenon_update *u, const char *name, tn_error *err)
{
    if (!name)
        return TN_OK;
    int32_t status = tn_instance_create(u->registry, "backend", name, u->parameters.real, "backend", NULL, 0,
                                        &u->backend_instance, err);
    if (!status)
        status = tn_registry_load(u->registry, u->backend_instance->entry, &u->backend, sizeof u->backend, err);
    if (status)
        return status;
    tn_error_clear(err);
    status = u->backend.probe ? u->backend.probe(&u->services, err) : TN_OK;
    if (status)
        return tn_error_wrap(err, status, "backend %s", name);
    if (!u->backend.gemm || u->backend.device != TN_CPU)
        return tn_error_set(err, TN_E_UNSUPPORTED, "backend %s: needed one on the CPU that offers gemm", name);
    u->compute_host = (tn_compute_host){.backend = &u->backend, .pool = u->pool};
    return TN_OK;
}

static int32_t open_chain(tenon_update *u, const tenon_update_options *options, tn_error *err)
{
    const tn_chain_options chain = {.registry = u->registry,
                                    .links = u->links,
                                    .link_count = u->link_count,
                                    .parameters = &u->parameters,
                                    .pool = u->pool,
                                    .services = &u->services,
                                    .seed = options->seed,
                                    .check_finite = options->check_finite,
                                    .compute = u->backend_instance ? &u->compute_host : NULL,
                                    .p = u->uses[0],
                                    .g = u->uses[1],
                                    .state = u->uses[2]};
    return tn_chain_create(&chain, &u->chain, err);
}

static void gather_p(tenon_update *u)
{
    for (size_t i = 0; i < u->count; i++)
        if (u->tensors[i].strides)
            copy_strided(&u->parameters.list[i], u->tensors[i].strides, u->p_size, u->tensors[i].p, u->tensors[i].data,
                         0);
}

static int32_t open_all(tenon_update *u, const char *links, const tenon_tensor *tensors, size_t count,
                        const tenon_update_options *options, tn_error *err)
{
    dtypes all = {{TN_FLOAT, 32, 1}, {TN_FLOAT, 32, 1}};
    int32_t threads = options->threads ? options->threads : tn_default_threads();
    int32_t status = make_lists(u, count, err);
    if (!status)
        status = take_tensors(u, tensors, &all, err);
    if (!status)
        status = tn_links_parse(u->registry, links, u->parameters.real, &u->links, &u->link_count, err);
    if (!status)
        status = open_codecs(u, &all, options, err);
    if (!status)
        status = tn_pool_create(threads, &u->pool, err);
    if (!status)
        status = open_backend(u, options->backend, err);
    if (status)
        return status;
    gather_p(u); /* initial state may copy it */
    return open_chain(u, options, err);
}

static void log_line(void *host, int32_t level, const char *text)
{
    const tenon_update *u = host;
    tn_log_write(&u->log, level, "%s", text);
}

static void fail_service(void *host, int32_t code, const char *text)
{
    tn_failures_keep(&((tenon_update *)host)->failures, code, text);
}

static const void *interface_service(void *host, const char *id)
{
    static const tn_failure failure = {sizeof failure, 0, fail_service};
    (void)host;
    return strcmp(id, TN_FAILURE) == 0 ? &failure : NULL;
}

int32_t tenon_update_open(tenon *handle, const char *links, const tenon_tensor *tensors, size_t count,
                          const tenon_update_options *options, tenon_update **ret, tn_error *err)
{
    tenon_update_options taken = {.struct_size = sizeof taken};
    tenon_update *u = tn_alloc(1, sizeof *u);
    fenv_t own;
    if (!u)
        return no_memory(err);
    if (options)
        tn_take(&taken, sizeof taken, options);
    u->registry = handle->registry;
    u->log = handle->log;
    u->services = (tn_services){sizeof u->services, 0, u, log_line, interface_service};
    fegetenv(&own);
    fesetenv(FE_DFL_ENV);
    int32_t status = open_all(u, links, tensors, count, &taken, err);
    fesetenv(&own);
    if (status)
        tenon_update_close(u);
    else
        *ret = u;
    return status;
}

void tenon_update_close(tenon_update *u)
{
    if (!u)
        return;
    tn_chain_destroy(u->chain);
    tn_pool_destroy(u->pool);
    tn_links_free(u->links, u->link_count);
    for (int i = 0; i < 3; i++)
        tn_instance_free(u->codecs[i]);
    tn_instance_free(u->backend_instance);
    for (size_t i = 0; i < u->count; i++) {
        tn_free(u->tensors[i].name);
        tn_free(u->tensors[i].layer);
        tn_free(u->tensors[i].strides);
        tn_free(u->tensors[i].p);
        tn_free(u->tensors[i].g);
    }
    tn_free(u->tensors);
    tn_free(u->spans);
    tn_free(u->p_of);
    tn_free(u->g_of);
    tn_free(u->parameters.list);
    tn_free(u->parameters.at);
    tn_free(u->parameters.present);
    tn_free(u);
}

/* ---- a step ---- */

static int32_t place_p(tenon_update *u, void *const *p, tn_error *err)
{
    int changed = 0;
    for (size_t i = 0; p && i < u->count; i++) {
        if (!p[i] && u->parameters.list[i].n > 0)
            return tn_error_set(err, TN_E_INVALID, "tensor '%s' has no data, needed where its elements are",
                                u->tensors[i].name);
        changed |= u->tensors[i].data != p[i];
    }
    int32_t status = changed ? check_shared(u, p, err) : TN_OK;
    for (size_t i = 0; changed && !status && i < u->count; i++) {
        u->tensors[i].data = p[i];
        u->p_of[i] = u->tensors[i].p ? u->tensors[i].p : p[i];
    }
    return status;
}

/* A gradient with strides goes into a copy, which is kept for later steps. */
static int32_t gather_g(tenon_update *u, size_t i, const int64_t *strides, tn_error *err)
{
    tensor *t = &u->tensors[i];
    const tn_parameter *parameter = &u->parameters.list[i];
    int32_t status = check_strides(t, parameter, strides, err);
    if (status || is_contiguous(parameter, strides))
        return status;
    if (!t->g && !(t->g = tn_alloc_aligned((size_t)parameter->n * u->g_size)))
        return no_memory(err);
    copy_strided(parameter, strides, u->g_size, t->g, u->g_of[i], 0);
    u->g_of[i] = t->g;
    return TN_OK;
}

static int32_t place_g(tenon_update *u, const tenon_step *step, tn_error *err)
{
    int32_t status = TN_OK;
    for (size_t i = 0; i < u->count && !status; i++) {
        u->g_of[i] = (void *)step->g[i];
        u->parameters.present[i] = step->g[i] != NULL;
        if (step->g[i] && step->g_strides && step->g_strides[i] && u->parameters.list[i].n > 0)
            status = gather_g(u, i, step->g_strides[i], err);
    }
    return status;
}

static void put_back(tenon_update *u)
{
    for (size_t i = 0; i < u->count; i++)
        if (u->tensors[i].strides && u->parameters.present[i])
            copy_strided(&u->parameters.list[i], u->tensors[i].strides, u->p_size, u->tensors[i].p, u->tensors[i].data,
                         1);
}

static int32_t do_step(tenon_update *u, const tenon_step *step, tn_step_result *ret, tn_error *err)
{
    const tn_step arguments = {step->scale != 0 ? step->scale : 1, step->loss, u->attempts};
    if (!step->g && u->count)
        return tn_error_set(err, TN_E_INVALID, "a step needs the list of gradients");
    int32_t status = place_p(u, step->p, err);
    if (!status)
        status = place_g(u, step, err);
    if (status)
        return status;
    gather_p(u);
    status = tn_chain_step(u->chain, &arguments, ret, err);
    if (!status)
        status = tn_failures_take(&u->failures, err);
    if (status)
        return status;
    u->attempts++;
    if (ret->committed)
        put_back(u);
    return TN_OK;
}

int32_t tenon_update_step(tenon_update *u, const tenon_step *step, tenon_step_result *ret, tn_error *err)
{
    tenon_step taken;
    tn_step_result result = {0, -1, NULL};
    fenv_t own;
    tn_take(&taken, sizeof taken, step);
    fegetenv(&own);
    fesetenv(FE_DFL_ENV);
    int32_t status = do_step(u, &taken, &result, err);
    fesetenv(&own);
    if (status || !ret)
        return status;
    const tenon_step_result mine = {ret->struct_size, result.committed, result.bad_parameter,
                                    *tn_chain_update(u->chain), u->attempts};
    memcpy(ret, &mine, ret->struct_size < sizeof mine ? ret->struct_size : sizeof mine);
    return TN_OK;
}

/* ---- hyper-parameters ---- */

static int is_called(const tn_instance *link, const char *name, size_t length)
{
    char *handle = tn_strndup(name, length);
    int same = handle && tn_name_equal(link->handle, handle);
    tn_free(handle);
    return same;
}

static int32_t find_row(const tenon_update *u, const char *name, tn_instance **ret, const tn_row **ret_row,
                        tn_error *err)
{
    const char *dot = strrchr(name, '.');
    size_t length = dot ? (size_t)(dot - name) : 0;
    for (size_t i = 0; i < u->link_count && dot; i++) {
        const tn_row *row = tn_instance_row(u->links[i], dot + 1);
        if (!is_called(u->links[i], name, length))
            continue;
        if (!row || row->type != TN_TYPE_REAL)
            return tn_error_set(err, TN_E_NOT_FOUND, "'%s': '%s' has no hyper-parameter of type real '%s'", name,
                                u->links[i]->handle, dot + 1);
        *ret = u->links[i];
        *ret_row = row;
        return TN_OK;
    }
    return tn_error_set(err, TN_E_NOT_FOUND, "'%s' names no link of this update, needed one as in 'adamw.lr'", name);
}

int32_t tenon_update_set(tenon_update *u, const char *name, double value, tn_error *err)
{
    char text[TN_REAL_TEXT];
    tn_instance *link;
    const tn_row *row;
    int32_t status = find_row(u, name, &link, &row, err);
    if (status)
        return status;
    double old = *tn_instance_real(link, row);
    tn_print_real(text, sizeof text, value);
    status = tn_instance_set(link, u->registry, row->name, text, err);
    if (!status)
        status = tn_chain_check_plan(u->chain, link, err);
    if (status)
        *tn_instance_real(link, row) = old;
    return status;
}

int32_t tenon_update_get(tenon_update *u, const char *name, double *ret, tn_error *err)
{
    tn_instance *link;
    const tn_row *row;
    int32_t status = find_row(u, name, &link, &row, err);
    if (!status)
        *ret = *tn_instance_real(link, row);
    return status;
}

/* ---- reports and state ---- */

size_t tenon_update_report_count(const tenon_update *u)
{
    const tn_report *reports;
    return tn_chain_reports(u->chain, &reports);
}

const char *tenon_update_report_at(const tenon_update *u, size_t index, double *ret)
{
    const tn_report *reports;
    tn_chain_reports(u->chain, &reports);
    *ret = reports[index].value;
    return reports[index].name;
}

size_t tenon_update_state_count(const tenon_update *u) { return tn_chain_slot_count(u->chain); }

void tenon_update_state_at(const tenon_update *u, size_t index, tenon_state *ret)
{
    tn_chain_slot slot;
    tn_chain_slot_at(u->chain, index, &slot);
    const tenon_state mine = {.struct_size = ret->struct_size,
                              .bits = slot.bits,
                              .link = slot.link,
                              .slot = slot.slot,
                              .shape = slot.shape,
                              .tensor = slot.parameter,
                              .elements = slot.elements,
                              .bytes = slot.bytes,
                              .data = slot.data,
                              .persistent = slot.persistent};
    memcpy(ret, &mine, ret->struct_size < sizeof mine ? ret->struct_size : sizeof mine);
}

void tenon_update_clocks(const tenon_update *u, int64_t *ret)
{
    memcpy(ret, tn_chain_clocks(u->chain), u->count * sizeof *ret);
    ret[u->count] = *tn_chain_update(u->chain);
    ret[u->count + 1] = u->attempts;
}

int32_t tenon_update_set_clocks(tenon_update *u, const int64_t *clocks, tn_error *err)
{
    for (size_t i = 0; i < u->count + 2; i++)
        if (clocks[i] < 0 || clocks[i] > CLOCK_MAX)
            return tn_error_set(err, TN_E_INVALID, "clock %zu is %" PRId64 ", needed 0 to 2^53", i, clocks[i]);
    memcpy(tn_chain_clocks(u->chain), clocks, u->count * sizeof *clocks);
    *tn_chain_update(u->chain) = clocks[u->count];
    u->attempts = clocks[u->count + 1];
    return TN_OK;
}
