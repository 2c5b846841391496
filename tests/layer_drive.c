/* SPDX-License-Identifier: Apache-2.0
 *
 * layer_drive.c: runs one layer by itself, as a strict host would.
 */
#include "tests/layer_drive.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "host/base/philox.h"

#define GUARD      256
#define GUARD_BYTE 0xA5

/* ---- tensors ---- */

int64_t drive_elements(const drive_tensor *t)
{
    int64_t n = 1;
    for (int32_t i = 0; i < t->view.ndim; i++)
        n *= t->shape[i];
    return n;
}

/* No ck_assert for each element: libcheck notes every one that passes. */
static void check_index(const drive_tensor *t, int64_t i)
{
    if (i < 0 || (size_t)i * (t->view.dtype.bits / 8u) >= t->bytes)
        ck_abort_msg("the test reads element %lld of a tensor of %zu bytes", (long long)i, t->bytes);
}

double drive_get(const drive_tensor *t, int64_t i)
{
    check_index(t, i);
    if (t->view.dtype.code == TN_INT)
        return ((const int32_t *)t->view.data)[i];
    return t->view.dtype.bits == 64 ? ((const double *)t->view.data)[i] : (double)((const float *)t->view.data)[i];
}

void drive_set(drive_tensor *t, int64_t i, double value)
{
    check_index(t, i);
    if (t->view.dtype.code == TN_INT)
        ((int32_t *)t->view.data)[i] = (int32_t)value;
    else if (t->view.dtype.bits == 64)
        ((double *)t->view.data)[i] = value;
    else
        ((float *)t->view.data)[i] = (float)value;
}

void drive_randomise(drive_tensor *t, uint64_t key, double lo, double hi)
{
    for (int64_t i = 0; i < drive_elements(t); i++) {
        double value;
        tn_random_uniform(key, 0, i, 1, lo, hi, 64, &value);
        drive_set(t, i, value);
    }
}

/* All bits 1: NaN as a float, 255 as a byte. */
static void spoil(drive_tensor *t) { memset(t->view.data, 0xFF, t->bytes); }

void drive_make(drive_tensor *t, tn_dtype dtype, int32_t ndim, const int64_t *shape)
{
    ck_assert(ndim >= 0 && ndim <= TN_MAX_DIMS);
    int64_t stride = 1;
    for (int32_t i = ndim - 1; i >= 0; i--) {
        t->shape[i] = shape[i];
        t->strides[i] = stride;
        stride *= shape[i];
    }
    t->bytes = (size_t)stride * (dtype.bits / 8u);
    size_t padded = (t->bytes + 63) / 64 * 64;
    t->block = aligned_alloc(64, padded + 2 * GUARD);
    ck_assert_ptr_nonnull(t->block);
    memset(t->block, GUARD_BYTE, padded + 2 * GUARD);
    t->view = (tn_tensor){t->block + GUARD, {TN_CPU, 0}, ndim, dtype, t->shape, t->strides, 0};
    spoil(t);
}

void drive_check_guard(const drive_tensor *t, const char *what)
{
    if (!t->block)
        return;
    size_t padded = (t->bytes + 63) / 64 * 64, all = padded + 2 * GUARD;
    for (size_t i = 0; i < all; i = i + 1 == GUARD ? GUARD + t->bytes : i + 1)
        if (t->block[i] != GUARD_BYTE)
            ck_abort_msg("%s of %zu bytes: byte %lld was written", what, t->bytes, (long long)i - GUARD);
}

static tn_dtype real_dtype(const drive *d) { return (tn_dtype){TN_FLOAT, (uint8_t)d->real, 1}; }

/* ---- the plan ---- */

static int32_t plan_output(void *host, int32_t ndim, const int64_t *shape)
{
    drive *d = host;
    ck_assert_msg(!d->y.block, "two outputs");
    ck_assert_int_eq(shape[0], d->x[0].shape[0]);
    drive_make(&d->y, real_dtype(d), ndim, shape);
    drive_make(&d->dy, real_dtype(d), ndim, shape);
    return TN_OK;
}

static int32_t plan_parameter(void *host, const tn_weight *weight)
{
    drive *d = host;
    int32_t i = d->parameters++;
    ck_assert_int_lt(i, DRIVE_PORTS);
    ck_assert_uint_eq(weight->struct_size, sizeof *weight);
    d->weight[i] = *weight;
    strncpy(d->parameter_name[i], weight->name, sizeof d->parameter_name[i] - 1);
    drive_make(&d->parameter[i], real_dtype(d), weight->ndim, weight->shape);
    drive_make(&d->gradient[i], real_dtype(d), weight->ndim, weight->shape);
    drive_randomise(&d->parameter[i], 100 + (uint64_t)i, 0.5, 1.5);
    return TN_OK;
}

