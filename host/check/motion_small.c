/* SPDX-License-Identifier: Apache-2.0
 *
 * motion_small.c: codecs, loss scales and schedulers at work.
 */
#include "host/check/motion_small.h"

#include <math.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/update/operand.h"

static int32_t no_memory(tn_error *err) { return tn_error_set(err, TN_E_MEMORY, "no memory for a component at work"); }

/* ---- codecs ---- */

enum { HYPER, CONTEXT, CALL, STORED, EXTRA, REAL };

#define TENSORS ((int64_t)(sizeof extents / sizeof *extents))

/* Around the blocks of at most 512 that may share a scale, and odd numbers, whose last bytes are shared. */
static const int64_t extents[] = {1, 3, 15, 16, 17, 255, 257, 511, 513, 4097};
static const int64_t few[] = {3, 17};

static int64_t tensors_of(const tn_motion *m) { return m->options.small ? 2 : TENSORS; }
static int64_t extent_of(const tn_motion *m, int64_t i) { return m->options.small ? few[i] : extents[i]; }

/* Sizes spread over magnitudes; of what is never below 0, with zeros. */
static double number(const tn_motion *m, int64_t tensor, int64_t i)
{
    double x = tn_motion_noise(tensor, i, m->steps) * exp2(8 * tn_motion_noise(tensor, i, m->steps + 1000) - 4);
    return tensor % 2 ? fabs(x) * (i % 5 != 0) : x;
}

tn_codec_call tn_motion_codec_call(const tn_motion_codec_work *w, int64_t tensor, int64_t lo, int64_t n)
{
    const tn_codec *t = &w->table;
    const tn_codec_tensor *at = &w->tensor[tensor];
    return (tn_codec_call){.struct_size = sizeof(tn_codec_call),
                           .flags = tensor % 2 ? TN_CODEC_NONNEGATIVE : 0,
                           .lo = lo,
                           .n = n,
                           .stored = at->stored + tn_codec_payload(t, w->real, lo),
                           .extra = t->extra_bytes ? at->extra + tn_codec_extra(t, lo) : NULL,
                           .real = at->real + (size_t)lo * (w->real / 8)};
}

/* Lends what `call` says, does it, and copies back what it may write. */
static void convert(tn_motion *m, int32_t thread, const tn_codec_call *call, int32_t encode)
{
    tn_motion_codec_work *w = m->own;
    const tn_context context = tn_motion_context(m);
    size_t stored = (size_t)tn_codec_payload(&w->table, w->real, call->n), real = (size_t)call->n * (w->real / 8);
    size_t extra = (size_t)tn_codec_extra(&w->table, call->n);
    tn_codec_call c = *call;
    c.hyper = tn_motion_in(m, thread, HYPER, "hyper", m->instance->hyper, m->instance->hyper_size, 8);
    c.context = tn_motion_in(m, thread, CONTEXT, "the context", &context, sizeof context, 8);
    c.stored = encode ? tn_motion_out(m, thread, STORED, "stored", NULL, stored, 1)
                      : (void *)tn_motion_in(m, thread, STORED, "stored", call->stored, stored, 1);
    if (c.extra)
        c.extra = encode ? tn_motion_out(m, thread, EXTRA, "extra", NULL, extra, 16)
                         : (void *)tn_motion_in(m, thread, EXTRA, "extra", call->extra, extra, 16);
    c.real = encode ? (void *)tn_motion_in(m, thread, REAL, "real", call->real, real, 64)
                    : tn_motion_out(m, thread, REAL, "real", NULL, real, 64);
    const tn_codec_call *lent = tn_motion_in(m, thread, CALL, "the call", &c, sizeof c, 8);
    tn_motion_enter(m, thread, encode ? "encode" : "decode");
    (encode ? w->table.encode : w->table.decode)(lent);
    tn_motion_leave(m, thread, encode ? "encode" : "decode", 1);
    if (encode)
        memcpy(call->stored, c.stored, stored);
    if (encode && c.extra)
        memcpy(call->extra, c.extra, extra);
    if (!encode)
        memcpy(call->real, c.real, real);
}

void tn_motion_encode(tn_motion *m, const tn_codec_call *call) { convert(m, 0, call, 1); }
void tn_motion_decode(tn_motion *m, const tn_codec_call *call) { convert(m, 0, call, 0); }

typedef struct {
    tn_motion *m;
    int64_t tensor, piece, pieces;
    int32_t encode;
} codec_job;

static void convert_piece(void *arg, int64_t index, int32_t thread)
{
    const codec_job *job = arg;
    int64_t at = job->m->options.backwards ? job->pieces - 1 - index : index, n = extent_of(job->m, job->tensor);
    int64_t lo = at * job->piece;
    const tn_codec_call call =
        tn_motion_codec_call(job->m->own, job->tensor, lo, n - lo < job->piece ? n - lo : job->piece);
    convert(job->m, thread, &call, job->encode);
}

static void convert_all(tn_motion *m, int64_t tensor, int32_t encode)
{
    codec_job job = {m, tensor, m->options.piece ? m->options.piece : 1 << 20, 0, encode};
    job.pieces = (extent_of(m, tensor) + job.piece - 1) / job.piece;
    tn_pool_run(m->pool, convert_piece, &job, job.pieces);
}

