/* SPDX-License-Identifier: Apache-2.0
 *
 * matrix_step.c: taps, and the step of a matrix link: each item to its owner, apply, the results back.
 */
#include <inttypes.h>
#include <string.h>

#include "host/base/error.h"
#include "host/update/matrix_items.h"

static int is_present(const tn_items *s, int64_t parameter) { return s->options.parameters->present[parameter] != 0; }

/* ---- moving elements ---- */

/* One process's slices of an item's parameters, and where their elements go. */
typedef struct tn_move {
    enum {
        COUNT,
        TAKE,
        SEND,
        RECEIVE,
        GIVE
    } what;      /* slice -> item, slice -> message, message -> item, item -> slice */
    char *slice; /* its first element; of COUNT and RECEIVE not read */
    char *item, *message;
    int64_t at; /* elements of the message so far */
    size_t real;
} tn_move;

static void move(tn_move *m, int64_t in_slice, int64_t in_item, int64_t n)
{
    int64_t real = (int64_t)m->real;
    size_t bytes = (size_t)(n * real);
    if (m->what == TAKE)
        memcpy(m->item + in_item * real, m->slice + in_slice * real, bytes);
    else if (m->what == SEND)
        memcpy(m->message + m->at * real, m->slice + in_slice * real, bytes);
    else if (m->what == RECEIVE)
        memcpy(m->item + in_item * real, m->message + m->at * real, bytes);
    else if (m->what == GIVE)
        memcpy(m->slice + in_slice * real, m->item + in_item * real, bytes);
    m->at += n;
}

/* The part of elements [from, from + n) of the parameter that the slice holds. */
static void move_run(tn_move *m, const tn_held *held, int64_t from, int64_t in_item, int64_t n)
{
    int64_t lo = from > held->lo ? from : held->lo, end = from + n < held->lo + held->n ? from + n : held->lo + held->n;
    if (lo < end)
        move(m, lo - held->lo, in_item + lo - from, end - lo);
}

static void move_weight(const tn_items *s, const tn_item *x, const tn_held *held, tn_move *m)
{
    const tn_parameter *p = &s->options.parameters->list[x->weight];
    int64_t columns = x->columns - (x->bias >= 0), view = 1, row = 0;
    for (int32_t a = 1; a < p->ndim; a++)
        view *= p->shape[a];
    for (int32_t b = 0; b < x->box_count; b++) {
        const tn_box *box = &x->boxes[b];
        int whole = columns == view && columns == x->columns; /* rows follow each other in both */
        int64_t rows = whole ? 1 : box->rows, n = whole ? box->rows * view : columns;
        for (int64_t i = 0; i < rows; i++)
            move_run(m, held, (box->row + i) * view + box->column, (row + i) * x->columns, n);
        row += box->rows;
    }
}

static void move_bias(const tn_item *x, const tn_held *held, tn_move *m)
{
    for (int64_t i = held->lo; i < held->lo + held->n; i++)
        move(m, i - held->lo, i * x->columns + x->columns - 1, 1);
}

/* Where the slice of this process begins in d. */
static char *slice_of(const tn_items *s, const tn_items_step *step, int64_t parameter)
{
    return (char *)step->d + s->options.parameters->at[parameter] * (int64_t)s->real;
}

/* All that process `rank` holds of the item, if it is wanted; message and count go on. */
static void move_item(const tn_items *s, const tn_items_step *step, const tn_item *x, int32_t rank,
                      int (*wanted)(const tn_items *s, const tn_item *x, int32_t rank, int64_t parameter), tn_move *m)
{
    if (wanted(s, x, rank, x->weight)) {
        m->slice = slice_of(s, step, x->weight);
        move_weight(s, x, tn_held_by(s, rank, x->weight), m);
    }
    if (x->bias >= 0 && is_present(s, x->bias) && wanted(s, x, rank, x->bias)) {
        m->slice = slice_of(s, step, x->bias);
        move_bias(x, tn_held_by(s, rank, x->bias), m);
    }
}