static int32_t plan_buffer(void *host, const char *name, int32_t ndim, const int64_t *shape, double initial)
{
    drive *d = host;
    int32_t i = d->buffers++;
    ck_assert_int_lt(i, DRIVE_PORTS);
    strncpy(d->buffer_name[i], name, sizeof d->buffer_name[i] - 1);
    drive_make(&d->buffer[i], real_dtype(d), ndim, shape);
    for (int64_t j = 0; j < drive_elements(&d->buffer[i]); j++)
        drive_set(&d->buffer[i], j, initial);
    return TN_OK;
}

static int32_t plan_saved(void *host, tn_dtype dtype, int32_t ndim, const int64_t *shape)
{
    drive *d = host;
    ck_assert_int_lt(d->saveds, DRIVE_PORTS);
    drive_make(&d->saved[d->saveds++], dtype.bits ? dtype : real_dtype(d), ndim, shape);
    return TN_OK;
}

static int32_t plan_workspace(void *host, int64_t bytes)
{
    drive *d = host;
    drive_make(&d->workspace, (tn_dtype){TN_UINT, 8, 1}, 1, &bytes);
    return TN_OK;
}

int32_t drive_create(const tn_layer *layer, const tn_component_info *info, const void *hyper, int32_t inputs,
                     int32_t ndim, const int64_t *shape, drive *ret, tn_error *err)
{
    tn_tensor x[DRIVE_PORTS];
    ck_assert_int_le(inputs, DRIVE_PORTS);
    *ret =
        (drive){.layer = layer,
                .info = info,
                .hyper = hyper,
                .real = info->real,
                .inputs = inputs,
                .context = {.struct_size = sizeof(tn_context), .attempt = 3, .update = 2, .key = 0x1234567890ABCDEF}};
    for (int32_t i = 0; i < inputs; i++) {
        drive_make(&ret->x[i], real_dtype(ret), ndim, shape);
        drive_make(&ret->dx[i], real_dtype(ret), ndim, shape);
        drive_randomise(&ret->x[i], 1 + (uint64_t)i, -2, 2);
        x[i] = ret->x[i].view;
        x[i].data = NULL;
    }
    tn_layer_planner planner = {sizeof planner, 0,           ret,        plan_output,
                                plan_parameter, plan_buffer, plan_saved, plan_workspace};
    int32_t status = layer->infer(hyper, x, inputs, &planner, err);
    if (status != TN_OK) {
        drive_free(ret);
        return status;
    }
    ck_assert_msg(ret->y.block != NULL, "no output was planned");
    drive_randomise(&ret->dy, 50, -1, 1);
    return TN_OK;
}

/* Calls `visit` for every tensor that was made. */
static void each(drive *d, void (*visit)(drive_tensor *t, const char *what))
{
    struct {
        drive_tensor *tensors;
        const char *what;
    } groups[] = {{d->x, "x"},           {d->dx, "dx"},      {d->parameter, "parameter"}, {d->gradient, "gradient"},
                  {d->buffer, "buffer"}, {d->saved, "saved"}};
    for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
        for (int i = 0; i < DRIVE_PORTS; i++)
            visit(&groups[g].tensors[i], groups[g].what);
    visit(&d->y, "y");
    visit(&d->dy, "dy");
    visit(&d->workspace, "workspace");
}

static void free_one(drive_tensor *t, const char *what)
{
    (void)what;
    free(t->block);
    t->block = NULL;
}

void drive_unmake(drive_tensor *t) { free_one(t, ""); }
void drive_free(drive *d) { each(d, free_one); }

static void check_one(drive_tensor *t, const char *what) { drive_check_guard(t, what); }

void drive_check_guards(const drive *d)
{
    drive copy = *d;
    each(&copy, check_one);
}

void drive_batch(drive *d, int64_t n)
{
    d->y.shape[0] = d->dy.shape[0] = n;
    for (int32_t i = 0; i < d->inputs; i++)
        d->x[i].shape[0] = d->dx[i].shape[0] = n;
}

/* ---- facts ---- */

static const char *fact(const drive *d, const char *key, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(d->info->facts, key));
    return text ? text : otherwise;
}

const char *drive_axis(const drive *d) { return fact(d, "axis", "whole"); }