static void codec_step(tn_motion *m)
{
    tn_motion_codec_work *w = m->own;
    for (int64_t i = 0; i < w->tensors; i++) {
        for (int64_t j = 0; j < extent_of(m, i); j++)
            tn_motion_set(w->real, w->tensor[i].real, j, number(m, i, j));
        convert_all(m, i, 1);
        convert_all(m, i, 0);
    }
}

static int32_t make_tensor(tn_motion *m, tn_motion_codec_work *w, int64_t i, tn_error *err)
{
    int64_t n = extent_of(m, i);
    size_t stored = (size_t)tn_codec_payload(&w->table, w->real, n), extra = (size_t)tn_codec_extra(&w->table, n);
    tn_codec_tensor *t = &w->tensor[i];
    *t = (tn_codec_tensor){n, tn_alloc(stored, 1), tn_alloc(extra, 1), tn_alloc((size_t)n, w->real / 8)};
    if (!t->stored || !t->extra || !t->real)
        return no_memory(err);
    bool whole = tn_motion_span(m, t->stored, stored, 0, 0, err, "stored of %lld elements", (long long)n) &&
                 tn_motion_span(m, t->extra, extra, 0, 0, err, "extra of %lld elements", (long long)n) &&
                 tn_motion_span(m, t->real, (size_t)n * (w->real / 8), (int32_t)w->real, 0, err,
                                "decoded of %lld elements", (long long)n);
    return whole ? TN_OK : TN_E_MEMORY;
}

static int32_t codec_open(tn_motion *m, tn_error *err)
{
    tn_motion_codec_work *w = m->own = tn_alloc(1, sizeof *w);
    tn_codec_use use;
    if (!w)
        return no_memory(err);
    w->real = m->instance->real;
    w->tensors = tensors_of(m);
    int32_t status = tn_codec_open(m->subject->registry, m->instance, &w->table, &use, err);
    for (int64_t i = 0; i < w->tensors && status == TN_OK; i++)
        status = make_tensor(m, w, i, err);
    return status;
}

static void codec_close(tn_motion *m)
{
    tn_motion_codec_work *w = m->own;
    for (int64_t i = 0; w && i < w->tensors; i++) {
        tn_free(w->tensor[i].stored);
        tn_free(w->tensor[i].extra);
        tn_free(w->tensor[i].real);
    }
    tn_free(w);
}

const tn_motion_kind tn_motion_codec = {codec_open, codec_step, codec_close};

/* ---- loss scales and schedulers: a few scalars ---- */

enum { SLOTS = CALL + 1 };

static int32_t take_scalars(tn_motion *m, tn_motion_scalars *w, int64_t slots, tn_error *err)
{
    w->slot_count = slots;
    w->slots = tn_alloc((size_t)slots, sizeof(double));
    w->values = tn_alloc(TN_MOTION_VALUES, sizeof(double));
    if (!w->slots || !w->values)
        return no_memory(err);
    bool whole = tn_motion_span(m, w->slots, (size_t)slots * sizeof(double), 64, 1, err, "slots") &&
                 tn_motion_span(m, w->values, TN_MOTION_VALUES * sizeof(double), 64, 1, err, "values");
    return whole ? TN_OK : TN_E_MEMORY;
}

static void scalars_close(tn_motion *m)
{
    tn_motion_scalars *w = m->own;
    if (w) {
        tn_free(w->slots);
        tn_free(w->values);
    }
    tn_free(w);
}

static const void *lend_hyper(tn_motion *m, int32_t t)
{
    return tn_motion_in(m, t, HYPER, "hyper", m->instance->hyper, m->instance->hyper_size, 8);
}

static size_t slot_bytes(const tn_motion_scalars *w) { return (size_t)w->slot_count * sizeof(double); }

/* ---- loss scales ---- */

static double scale(tn_motion *m, int32_t thread)
{
    const tn_motion_scalars *w = m->own;
    const void *hyper = lend_hyper(m, thread);
    const double *slots = tn_motion_in(m, thread, SLOTS, "slots", w->slots, slot_bytes(w), 8);
    tn_motion_enter(m, thread, "scale");
    double value = w->loss_scale.scale(hyper, slots);
    tn_motion_leave(m, thread, "scale", 1);
    return value;
}

double tn_motion_scale(tn_motion *m) { return scale(m, 0); }

void tn_motion_observe_overflow(tn_motion *m, int32_t overflow)
{
    tn_motion_scalars *w = m->own;
    const void *hyper = lend_hyper(m, 0);
    double *slots = tn_motion_out(m, 0, SLOTS, "slots", w->slots, slot_bytes(w), 8);
    tn_motion_enter(m, 0, "observe");
    w->loss_scale.observe(hyper, overflow, slots);
    tn_motion_leave(m, 0, "observe", 1);
    memcpy(w->slots, slots, slot_bytes(w));
}

