/* SPDX-License-Identifier: Apache-2.0
 *
 * lone.c: the plan of one layer, its memory and numbers, and the shapes and variants it is tried with.
 */
#include "host/check/lone.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/base/philox.h"
#include "host/base/take.h"

#define SLACK ((size_t)4096) /* bytes beside a tensor that is not guarded, which nothing looks at */

/* ---- tensors ---- */

int64_t tn_lone_count(const tn_lone_tensor *t)
{
    int64_t n = 1;
    for (int32_t i = 0; i < t->view.ndim; i++)
        n *= t->shape[i];
    return n;
}

double tn_lone_get(const tn_lone_tensor *t, int64_t i)
{
    if (t->view.dtype.code == TN_FLOAT && t->view.dtype.bits == 64)
        return ((const double *)t->view.data)[i];
    if (t->view.dtype.code == TN_FLOAT && t->view.dtype.bits == 32)
        return (double)((const float *)t->view.data)[i];
    return t->view.dtype.bits == 32 ? ((const int32_t *)t->view.data)[i] : ((const uint8_t *)t->view.data)[i];
}

void tn_lone_set(tn_lone_tensor *t, int64_t i, double value)
{
    if (t->view.dtype.bits == 64)
        ((double *)t->view.data)[i] = value;
    else
        ((float *)t->view.data)[i] = (float)value;
}

void tn_lone_random(tn_lone_tensor *t, uint64_t key, double lo, double hi)
{
    tn_random_uniform(key, 0, 0, tn_lone_count(t), lo, hi, t->view.dtype.bits, t->view.data);
}

double *tn_lone_values(const tn_lone_tensor *t)
{
    int64_t n = tn_lone_count(t);
    double *values = tn_alloc((size_t)n + 1, sizeof *values);
    for (int64_t i = 0; values && i < n; i++)
        values[i] = tn_lone_get(t, i);
    return values;
}

static void shape_of(tn_lone_tensor *t, tn_dtype dtype, int32_t ndim, const int64_t *shape)
{
    int64_t stride = 1;
    for (int32_t i = ndim - 1; i >= 0; i--) {
        t->shape[i] = shape[i];
        t->strides[i] = stride;
        stride *= shape[i];
    }
    t->bytes = (size_t)stride * (dtype.bits / 8u);
    t->view = (tn_tensor){t->view.data, {TN_CPU, 0}, ndim, dtype, t->shape, t->strides, 0};
}

int32_t tn_lone_memory(tn_lone_tensor *t, const char *name, const tn_lone_use *use, int32_t fill, tn_error *err)
{
    size_t slack = use->is_strict ? 0 : SLACK;
    int32_t place = use->is_strict ? use->place : TN_GUARD_START;
    tn_guard_close(&t->guard);
    int32_t status = tn_guard_open(name, t->bytes + 2 * slack, TN_GUARD_ALIGNMENT, place, &t->guard, err);
    if (status != TN_OK)
        return status;
    t->view.data = (char *)t->guard.data + slack;
    memset(t->view.data, fill, t->bytes);
    return TN_OK;
}

int32_t tn_lone_make(tn_lone_tensor *t, const char *name, tn_dtype dtype, int32_t ndim, const int64_t *shape,
                     const tn_lone_use *use, tn_error *err)
{
    shape_of(t, dtype, ndim, shape);
    return tn_lone_memory(t, name, use, TN_LONE_NAN, err);
}

static int32_t memory_for(const tn_lone *lone, tn_lone_tensor *t, const char *name, tn_error *err)
{
    const tn_lone_use use = {.is_strict = lone->is_strict, .place = lone->place};
    return tn_lone_memory(t, name, &use, lone->fill, err);
}

static int32_t make(tn_lone *lone, tn_lone_tensor *t, const char *name, tn_dtype dtype, int32_t ndim,
                    const int64_t *shape, tn_error *err)
{
    shape_of(t, dtype, ndim, shape);
    return memory_for(lone, t, name, err);
}

static int32_t make_like(tn_lone *lone, tn_lone_tensor *t, const char *name, const tn_lone_tensor *like, tn_error *err)
{
    return make(lone, t, name, like->view.dtype, like->view.ndim, like->shape, err);
}