int drive_keeps(const drive *d, const char *what)
{
    const char *keeps = fact(d, "keeps", "none");
    return !strcmp(keeps, what) || !strcmp(keeps, "both");
}

/* ---- the matrix product, as plain as can be ---- */

static double at(const tn_gemm *g, const void *matrix, int64_t i)
{
    return g->dtype.bits == 64 ? ((const double *)matrix)[i] : (double)((const float *)matrix)[i];
}

static void plain_gemm(void *host, const tn_gemm *g)
{
    (void)host;
    ck_assert_int_eq(g->count, 1);
    ck_assert_uint_eq(g->struct_size, sizeof *g);
    for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < g->k; k++)
                sum += at(g, g->a, g->transpose_a ? k * g->lda + i : i * g->lda + k) *
                       at(g, g->b, g->transpose_b ? j * g->ldb + k : k * g->ldb + j);
            sum = g->alpha * sum + (g->beta != 0 ? g->beta * at(g, g->c, i * g->ldc + j) : 0);
            if (g->dtype.bits == 64)
                ((double *)g->c)[i * g->ldc + j] = sum;
            else
                ((float *)g->c)[i * g->ldc + j] = (float)sum;
        }
}

static const tn_compute compute = {sizeof compute, 0, NULL, plain_gemm};

/* ---- calls ---- */

typedef struct {
    tn_tensor x[DRIVE_PORTS], dx[DRIVE_PORTS], parameter[DRIVE_PORTS], gradient[DRIVE_PORTS], buffer[DRIVE_PORTS],
        saved[DRIVE_PORTS], y, dy;
    tn_layer_call call;
    int64_t total, extent;
} execution;

static void prepare(drive *d, uint32_t flags, int64_t extent, execution *e)
{
    const char *axis = drive_axis(d);
    for (int i = 0; i < DRIVE_PORTS; i++) {
        e->x[i] = d->x[i].view;
        e->dx[i] = d->dx[i].view;
        e->parameter[i] = d->parameter[i].view;
        e->gradient[i] = d->gradient[i].view;
        e->buffer[i] = d->buffer[i].view;
        e->saved[i] = d->saved[i].view;
    }
    e->y = d->y.view;
    e->dy = d->dy.view;
    e->call = (tn_layer_call){.struct_size = sizeof e->call,
                              .flags = flags,
                              .hyper = d->hyper,
                              .context = &d->context,
                              .refresh = d->refresh,
                              .x = e->x,
                              .y = &e->y,
                              .parameter = e->parameter,
                              .buffer = e->buffer,
                              .saved = e->saved,
                              .workspace = d->workspace.block ? d->workspace.view.data : NULL};
    e->total = !strcmp(axis, "rows") || !strcmp(axis, "whole") ? d->y.shape[0]
               : !strcmp(axis, "columns")                      ? d->y.shape[d->y.view.ndim - 1]
                                                               : drive_elements(&d->y);
    e->extent = extent && strcmp(axis, "whole") != 0 ? extent : e->total;
    if (!strcmp(axis, "whole"))
        e->call.compute = &compute;
    ck_assert(strcmp(axis, "elements") != 0 || extent % 64 == 0);
    e->call.pieces = e->total ? (int32_t)((e->total + e->extent - 1) / e->extent) : 1;
}

static void set_piece(drive *d, execution *e, int32_t piece)
{
    e->call.piece = piece;
    e->call.lo = piece * e->extent;
    e->call.n = e->total - e->call.lo < e->extent ? e->total - e->call.lo : e->extent;
    if (d->workspace.block)
        spoil(&d->workspace);
}

static void run_piece(drive *d, execution *e, int32_t piece, void (*function)(const tn_layer_call *))
{
    set_piece(d, e, piece);
    function(&e->call);
}

/* The bytes that a call may not change: from *view, to be compared after it. */
static void *copy_of(const drive_tensor *t)
{
    void *copy = malloc(t->bytes + 1);
    ck_assert_ptr_nonnull(copy);
    return t->block ? memcpy(copy, t->view.data, t->bytes) : copy;
}

static void check_same(const drive_tensor *t, void *copy, const char *what)
{
    if (t->block)
        ck_assert_msg(memcmp(copy, t->view.data, t->bytes) == 0, "the call changed %s, which it may only read", what);
    free(copy);
}