static void scale_value(void *arg, int64_t index, int32_t thread)
{
    tn_motion *m = arg;
    ((tn_motion_scalars *)m->own)->values[index] = scale(m, thread);
}

/* An overflow in seven attempts; then what any thread may ask. */
static void loss_scale_step(tn_motion *m)
{
    tn_motion_observe_overflow(m, m->steps % 7 == 6);
    tn_pool_run(m->pool, scale_value, m, m->options.small ? 1 : TN_MOTION_VALUES);
}

static int32_t loss_scale_open(tn_motion *m, tn_error *err)
{
    tn_motion_scalars *w = m->own = tn_alloc(1, sizeof *w);
    if (!w)
        return no_memory(err);
    int32_t status =
        tn_registry_load(m->subject->registry, m->subject->entry, &w->loss_scale, sizeof w->loss_scale, err);
    const tn_loss_scale *t = &w->loss_scale;
    if (status == TN_OK && (!t->begin || !t->scale || !t->observe || t->slots < 0 || t->slots > 1 << 16))
        return tn_error_set(err, TN_E_PLUGIN, "it has no begin, scale or observe, or slots outside 0 to 65536");
    if (status == TN_OK)
        status = take_scalars(m, w, t->slots, err);
    if (status != TN_OK)
        return status;
    const void *hyper = lend_hyper(m, 0);
    double *slots = tn_motion_out(m, 0, SLOTS, "slots", NULL, slot_bytes(w), 8);
    tn_motion_enter(m, 0, "begin");
    t->begin(hyper, slots);
    tn_motion_leave(m, 0, "begin", 0);
    memcpy(w->slots, slots, slot_bytes(w));
    return TN_OK;
}

const tn_motion_kind tn_motion_loss_scale = {loss_scale_open, loss_scale_step, scalars_close};

/* ---- schedulers ---- */

tn_position tn_motion_position(int64_t step, int64_t horizon)
{
    double t = (double)step;
    return (tn_position){.struct_size = sizeof(tn_position),
                         .step = step,
                         .horizon = horizon,
                         .base = 0.25,
                         .epoch = t / 100,
                         .samples = t * 32,
                         .tokens = t * 32};
}

static double value(tn_motion *m, int32_t thread, const tn_position *position)
{
    const tn_motion_scalars *w = m->own;
    const void *hyper = lend_hyper(m, thread);
    const double *slots = w->slot_count ? tn_motion_in(m, thread, SLOTS, "slots", w->slots, slot_bytes(w), 8) : NULL;
    const tn_position *at = tn_motion_in(m, thread, CALL, "the position", position, sizeof *position, 8);
    tn_motion_enter(m, thread, "value");
    double result = w->scheduler.value(hyper, at, slots);
    tn_motion_leave(m, thread, "value", 1);
    return result;
}

double tn_motion_value(tn_motion *m, const tn_position *position) { return value(m, 0, position); }

void tn_motion_observe_metric(tn_motion *m, const tn_position *position, double metric)
{
    tn_motion_scalars *w = m->own;
    if (!w->scheduler.observe)
        return;
    const void *hyper = lend_hyper(m, 0);
    double *slots = w->slot_count ? tn_motion_out(m, 0, SLOTS, "slots", w->slots, slot_bytes(w), 8) : NULL;
    const tn_position *at = tn_motion_in(m, 0, CALL, "the position", position, sizeof *position, 8);
    tn_motion_enter(m, 0, "observe");
    w->scheduler.observe(hyper, at, metric, slots);
    tn_motion_leave(m, 0, "observe", 1);
    memcpy(w->slots, slots ? slots : w->slots, slot_bytes(w));
}

/* Positions over the horizon and behind it. */
static void value_at(void *arg, int64_t index, int32_t thread)
{
    tn_motion *m = arg;
    int64_t i = m->options.backwards ? TN_MOTION_VALUES - 1 - index : index;
    const tn_position position = tn_motion_position(i, TN_MOTION_VALUES * 3 / 4);
    ((tn_motion_scalars *)m->own)->values[i] = value(m, thread, &position);
}

static void scheduler_step(tn_motion *m)
{
    const tn_position position = tn_motion_position(m->steps, TN_MOTION_VALUES * 3 / 4);
    tn_motion_observe_metric(m, &position, 1 + 0.001 * tn_motion_noise(0, m->steps, 0));
    tn_pool_run(m->pool, value_at, m, m->options.small ? 1 : TN_MOTION_VALUES);
}

static int32_t scheduler_open(tn_motion *m, tn_error *err)
{
    tn_motion_scalars *w = m->own = tn_alloc(1, sizeof *w);
    if (!w)
        return no_memory(err);
    int32_t status = tn_registry_load(m->subject->registry, m->subject->entry, &w->scheduler, sizeof w->scheduler, err);
    if (status == TN_OK && !w->scheduler.value)
        return tn_error_set(err, TN_E_PLUGIN, "it has no value");
    int64_t slots = (int64_t)json_array_size(json_object_get(m->subject->info->facts, "slots"));
    return status ? status : take_scalars(m, w, slots, err);
}

const tn_motion_kind tn_motion_scheduler = {scheduler_open, scheduler_step, scalars_close};