static void move_batch(const tn_items *s, const tn_items_step *step, const tn_batch *batch, int32_t rank, char *d,
                       int (*wanted)(const tn_items *s, const tn_item *x, int32_t rank, int64_t parameter), tn_move *m)
{
    for (size_t i = 0; i < batch->count; i++) {
        const tn_item *x = &s->list[batch->first + i];
        m->item = d ? d + (int64_t)i * x->rows * x->columns * (int64_t)s->real : NULL;
        if (is_present(s, x->weight))
            move_item(s, step, x, rank, wanted, m);
    }
}

static int holds(const tn_items *s, const tn_item *x, int32_t rank, int64_t parameter)
{
    (void)x;
    return tn_held_by(s, rank, parameter)->n > 0;
}

/* Does `rank` send its slice to the item's owner? Not if the owner has the same. */
static int sends(const tn_items *s, const tn_item *x, int32_t rank, int64_t parameter)
{
    const tn_held *held = tn_held_by(s, rank, parameter), *owner = tn_held_by(s, x->owner, parameter);
    return held->n > 0 && held->first && rank != x->owner && !(owner->n > 0 && owner->lo == held->lo);
}

/* ---- each item to its owner ---- */

static void clear_absent_biases(const tn_items *s, const tn_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++) {
        const tn_item *x = &s->list[batch->first + i];
        char *d = batch->d + (int64_t)i * x->rows * x->columns * (int64_t)s->real;
        for (int64_t r = 0; x->bias >= 0 && !is_present(s, x->bias) && r < x->rows; r++)
            memset(d + ((r + 1) * x->columns - 1) * (int64_t)s->real, 0, s->real);
    }
}

static void take(const tn_items *s, const tn_items_step *step, const tn_batch *batch)
{
    tn_move m = {.what = TAKE, .real = s->real};
    move_batch(s, step, batch, s->rank, batch->d, holds, &m);
    clear_absent_biases(s, batch);
}

static void give(const tn_items *s, const tn_items_step *step, const tn_batch *batch, char *d)
{
    tn_move m = {.what = GIVE, .real = s->real};
    move_batch(s, step, batch, s->rank, d, holds, &m);
}

/* What `rank` holds of the batch and its owner does not: by way of a message that all see. */
static int32_t bring(const tn_items *s, const tn_items_step *step, const tn_batch *batch, int32_t rank, tn_error *err)
{
    tn_move m = {.what = COUNT, .real = s->real, .message = s->message};
    move_batch(s, step, batch, rank, batch->d, sends, &m);
    int64_t bytes = m.at * (int64_t)s->real;
    if (bytes == 0)
        return TN_OK;
    m.at = 0;
    m.what = SEND;
    if (rank == s->rank)
        move_batch(s, step, batch, rank, batch->d, sends, &m);
    int32_t status = tn_comm_broadcast(s->options.comm, s->message, bytes, rank, err);
    m.at = 0;
    m.what = RECEIVE;
    if (!status && batch->owner == s->rank)
        move_batch(s, step, batch, rank, batch->d, sends, &m);
    return status;
}

static int32_t gather(const tn_items *s, const tn_items_step *step, const tn_batch *batch, tn_error *err)
{
    int32_t status = TN_OK;
    if (batch->owner == s->rank)
        take(s, step, batch);
    for (int32_t r = 0; r < s->size && !status; r++)
        status = bring(s, step, batch, r, err);
    return status;
}

static int32_t spread(const tn_items *s, const tn_items_step *step, const tn_batch *batch, tn_error *err)
{
    const tn_item *x = &s->list[batch->first];
    int64_t bytes = (int64_t)batch->count * x->rows * x->columns * (int64_t)s->real;
    char *d = batch->d ? batch->d : s->message;
    int32_t status = tn_comm_broadcast(s->options.comm, d, bytes, batch->owner, err);
    if (!status)
        give(s, step, batch, d);
    return status;
}