void drive_forward(drive *d, uint32_t flags, int64_t extent, int in_place)
{
    execution e;
    void *x = copy_of(&d->x[0]), *parameter = copy_of(&d->parameter[0]);
    prepare(d, flags, extent, &e);
    if (in_place) {
        memcpy(d->y.view.data, d->x[0].view.data, d->x[0].bytes);
        e.x[0].data = d->y.view.data;
    } else
        spoil(&d->y);
    for (int32_t i = 0; i < d->saveds; i++)
        spoil(&d->saved[i]);
    for (int32_t piece = e.call.pieces - 1; piece >= 0; piece--)
        run_piece(d, &e, piece, d->layer->forward);
    check_same(&d->x[0], x, "x");
    check_same(&d->parameter[0], parameter, "a parameter");
    drive_check_guards(d);
}

/* ---- gradients ---- */

static void add_partial(drive *d, const drive_tensor *partial, int accumulate)
{
    for (int32_t i = 0; i < d->parameters; i++)
        for (int64_t j = 0; j < drive_elements(&partial[i]); j++) {
            double so_far = accumulate ? drive_get(&d->gradient[i], j) : 0;
            drive_set(&d->gradient[i], j, so_far + drive_get(&partial[i], j));
        }
}

/* Rows axis: each piece sets its own partials, which are then added up. */
static void backward_rows(drive *d, execution *e)
{
    int accumulate = (e->call.flags & TN_ACCUMULATE) != 0;
    e->call.flags &= ~TN_ACCUMULATE;
    for (int32_t piece = e->call.pieces - 1; piece >= 0; piece--) {
        drive_tensor partial[DRIVE_PORTS] = {0};
        for (int32_t i = 0; i < d->parameters; i++) {
            drive_make(&partial[i], real_dtype(d), d->gradient[i].view.ndim, d->gradient[i].shape);
            e->gradient[i] = partial[i].view;
        }
        run_piece(d, e, piece, d->layer->backward);
        if (e->call.flags & TN_WANT_DW)
            add_partial(d, partial, accumulate);
        accumulate = 1;
        for (int32_t i = 0; i < d->parameters; i++) {
            drive_check_guard(&partial[i], "a partial gradient");
            drive_unmake(&partial[i]);
        }
    }
}

static void backward_pieces(drive *d, execution *e)
{
    if (!strcmp(drive_axis(d), "rows"))
        backward_rows(d, e);
    else
        for (int32_t piece = e->call.pieces - 1; piece >= 0; piece--)
            run_piece(d, e, piece, d->layer->backward);
}

void drive_backward(drive *d, uint32_t flags, int64_t extent, int in_place)
{
    execution e;
    void *x = copy_of(&d->x[0]), *y = copy_of(&d->y), *dy = copy_of(&d->dy), *parameter = copy_of(&d->parameter[0]);
    prepare(d, flags, extent, &e);
    for (int32_t i = 0; i < d->inputs; i++) {
        if (!drive_keeps(d, "input"))
            e.x[i].data = NULL;
        if (flags & TN_WANT_DX)
            spoil(&d->dx[i]);
        else
            e.dx[i].data = NULL;
    }
    if (!drive_keeps(d, "output"))
        e.y.data = NULL;
    if (in_place) {
        memcpy(d->dx[0].view.data, dy, d->dy.bytes);
        e.dy.data = d->dx[0].view.data;
    }
    for (int32_t i = 0; i < d->parameters; i++)
        if ((flags & (TN_WANT_DW | TN_ACCUMULATE)) == TN_WANT_DW)
            spoil(&d->gradient[i]);
    e.call.dy = &e.dy;
    e.call.dx = e.dx;
    e.call.gradient = e.gradient;
    backward_pieces(d, &e);
    check_same(&d->x[0], x, "x");
    check_same(&d->y, y, "y");
    check_same(&d->dy, dy, "dy");
    check_same(&d->parameter[0], parameter, "a parameter");
    drive_check_guards(d);
}

/* ---- derivatives along a direction ---- */

static void make_random(drive_tensor *t, const drive_tensor *like, uint64_t key)
{
    drive_make(t, like->view.dtype, like->view.ndim, like->shape);
    drive_randomise(t, key, -1, 1);
}

void drive_along_create(const drive *d, drive_along *ret)
{
    memset(ret, 0, sizeof *ret);
    for (int32_t i = 0; i < d->inputs; i++) {
        make_random(&ret->x[i], &d->x[i], 201 + (uint64_t)i);
        make_random(&ret->dx[i], &d->x[i], 0);
    }
    for (int32_t i = 0; i < d->parameters; i++) {
        make_random(&ret->parameter[i], &d->parameter[i], 211 + (uint64_t)i);
        make_random(&ret->gradient[i], &d->parameter[i], 0);
    }
    make_random(&ret->y, &d->y, 0);
    make_random(&ret->dy, &d->y, 221);
}