/* ---- the plan ---- */

static tn_dtype real_type(const tn_lone *lone) { return (tn_dtype){TN_FLOAT, (uint8_t)lone->instance->info->real, 1}; }

static int32_t fault(tn_lone *lone, int32_t status, const char *format, ...) TN_PRINTF(3, 4);
static int32_t fault(tn_lone *lone, int32_t status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (!*lone->fault)
        vsnprintf(lone->fault, sizeof lone->fault, format, arguments);
    va_end(arguments);
    return status;
}

static int32_t check_shape(tn_lone *lone, const char *what, int32_t ndim, const int64_t *shape)
{
    int64_t elements = 1;
    if (ndim < 0 || ndim > TN_MAX_DIMS)
        return fault(lone, TN_E_INVALID, "%s has %d extents; 0 to %d are allowed", what, ndim, TN_MAX_DIMS);
    for (int32_t i = 0; i < ndim; i++) {
        if (shape[i] < 0 || shape[i] > ((int64_t)1 << 32) || (elements *= shape[i]) > ((int64_t)1 << 28))
            return fault(lone, TN_E_INVALID, "extent %d of %s is %lld", i, what, (long long)shape[i]);
    }
    return TN_OK;
}

static int32_t plan_output(void *host, int32_t ndim, const int64_t *shape)
{
    tn_lone *lone = host;
    int32_t status = check_shape(lone, "the output", ndim, shape);
    if (status == TN_OK && lone->y.guard.map)
        return fault(lone, TN_E_INVALID, "it plans two outputs; one is needed");
    if (status == TN_OK && (ndim < 1 || shape[0] != lone->planned))
        return fault(lone, TN_E_INVALID, "the first extent of its output is %lld, needed the batch, %lld",
                     ndim ? (long long)shape[0] : -1LL, (long long)lone->planned);
    status = status == TN_OK ? make(lone, &lone->y, "y", real_type(lone), ndim, shape, NULL) : status;
    return status == TN_OK ? make(lone, &lone->dy, "dy", real_type(lone), ndim, shape, NULL) : status;
}