/* ---- apply ---- */

/* What items must share to be in one call. */
typedef struct tn_terms {
    const tn_clock *clock;
    const void *k;
    double samples;
} tn_terms;

static tn_terms terms_of(const tn_items *s, const tn_items_step *step, const tn_item *x)
{
    if (!is_present(s, x->weight))
        return (tn_terms){NULL, NULL, 0};
    return (tn_terms){step->clock(step->user, x->weight), step->k(step->user, x->weight), x->samples};
}

static int same_terms(const tn_terms *a, const tn_terms *b)
{
    return a->clock == b->clock && a->k == b->k && a->samples == b->samples;
}

static void apply_run(const tn_items *s, const tn_batch *batch, size_t first, size_t count, const tn_terms *terms)
{
    const tn_item *x = &s->list[batch->first + first];
    void *slot[TN_CHAIN_SLOTS] = {0};
    for (int32_t j = 0; j < batch->plan->count; j++) {
        int64_t each = tn_item_extent(x, batch->plan->slot[j].shape) * (int64_t)s->real;
        slot[batch->plan->slot[j].index] = batch->slot[j] + (int64_t)first * each;
    }
    const tn_matrix_call call = {.struct_size = sizeof call,
                                 .count = (int32_t)count,
                                 .rows = x->rows,
                                 .columns = x->columns,
                                 .hyper = s->options.hyper,
                                 .k = terms->k,
                                 .clock = terms->clock,
                                 .context = s->options.context,
                                 .compute = &s->compute,
                                 .parameter = &s->options.parameters->list[x->weight],
                                 .d = batch->d + (int64_t)first * x->rows * x->columns * (int64_t)s->real,
                                 .slot = slot,
                                 .workspace = s->workspace,
                                 .tapped = terms->samples};
    s->table.apply(&call);
}

static void apply_batch(const tn_items *s, const tn_items_step *step, const tn_batch *batch)
{
    for (size_t i = 0, end; i < batch->count; i = end) {
        tn_terms terms = terms_of(s, step, &s->list[batch->first + i]), next = terms;
        for (end = i + 1; end < batch->count; end++) {
            next = terms_of(s, step, &s->list[batch->first + end]);
            if (!same_terms(&terms, &next))
                break;
        }
        if (terms.clock)
            apply_run(s, batch, i, end - i, &terms);
    }
}

/* ---- failures ---- */

/* `own`, or an error where another process has one, so that all stop before one waits for another. */
static int32_t agree(const tn_items *s, int32_t own, tn_error *err)
{
    int32_t any = 0, status = tn_comm_any(s->options.comm, own != TN_OK, &any, own ? NULL : err);
    if (own || status)
        return own ? own : status;
    return any ? tn_error_set(err, TN_E_IO, "%s: the step failed on another process, whose message says why",
                              s->options.path)
               : TN_OK;
}

/* Products that failed, in taps or in apply. */
static int32_t check_products(const tn_items *s, tn_error *err)
{
    int32_t status = tn_compute_take_failure(s->options.compute, err);
    return status ? tn_error_wrap(err, status, "%s", s->options.path) : TN_OK;
}

/* ---- taps ---- */

static int64_t tapped_extent(const tn_items *s, const tn_batch *batch, int32_t slot)
{
    const tn_item_slot *plan = &batch->plan->slot[slot];
    return plan->tapped ? tn_item_extent(&s->list[batch->first], plan->shape) : 0;
}

int32_t tn_items_wants(const tn_items *s, const tn_clock *clock)
{
    return s->table.tapping && s->count ? s->table.tapping(s->options.hyper, clock) : TN_TAP_NONE;
}