static void each_along(drive_along *a, void (*visit)(drive_tensor *t, const char *what))
{
    for (int i = 0; i < DRIVE_PORTS; i++) {
        visit(&a->x[i], "x~");
        visit(&a->dx[i], "dx~");
        visit(&a->parameter[i], "the direction");
        visit(&a->gradient[i], "a gradient~");
    }
    visit(&a->y, "y~");
    visit(&a->dy, "dy~");
}

void drive_along_free(drive_along *a) { each_along(a, free_one); }

typedef struct {
    execution e;
    tn_tensor x[DRIVE_PORTS], dx[DRIVE_PORTS], parameter[DRIVE_PORTS], gradient[DRIVE_PORTS];
    tn_tangent_call along;
} tangent_execution;

static void prepare_tangent(drive *d, drive_along *a, uint32_t flags, int64_t extent, int zero_x, tangent_execution *t)
{
    prepare(d, flags, extent, &t->e);
    for (int i = 0; i < DRIVE_PORTS; i++) {
        t->x[i] = a->x[i].view;
        t->x[i].data = zero_x ? NULL : t->x[i].data;
        t->dx[i] = a->dx[i].view;
        t->dx[i].data = flags & TN_WANT_DX ? t->dx[i].data : NULL;
        t->parameter[i] = a->parameter[i].view;
        t->gradient[i] = a->gradient[i].view;
        t->e.dx[i].data = t->e.gradient[i].data = NULL;
    }
    t->along = (tn_tangent_call){.struct_size = sizeof t->along,
                                 .call = &t->e.call,
                                 .x = t->x,
                                 .parameter = t->parameter,
                                 .y = &a->y.view,
                                 .gradient = t->gradient};
}

void drive_tangent_forward(drive *d, drive_along *a, uint32_t flags, int64_t extent, int zero_x)
{
    tangent_execution t;
    prepare_tangent(d, a, flags, extent, zero_x, &t);
    spoil(&a->y);
    for (int32_t piece = t.e.call.pieces - 1; piece >= 0; piece--) {
        set_piece(d, &t.e, piece);
        d->layer->tangents->forward(&t.along);
    }
    each_along(a, check_one);
    drive_check_guards(d);
}

/* Rows axis: a piece's partials, which are then added up. */
static void tangent_partials(drive *d, drive_along *a, tangent_execution *t, int32_t piece, int accumulate)
{
    drive_tensor partial[DRIVE_PORTS] = {0};
    for (int32_t i = 0; i < d->parameters; i++) {
        drive_make(&partial[i], real_dtype(d), a->gradient[i].view.ndim, a->gradient[i].shape);
        t->gradient[i] = partial[i].view;
    }
    set_piece(d, &t->e, piece);
    d->layer->tangents->backward(&t->along);
    for (int32_t i = 0; i < d->parameters; i++) {
        for (int64_t j = 0; j < drive_elements(&partial[i]); j++)
            drive_set(&a->gradient[i], j, (accumulate ? drive_get(&a->gradient[i], j) : 0) + drive_get(&partial[i], j));
        drive_check_guard(&partial[i], "a partial gradient~");
        drive_unmake(&partial[i]);
    }
}

void drive_tangent_backward(drive *d, drive_along *a, uint32_t flags, int64_t extent, int zero_x)
{
    tangent_execution t;
    int rows = !strcmp(drive_axis(d), "rows"), accumulate = (flags & TN_ACCUMULATE) != 0;
    prepare_tangent(d, a, rows ? flags & ~TN_ACCUMULATE : flags, extent, zero_x, &t);
    t.e.call.dy = &t.e.dy;
    t.e.call.dx = t.e.dx;
    t.e.call.gradient = t.e.gradient;
    t.along.dy = &a->dy.view;
    t.along.dx = t.dx;
    for (int32_t i = 0; i < d->inputs; i++)
        spoil(&a->dx[i]);
    for (int32_t i = 0; i < d->parameters && !accumulate; i++)
        spoil(&a->gradient[i]);
    for (int32_t piece = t.e.call.pieces - 1; piece >= 0; piece--) {
        if (rows) {
            tangent_partials(d, a, &t, piece, accumulate || piece < t.e.call.pieces - 1);
            continue;
        }
        set_piece(d, &t.e, piece);
        d->layer->tangents->backward(&t.along);
    }
    each_along(a, check_one);
    drive_check_guards(d);
}