static bool is_named(char names[][64], int32_t count, const char *name)
{
    for (int32_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static int32_t check_port(tn_lone *lone, const char *what, int32_t count, char names[][64], const char *name)
{
    if (count == TN_LONE_PORTS)
        return fault(lone, TN_E_INVALID, "it plans more than %d %ss", TN_LONE_PORTS, what);
    if (names && (!name || !*name || strlen(name) >= sizeof names[0]))
        return fault(lone, TN_E_INVALID, "a %s has no name, or one of 64 bytes and more", what);
    if (names && is_named(names, count, name))
        return fault(lone, TN_E_INVALID, "it plans two %ss of the name %s", what, name);
    return TN_OK;
}

static int32_t plan_parameter(void *host, const tn_weight *given)
{
    tn_lone *lone = host;
    tn_weight weight;
    int32_t i = lone->parameters;
    tn_take(&weight, sizeof weight, given);
    int32_t status = check_port(lone, "parameter", i, lone->parameter_name, weight.name);
    status = status == TN_OK ? check_shape(lone, "a parameter", weight.ndim, weight.shape) : status;
    if (status == TN_OK && (weight.init < TN_INIT_CONSTANT || weight.init > TN_INIT_FAN_UNIFORM))
        return fault(lone, TN_E_INVALID, "parameter %s begins by rule %d, which is none of TN_INIT_*", weight.name,
                     weight.init);
    if (status == TN_OK)
        status = make(lone, &lone->parameter[i], "a parameter", real_type(lone), weight.ndim, weight.shape, NULL);
    if (status == TN_OK)
        status = make(lone, &lone->gradient[i], "a gradient", real_type(lone), weight.ndim, weight.shape, NULL);
    if (status != TN_OK)
        return status;
    strcpy(lone->parameter_name[i], weight.name);
    lone->weight[i] = weight;
    lone->weight[i].name = NULL;
    lone->weight[i].shape = NULL;
    lone->parameters++;
    return TN_OK;
}

static int32_t plan_buffer(void *host, const char *name, int32_t ndim, const int64_t *shape, double initial)
{
    tn_lone *lone = host;
    int32_t i = lone->buffers, status = check_port(lone, "buffer", i, lone->buffer_name, name);
    status = status == TN_OK ? check_shape(lone, "a buffer", ndim, shape) : status;
    if (status == TN_OK)
        status = make(lone, &lone->buffer[i], "a buffer", real_type(lone), ndim, shape, NULL);
    if (status != TN_OK)
        return status;
    strcpy(lone->buffer_name[i], name);
    lone->initial[i] = initial;
    lone->buffers++;
    for (int64_t j = 0; j < tn_lone_count(&lone->buffer[i]); j++)
        tn_lone_set(&lone->buffer[i], j, initial);
    return TN_OK;
}

static int32_t plan_saved(void *host, tn_dtype dtype, int32_t ndim, const int64_t *shape)
{
    tn_lone *lone = host;
    int32_t i = lone->saveds, status = check_port(lone, "saved tensor", i, NULL, NULL);
    status = status == TN_OK ? check_shape(lone, "a saved tensor", ndim, shape) : status;
    if (status == TN_OK && dtype.bits &&
        ((dtype.bits != 8 && dtype.bits != 16 && dtype.bits != 32 && dtype.bits != 64) || dtype.lanes != 1))
        return fault(lone, TN_E_INVALID, "a saved tensor is of %d lanes of %d bits; needed one of 8, 16, 32 or 64",
                     dtype.lanes, dtype.bits);
    dtype = dtype.bits ? dtype : real_type(lone);
    status = status == TN_OK ? make(lone, &lone->saved[i], "a saved tensor", dtype, ndim, shape, NULL) : status;
    lone->saveds += status == TN_OK;
    return status;
}

static int32_t plan_workspace(void *host, int64_t bytes)
{
    tn_lone *lone = host;
    if (bytes < 0 || bytes > ((int64_t)1 << 30))
        return fault(lone, TN_E_INVALID, "it plans a scratch of %lld bytes", (long long)bytes);
    lone->workspace_bytes = bytes > lone->workspace_bytes ? bytes : lone->workspace_bytes;
    return TN_OK;
}

/* ---- opening ---- */

static void read_facts(tn_lone *lone)
{
    const json_t *facts = lone->instance->info->facts;
    const char *axis = tn_fact_text(facts, "axis", "whole"), *keeps = tn_fact_text(facts, "keeps", "none");
    lone->axis = strcmp(axis, "rows") == 0       ? TN_LONE_ROWS
                 : strcmp(axis, "columns") == 0  ? TN_LONE_COLUMNS
                 : strcmp(axis, "elements") == 0 ? TN_LONE_ELEMENTS
                                                 : TN_LONE_WHOLE;
    lone->keeps_input = strcmp(keeps, "input") == 0 || strcmp(keeps, "both") == 0;
    lone->keeps_output = strcmp(keeps, "output") == 0 || strcmp(keeps, "both") == 0;
    lone->in_place = json_is_true(json_object_get(facts, "in_place"));
    if (lone->table->rounds)
        tn_take(&lone->rounds, sizeof lone->rounds, lone->table->rounds);
    if (lone->table->tangents)
        tn_take(&lone->tangents, sizeof lone->tangents, lone->table->tangents);
}

static int32_t lend_inputs(tn_lone *lone, int32_t ndim, const int64_t *shape, tn_error *err)
{
    size_t bytes = lone->instance->hyper_size;
    int32_t status =
        tn_guard_open("the hyper-parameters", bytes, TN_GUARD_ALIGNMENT, TN_GUARD_START, &lone->hyper, err);
    if (status == TN_OK && bytes)
        memcpy(lone->hyper.data, lone->instance->hyper, bytes);
    if (status == TN_OK)
        tn_guard_read_only(&lone->hyper, 1);
    for (int32_t i = 0; i < lone->inputs && status == TN_OK; i++) {
        status = make(lone, &lone->x[i], "x", real_type(lone), ndim, shape, err);
        if (status == TN_OK)
            status = make(lone, &lone->dx[i], "dx", real_type(lone), ndim, shape, err);
    }
    return status;
}

static int32_t infer(tn_lone *lone, tn_error *err)
{
    tn_tensor x[TN_LONE_PORTS];
    tn_layer_planner planner = {sizeof planner, 0,           lone,       plan_output,
                                plan_parameter, plan_buffer, plan_saved, plan_workspace};
    for (int32_t i = 0; i < lone->inputs; i++) {
        x[i] = lone->x[i].view;
        x[i].data = NULL;
    }
    int32_t status = lone->table->infer(lone->hyper.data, x, lone->inputs, &planner, err);
    if (status == TN_OK && !lone->y.guard.map)
        fault(lone, TN_E_INVALID, "it plans no output");
    if (lone->axis == TN_LONE_ELEMENTS && lone->y.guard.map && lone->y.bytes != lone->x[0].bytes)
        fault(lone, TN_E_INVALID, "on the axis \"elements\" the output must have the shape of the input");
    return *lone->fault ? TN_OK : status;
}

static int32_t make_directions(tn_lone *lone, tn_error *err)
{
    int32_t status = make_like(lone, &lone->along_y, "y~", &lone->y, err);
    status = status == TN_OK ? make_like(lone, &lone->along_dy, "dy~", &lone->y, err) : status;
    for (int32_t i = 0; i < lone->inputs && status == TN_OK; i++) {
        status = make_like(lone, &lone->along_x[i], "x~", &lone->x[i], err);
        status = status == TN_OK ? make_like(lone, &lone->along_dx[i], "dx~", &lone->x[i], err) : status;
    }
    for (int32_t i = 0; i < lone->parameters && status == TN_OK; i++) {
        status = make_like(lone, &lone->along_parameter[i], "the direction", &lone->parameter[i], err);
        status =
            status == TN_OK ? make_like(lone, &lone->along_gradient[i], "gradient~", &lone->parameter[i], err) : status;
    }
    return status;
}

static int32_t make_scratch(tn_lone *lone, tn_error *err)
{
    int32_t status = TN_OK;
    for (int i = 0; i < TN_LONE_THREADS && status == TN_OK; i++)
        status =
            make(lone, &lone->workspace[i], "the scratch", (tn_dtype){TN_UINT, 8, 1}, 1, &lone->workspace_bytes, err);
    for (int32_t i = 0; lone->axis == TN_LONE_ROWS && i < lone->parameters; i++)
        for (int k = 0; k < TN_LONE_PIECES && status == TN_OK; k++)
            status = make_like(lone, &lone->partial[i][k], "a partial gradient", &lone->parameter[i], err);
    return status;
}

static void fill_numbers(tn_lone *lone)
{
    for (int32_t i = 0; i < lone->inputs; i++)
        tn_lone_random(&lone->x[i], 1 + (uint64_t)i, -2, 2);
    for (int32_t i = 0; i < lone->parameters; i++)
        tn_lone_random(&lone->parameter[i], 100 + (uint64_t)i, 0.5, 1.5);
    tn_lone_random(&lone->dy, 50, -1, 1);
    if (!lone->tangents.forward)
        return;
    for (int32_t i = 0; i < lone->inputs; i++)
        tn_lone_random(&lone->along_x[i], 201 + (uint64_t)i, -1, 1);
    for (int32_t i = 0; i < lone->parameters; i++)
        tn_lone_random(&lone->along_parameter[i], 211 + (uint64_t)i, -1, 1);
    tn_lone_random(&lone->along_dy, 221, -1, 1);
}

int32_t tn_lone_open(const tn_layer *table, const tn_instance *instance, const tn_lone_use *use, int32_t inputs,
                     int32_t ndim, const int64_t *shape, tn_lone *ret, tn_error *err)
{
    memset(ret, 0, sizeof *ret);
    ret->table = table;
    ret->instance = instance;
    ret->variant = "";
    ret->inputs = inputs;
    ret->is_strict = use->is_strict;
    ret->place = use->place;
    ret->planned = shape[0];
    ret->fill = TN_LONE_NAN;
    ret->context = (tn_context){.struct_size = sizeof(tn_context), .attempt = 3, .update = 2, .key = 0x123456789ABCDEF};
    read_facts(ret);
    int32_t status = lend_inputs(ret, ndim, shape, err);
    status = status == TN_OK ? infer(ret, err) : status;
    if (status == TN_OK && !*ret->fault)
        status = make_scratch(ret, err);
    if (status == TN_OK && !*ret->fault && ret->tangents.forward)
        status = make_directions(ret, err);
    if (status != TN_OK)
        tn_lone_close(ret);
    else if (!*ret->fault)
        fill_numbers(ret);
    return status;
}

static void close_all(tn_lone_tensor *list, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        tn_guard_close(&list[i].guard);
}

void tn_lone_close(tn_lone *lone)
{
    tn_lone_tensor *groups[] = {
        lone->x,     lone->dx,      lone->parameter, lone->gradient,        lone->buffer,
        lone->saved, lone->along_x, lone->along_dx,  lone->along_parameter, lone->along_gradient};
    tn_lone_tensor *single[] = {&lone->y, &lone->dy, &lone->along_y, &lone->along_dy};
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        close_all(groups[i], TN_LONE_PORTS);
    for (size_t i = 0; i < sizeof single / sizeof *single; i++)
        close_all(single[i], 1);
    close_all(lone->workspace, TN_LONE_THREADS);
    for (int i = 0; i < TN_LONE_PORTS; i++)
        close_all(lone->partial[i], TN_LONE_PIECES);
    tn_guard_close(&lone->hyper);
    tn_free(lone->sums);
    lone->sums = NULL;
    lone->sums_room = 0;
}

bool tn_lone_may(const tn_lone *lone, uint32_t flags)
{
    tn_tensor x[TN_LONE_PORTS];
    tn_error err = {0};
    for (int32_t i = 0; i < lone->inputs; i++) {
        x[i] = lone->x[i].view;
        x[i].data = NULL;
    }
    return !lone->table->check || lone->table->check(lone->hyper.data, x, flags, &err) == TN_OK;
}

/* The rest of a tensor that is not guarded keeps what it is filled with. */
static void cut(const tn_lone *lone, tn_lone_tensor *t, const char *name, int64_t n)
{
    if (!t->guard.map)
        return;
    size_t whole = t->bytes;
    int64_t shape[TN_MAX_DIMS];
    memcpy(shape, t->shape, sizeof shape);
    shape[0] = n;
    if (!lone->is_strict)
        memset(t->view.data, lone->fill, whole);
    shape_of(t, t->view.dtype, t->view.ndim, shape);
    if (lone->is_strict)
        memory_for(lone, t, name, NULL);
}

void tn_lone_batch(tn_lone *lone, int64_t n)
{
    cut(lone, &lone->y, "y", n);
    cut(lone, &lone->dy, "dy", n);
    cut(lone, &lone->along_y, "y~", n);
    cut(lone, &lone->along_dy, "dy~", n);
    for (int32_t i = 0; i < lone->inputs; i++) {
        cut(lone, &lone->x[i], "x", n);
        cut(lone, &lone->dx[i], "dx", n);
        cut(lone, &lone->along_x[i], "x~", n);
        cut(lone, &lone->along_dx[i], "dx~", n);
    }
    fill_numbers(lone);
}

/* ---- copies ---- */

typedef struct {
    tn_lone_tensor *list;
    int32_t count;
    const char *name;
    char (*names)[64];
} group;

static int groups_of(const tn_lone *constant, uint32_t what, group ret[5])
{
    tn_lone *lone = (tn_lone *)constant;
    int count = 0;
    if (what & TN_LONE_Y)
        ret[count++] = (group){&lone->y, 1, "y", NULL};
    if (what & TN_LONE_DX)
        ret[count++] = (group){lone->dx, lone->inputs, "dx", NULL};
    if (what & TN_LONE_GRADIENT)
        ret[count++] = (group){lone->gradient, lone->parameters, "the gradient of ", lone->parameter_name};
    if (what & TN_LONE_BUFFER)
        ret[count++] = (group){lone->buffer, lone->buffers, "", lone->buffer_name};
    if (what & TN_LONE_SAVED)
        ret[count++] = (group){lone->saved, lone->saveds, "what is saved", NULL};
    return count;
}

size_t tn_lone_copy_bytes(const tn_lone *lone, uint32_t what)
{
    group groups[5];
    size_t bytes = 0;
    int count = groups_of(lone, what, groups);
    for (int g = 0; g < count; g++)
        for (int32_t i = 0; i < groups[g].count; i++)
            bytes += groups[g].list[i].bytes;
    return bytes;
}

static void move_all(const tn_lone *lone, uint32_t what, unsigned char *bytes, bool back)
{
    group groups[5];
    int count = groups_of(lone, what, groups);
    for (int g = 0; g < count; g++)
        for (int32_t i = 0; i < groups[g].count; i++) {
            tn_lone_tensor *t = &groups[g].list[i];
            memcpy(back ? t->view.data : bytes, back ? bytes : t->view.data, t->bytes);
            bytes += t->bytes;
        }
}

tn_lone_copy tn_lone_take(const tn_lone *lone, uint32_t what, void *bytes)
{
    tn_lone_copy copy = {what, bytes ? bytes : tn_alloc(tn_lone_copy_bytes(lone, what) + 1, 1)};
    if (copy.bytes)
        move_all(lone, what, copy.bytes, false);
    return copy;
}

void tn_lone_put(tn_lone *lone, const tn_lone_copy *copy) { move_all(lone, copy->what, copy->bytes, true); }

void tn_lone_drop(tn_lone_copy *copy)
{
    tn_free(copy->bytes);
    copy->bytes = NULL;
}

static void tell_difference(tn_lone *lone, const group *g, int32_t index, const unsigned char *before, const char *why)
{
    const tn_lone_tensor *t = &g->list[index];
    size_t width = t->view.dtype.bits / 8, at = 0;
    tn_lone_tensor other = *t;
    other.view.data = (void *)before;
    while (memcmp((const char *)t->view.data + at, before + at, width) == 0)
        at += width;
    int64_t i = (int64_t)(at / width);
    tn_lone_fail(lone, "%s%s[%lld] is %.9g, was %.9g: %s", g->name, g->names ? g->names[index] : "", (long long)i,
                 tn_lone_get(t, i), tn_lone_get(&other, i), why);
}

bool tn_lone_same(tn_lone *lone, const tn_lone_copy *copy, const char *why)
{
    group groups[5];
    const unsigned char *bytes = copy->bytes;
    int count = groups_of(lone, copy->what, groups);
    for (int g = 0; g < count; g++)
        for (int32_t i = 0; i < groups[g].count; i++) {
            if (memcmp(groups[g].list[i].view.data, bytes, groups[g].list[i].bytes) != 0) {
                tell_difference(lone, &groups[g], i, bytes, why);
                return false;
            }
            bytes += groups[g].list[i].bytes;
        }
    return true;
}

/* ---- messages ---- */

void tn_lone_fail(tn_lone *lone, const char *format, ...)
{
    char words[900];
    tn_text shape = {0};
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    for (int32_t i = 0; i < lone->x[0].view.ndim; i++)
        tn_text_addf(&shape, "%s%lld", i ? ", " : "", (long long)lone->x[0].shape[i]);
    tn_check_fail(lone->finding, "with an input of [%s]%s%s: %s", tn_text_string(&shape), *lone->variant ? " and " : "",
                  lone->variant, words);
    tn_text_free(&shape);
}

bool tn_lone_is_done(const tn_lone *lone) { return lone->finding->verdict == TN_CHECK_FAILED; }

/* ---- shapes and variants ---- */

static const struct {
    int32_t ndim;
    int64_t shape[4];
} shapes[] = {{2, {3, 7}}, {2, {17, 64}},     {2, {5, 193}},    {2, {1, 1}},    {2, {1, 7}},
              {2, {3, 1}}, {2, {17, 1}},      {2, {32, 7}},     {3, {3, 2, 7}}, {3, {2, 5, 64}},
              {1, {9}},    {4, {2, 3, 8, 8}}, {4, {3, 4, 6, 5}}};
#define SHAPES       (sizeof shapes / sizeof *shapes)
#define SHAPES_SHORT 3 /* with what is not a default */

bool tn_lone_applies(const tn_check_subject *subject)
{
    const tn_entry_info *entry = subject->entry;
    return entry && strcmp(entry->interface, TN_LAYER) == 0 && strcmp(entry->device, "cpu") == 0;
}

typedef struct {
    const tn_check_subject *subject;
    tn_check_finding *finding;
    const tn_lone_use *use;
    tn_layer table;
    tn_instance *instance;
    char variant[96];
    char refusal[300];
    int32_t taken;
} tour;

static void use_lone(tour *t, tn_lone *lone)
{
    t->taken++;
    lone->subject = t->subject;
    lone->finding = t->finding;
    lone->variant = t->variant;
    if (!*lone->fault || t->use->takes_faults)
        t->use->visit(lone);
    else
        tn_check_skip(t->finding, "its plan can not be used, see layer-plan: %s", lone->fault);
}

static void tell_refusal(tour *t, const tn_lone *lone, int32_t inputs, size_t shape, const tn_error *err)
{
    int64_t extents[4];
    memcpy(extents, shapes[shape].shape, sizeof extents);
    const tn_tensor x = {.ndim = shapes[shape].ndim, .shape = extents};
    (void)lone;
    snprintf(t->refusal, sizeof t->refusal, "%.290s", err->msg);
    if (t->use->refused)
        t->use->refused(t->subject, t->finding, &x, inputs, err->msg);
}

static void try_shape(tour *t, size_t shape)
{
    static tn_lone lone;
    for (int32_t inputs = 1; inputs <= 3; inputs++) {
        tn_error err = {0};
        tn_check_stage(t->subject, "infer%s%s", *t->variant ? " with " : "", t->variant);
        int32_t status =
            tn_lone_open(&t->table, t->instance, t->use, inputs, shapes[shape].ndim, shapes[shape].shape, &lone, &err);
        if (status == TN_OK) {
            use_lone(t, &lone);
            tn_lone_close(&lone);
            return;
        }
        tell_refusal(t, &lone, inputs, shape, &err);
    }
}

static void try_shapes(tour *t)
{
    size_t count = *t->variant ? SHAPES_SHORT : SHAPES;
    for (size_t i = 0; i < count && t->finding->verdict == TN_CHECK_PASSED; i++)
        try_shape(t, i);
}

static void try_variant(tour *t, const tn_row *row, const char *value)
{
    tn_error err = {0};
    if (t->finding->verdict != TN_CHECK_PASSED || strcmp(row->default_text, value) == 0)
        return;
    snprintf(t->variant, sizeof t->variant, "%s=%s", row->name, value);
    if (tn_instance_set(t->instance, t->subject->registry, row->name, value, &err) == TN_OK)
        try_shapes(t);
    tn_instance_set(t->instance, t->subject->registry, row->name, row->default_text, &err);
    *t->variant = '\0';
}

static void try_variants(tour *t)
{
    for (size_t i = 0; i < t->instance->info->row_count; i++) {
        const tn_row *row = &t->instance->info->rows[i];
        if (row->type == TN_TYPE_FLAG) {
            try_variant(t, row, "true");
            try_variant(t, row, "false");
        }
        for (size_t k = 0; row->type == TN_TYPE_CHOICE && k < row->choice_count; k++)
            try_variant(t, row, row->choices[k]);
    }
}

void tn_lone_each(const tn_check_subject *subject, tn_check_finding *finding, const tn_lone_use *use)
{
    tour t = {.subject = subject, .finding = finding, .use = use, .table = {.struct_size = sizeof(tn_layer)}};
    tn_error err = {0};
    if (!tn_check_load(subject, &t.table, sizeof t.table, finding))
        return;
    if (!t.table.infer || !t.table.forward || !t.table.backward) {
        tn_check_fail(finding, "its table lacks infer, forward or backward");
        return;
    }
    if (tn_instance_create(subject->registry, subject->entry->kind, subject->entry->name, subject->entry->real,
                           subject->entry->name, NULL, 0, &t.instance, &err) != TN_OK) {
        tn_check_skip(finding, "no instance with its defaults: %s", err.msg);
        return;
    }
    tn_guard_watch(subject->stage, 256);
    try_shapes(&t);
    if (use->all)
        try_variants(&t);
    if (t.taken == 0)
        tn_check_skip(finding, "it takes none of the shapes that were tried; it said: %s", t.refusal);
    tn_instance_free(t.instance);
}