int32_t tn_items_tapping(tn_items *s, const int64_t *clocks, int64_t update, int64_t attempt, int32_t kind)
{
    s->failed.code = TN_OK;
    for (size_t i = 0; i < s->count; i++) {
        tn_item *x = &s->list[i];
        const tn_clock clock = {sizeof clock, 0,       clocks[x->weight] + 1,
                                update,       attempt, s->options.context ? s->options.context->services : NULL};
        int32_t wants = tn_items_wants(s, &clock);
        kind = kind == TN_TAP_NONE ? wants : kind;
        x->wants = wants != TN_TAP_NONE;
        x->samples = 0;
        if (wants != TN_TAP_NONE && wants != TN_TAP_SAMPLED && wants != TN_TAP_TARGETS)
            tn_error_set(&s->failed, TN_E_PLUGIN,
                         "%s: its tapping returns %d, needed 0 (none), 1 (sampled) or 2 (the data's targets); correct "
                         "the plugin",
                         s->options.path, wants);
        else if (x->wants && wants != kind)
            tn_error_set(&s->failed, TN_E_UNSUPPORTED,
                         "%s: layer '%s' wants taps of kind %d in a window that is tapped for kind %d; one window has "
                         "one kind: sampled (1) or the data's targets (2)",
                         s->options.path, s->options.parameters->list[x->weight].layer, wants, kind);
    }
    for (size_t b = 0; b < s->batch_count && kind; b++)
        for (int32_t j = 0; j < s->batches[b].plan->count; j++) {
            int64_t n = (int64_t)s->batches[b].count * tapped_extent(s, &s->batches[b], j);
            if (n)
                memset(s->batches[b].slot[j], 0, (size_t)n * s->real);
        }
    return kind;
}

static int fits(const tn_tensor *t, int64_t n, int64_t columns, size_t real)
{
    return t->ndim == 2 && t->shape[0] == n && t->shape[1] == columns && t->dtype.code == TN_FLOAT &&
           t->dtype.bits == 8 * real;
}

static void tap_item(tn_items *s, const tn_batch *batch, size_t at, const tn_tensor *x, const tn_tensor *dy,
                     double seed)
{
    tn_item *item = &s->list[batch->first + at];
    int64_t n = x->ndim == 2 ? x->shape[0] : -1, columns = item->columns - (item->bias >= 0);
    void *slot[TN_CHAIN_SLOTS] = {0};
    if (!fits(x, n, columns, s->real) || !fits(dy, n, item->rows, s->real)) {
        tn_error_set(&s->failed, TN_E_INTERNAL,
                     "%s: taps of '%s' have x of %d axes and dy of %d, needed [n, %" PRId64 "] and [n, %" PRId64
                     "] of %d-bit reals",
                     s->options.path, s->options.parameters->list[item->weight].name, x->ndim, dy->ndim, columns,
                     item->rows, (int)(8 * s->real));
        return;
    }
    for (int32_t j = 0; j < batch->plan->count; j++)
        if (batch->plan->slot[j].tapped)
            slot[batch->plan->slot[j].index] =
                batch->slot[j] + (int64_t)at * tapped_extent(s, batch, j) * (int64_t)s->real;
    const tn_tap_call call = {.struct_size = sizeof call,
                              .bias = item->bias >= 0,
                              .hyper = s->options.hyper,
                              .context = s->options.context,
                              .compute = &s->compute,
                              .n = n,
                              .x = x,
                              .dy = dy,
                              .seed = seed,
                              .slot = slot,
                              .workspace = s->workspace};
    if (n > 0)
        s->table.tap(&call);
    item->samples += (double)n;
}

void tn_items_tap(tn_items *s, int64_t weight, const tn_tensor *x, const tn_tensor *dy, double seed)
{
    for (size_t b = 0; b < s->batch_count; b++)
        for (size_t i = 0; i < s->batches[b].count; i++)
            if (s->list[s->batches[b].first + i].weight == weight && s->list[s->batches[b].first + i].wants)
                tap_item(s, &s->batches[b], i, x, dy, seed);
}

static int wants_taps(const tn_items *s, const tn_batch *batch)
{
    for (size_t i = 0; i < batch->count; i++)
        if (s->list[batch->first + i].wants)
            return 1;
    return 0;
}

static int32_t sum_slots(const tn_items *s, const tn_batch *batch, tn_error *err)
{
    const tn_dtype real = {TN_FLOAT, (uint8_t)(8 * s->real), 1};
    int32_t status = TN_OK;
    for (int32_t j = 0; j < batch->plan->count && !status; j++) {
        int64_t n = (int64_t)batch->count * tapped_extent(s, batch, j);
        if (n)
            status = tn_comm_all_reduce(s->options.comm, real, batch->slot[j], n, TN_REDUCE_SUM, err);
    }
    return status;
}

static int32_t check_samples(const tn_items *s, tn_error *err)
{
    for (size_t i = 0; i < s->count; i++) {
        const tn_item *x = &s->list[i];
        if (x->wants && x->samples == 0 && is_present(s, x->weight))
            return tn_error_set(
                err, TN_E_INVALID,
                "%s: layer '%s' handed out no inputs and output gradients, which the update needs; only "
                "layers whose note says tap do; route its parameters to another rule with `on:`",
                s->options.path, s->options.parameters->list[x->weight].layer);
    }
    return TN_OK;
}

/* Samples and tapped slots become those of all processes. */
static int32_t sum_taps(tn_items *s, tn_error *err)
{
    int32_t status = TN_OK, any = 0;
    for (size_t b = 0; b < s->batch_count; b++)
        any |= wants_taps(s, &s->batches[b]);
    if (!any)
        return TN_OK;
    status =
        agree(s, s->failed.code ? tn_error_set(err, s->failed.code, "%s", s->failed.msg) : check_products(s, err), err);
    if (status)
        return status;
    for (size_t i = 0; i < s->count; i++)
        s->samples[i] = s->list[i].samples;
    if (s->options.comm)
        status = tn_comm_all_reduce(s->options.comm, (tn_dtype){TN_FLOAT, 64, 1}, s->samples, (int64_t)s->count,
                                    TN_REDUCE_SUM, err);
    for (size_t i = 0; i < s->count; i++)
        s->list[i].samples = s->samples[i];
    for (size_t b = 0; b < s->batch_count && !status && s->options.comm; b++)
        if (wants_taps(s, &s->batches[b]))
            status = sum_slots(s, &s->batches[b], err);
    return status ? status : check_samples(s, err);
}

/* ---- the step ---- */

static int32_t apply_alone(const tn_items *s, const tn_items_step *step, tn_error *err)
{
    for (const tn_batch *batch = s->batches; batch < s->batches + s->batch_count; batch++) {
        take(s, step, batch);
        apply_batch(s, step, batch);
        give(s, step, batch, batch->d);
    }
    return check_products(s, err);
}

/* All are brought together before any is applied: else one owner's work would keep the others waiting. */
static int32_t apply_together(const tn_items *s, const tn_items_step *step, tn_error *err)
{
    int32_t status = TN_OK;
    for (size_t b = 0; b < s->batch_count && !status; b++)
        status = gather(s, step, &s->batches[b], err);
    for (size_t b = 0; b < s->batch_count && !status; b++)
        if (s->batches[b].owner == s->rank)
            apply_batch(s, step, &s->batches[b]);
    if (!status)
        status = agree(s, check_products(s, err), err);
    for (size_t b = 0; b < s->batch_count && !status; b++)
        status = spread(s, step, &s->batches[b], err);
    return status;
}

int32_t tn_items_apply(tn_items *s, const tn_items_step *step, tn_error *err)
{
    int32_t status = sum_taps(s, err);
    if (!status)
        status = s->options.comm ? apply_together(s, step, err) : apply_alone(s, step, err);
    for (size_t i = 0; i < s->count; i++) {
        s->list[i].wants = 0;
        s->list[i].samples = 0;
    }
    return status;
}
