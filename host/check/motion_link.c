/* SPDX-License-Identifier: Apache-2.0
 *
 * motion_link.c: the host's part of a step for one link alone, as tenon/optimizer.h and tenon/matrix.h say it: begin,
 * rounds, vote, update, whole matrices, the new parameters, the commit.
 *
 * What links before and behind would do is done by simple means: gradient and step are numbers that depend on the
 * step, and the link's result moves the parameters in a way that its stage gives.
 */
#include "host/check/motion_link.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "host/base/exact.h"
#include "host/base/memory.h"
#include "host/base/take.h"

/* Blocks of a desk. */
enum {
    HYPER,
    CLOCK,
    CONTEXT,
    PARAMETER,
    CALL,
    K,
    P,
    G,
    D,
    SCRATCH,
    LIST,
    OUT,
    SCALARS,
    ROWS,
    COLUMNS,
    REPORT,
    X,
    DY,
    X_TENSOR,
    DY_TENSOR,
    COMPUTE,
    SHAPE,
    SLOT
};

#define SCALE   0.5 /* the gradient is this times g */
#define SAMPLES 8   /* of a micro-batch of taps */

/* ---- lending ---- */

typedef struct {
    tn_clock clock;
    tn_context context;
} link_now;

static link_now now_of(const link_work *l) { return (link_now){tn_motion_clock(l->m), tn_motion_context(l->m)}; }

static const void *lend_hyper(const link_work *l, int32_t t)
{
    return tn_motion_in(l->m, t, HYPER, "hyper", l->m->instance->hyper, l->m->instance->hyper_size, 8);
}

static const void *lend_k(const link_work *l, int32_t t, const void *k)
{
    return tn_motion_in(l->m, t, K, "k", k, l->k_bytes, 8);
}

static const tn_parameter *lend_parameter(const link_work *l, int32_t t, const tn_parameter *parameter)
{
    return tn_motion_in(l->m, t, PARAMETER, "the parameter", parameter, sizeof *parameter, 8);
}

static const tn_context *lend_context(const link_work *l, int32_t t)
{
    const link_now now = now_of(l);
    return tn_motion_in(l->m, t, CONTEXT, "the context", &now.context, sizeof now.context, 8);
}

static const tn_clock *lend_clock(const link_work *l, int32_t t)
{
    const link_now now = now_of(l);
    return tn_motion_in(l->m, t, CLOCK, "the clock", &now.clock, sizeof now.clock, 8);
}

/* ---- numbers that go in ---- */

static void mix_into(const link_work *l, link_cell *cell)
{
    int64_t at = cell->n / 2;
    double value = tn_motion_mixed(l->real, l->m->options.mix);
    if (l->m->options.mix == TN_MIX_NONE || l->m->steps == 0 || cell->n == 0)
        return;
    if (l->stage == LINK_AFTER)
        tn_motion_set(l->real, cell->p, at, value);
    else if (l->stage != LINK_WRITE)
        tn_motion_set(l->real, cell->g, at, value);
    if (l->stage == LINK_UPDATE || l->stage == LINK_WRITE)
        tn_motion_set(l->real, cell->step, at, value);
}

static void set_inputs(const link_work *l, link_cell *cell)
{
    int64_t use = 2 * l->m->steps;
    for (int64_t i = 0; i < cell->n; i++) {
        tn_motion_set(l->real, cell->g, i, tn_motion_noise(cell->index, i, use));
        tn_motion_set(l->real, cell->step, i, 0.01 * tn_motion_noise(cell->index, i, use + 1));
    }
    for (int64_t i = 0; i < cell->n && l->stage == LINK_AFTER; i++)
        tn_motion_set(l->real, cell->p, i, tn_motion_get(l->real, cell->p, i) + tn_motion_get(l->real, cell->step, i));
    mix_into(l, cell);
}

/* ---- constants ---- */

static void begin(const link_work *l, char *k)
{
    memset(k, 0, l->k_bytes);
    if (!l->table.begin)
        return;
    void *to = tn_motion_out(l->m, 0, K, "k", k, l->k_bytes, 8);
    const void *hyper = lend_hyper(l, 0);
    const tn_clock *clock = lend_clock(l, 0);
    tn_motion_enter(l->m, 0, "begin");
    l->table.begin(hyper, clock, to);
    tn_motion_leave(l->m, 0, "begin", 1);
    memcpy(k, to, l->k_bytes);
}

static void begin_all(const link_work *l)
{
    for (int64_t i = 0; i < (l->per_tensor ? l->count : 1); i++)
        begin(l, l->per_tensor ? l->cells[i].k : l->k);
    for (link_cell *cell = l->cells; cell < l->cells + l->count; cell++)
        for (int32_t j = 0; j < cell->slots; j++)
            if (cell->slot[j].copy)
                memcpy(cell->slot[j].copy, cell->slot[j].data, cell->slot[j].bytes);
}

static double factor_of(const link_work *l, double (*function)(const void *k), const char *what, const void *k)
{
    if (!function)
        return 1;
    const void *lent = lend_k(l, 0, k);
    tn_motion_enter(l->m, 0, what);
    double factor = function(lent);
    tn_motion_leave(l->m, 0, what, 1);
    return factor;
}

/* ---- slots of a piece ---- */

/* `out`: like-shaped ones may be written. */
static void *const *lend_slots(const link_work *l, int32_t t, const link_cell *cell, int64_t lo, int64_t n, int32_t out)
{
    void *list[LINK_SLOTS] = {NULL};
    for (int32_t j = 0; j < cell->slots; j++) {
        const link_slot *slot = &cell->slot[j];
        const char *like = slot->data + (size_t)lo * l->each;
        if (slot->shape == TN_SHAPE_LIKE && out)
            list[j] = tn_motion_out(l->m, t, SLOT + j, slot->name, like, (size_t)n * l->each, 64);
        else if (slot->shape == TN_SHAPE_LIKE)
            list[j] = (void *)tn_motion_in(l->m, t, SLOT + j, slot->name, like, (size_t)n * l->each, 64);
        else if (slot->shape < TN_SHAPE_ITEM)
            list[j] = (void *)tn_motion_in(l->m, t, SLOT + j, slot->name, slot->copy, slot->bytes, 64);
    }
    return cell->slots ? tn_motion_in(l->m, t, LIST, "the list of slots", list, (size_t)cell->slots * sizeof *list, 8)
                       : NULL;
}

static void take_slots(const link_work *l, const link_cell *cell, int64_t lo, int64_t n, void *const *list)
{
    for (int32_t j = 0; j < cell->slots; j++)
        if (cell->slot[j].shape == TN_SHAPE_LIKE)
            memcpy(cell->slot[j].data + (size_t)lo * l->each, list[j], (size_t)n * l->each);
}

static const tn_parameter *slice_of(const link_cell *cell, int64_t lo)
{
    return cell->slices == 2 ? &cell->slice[lo >= TN_CHUNK] : &cell->parameter;
}

static tn_piece piece_of(const link_work *l, int32_t t, const link_cell *cell, int64_t lo, int64_t n)
{
    size_t at = (size_t)lo * l->each, bytes = (size_t)n * l->each;
    return (tn_piece){.struct_size = sizeof(tn_piece),
                      .round = l->at_round,
                      .parameter = lend_parameter(l, t, slice_of(cell, lo)),
                      .context = lend_context(l, t),
                      .hyper = lend_hyper(l, t),
                      .k = lend_k(l, t, cell->k),
                      .lo = lo,
                      .n = n,
                      .scale = SCALE,
                      .p = tn_motion_in(l->m, t, P, "p", cell->p + at, bytes, 64)};
}

/* ---- partial ---- */

static void clear(double *x, int64_t n) { memset(x, 0, (size_t)n * sizeof *x); }

/* In a round without vectors there are none. */
static double *lend_sums(const link_work *l, int32_t t, int32_t which, const char *name, double *sums, int64_t n)
{
    clear(sums, n);
    return tn_motion_out(l->m, t, which, name, sums, (size_t)n * sizeof *sums, 8);
}

static void partial(void *arg, int64_t index, int32_t t)
{
    link_work *l = arg;
    link_piece *chunk = &l->chunks[l->m->options.backwards ? l->chunk_count - 1 - index : index];
    const link_round *round = &l->round[l->at_round];
    const link_cell *cell = chunk->cell;
    size_t at = (size_t)chunk->lo * l->each, bytes = (size_t)chunk->n * l->each;
    int64_t rows = chunk->rows * round->rows, columns = cell->columns * round->columns;
    tn_partial out = {.struct_size = sizeof out};
    tn_piece piece = piece_of(l, t, cell, chunk->lo, chunk->n);
    piece.g = tn_motion_in(l->m, t, G, "g", cell->g + at, bytes, 64);
    if (l->stage == LINK_UPDATE)
        piece.d = (void *)tn_motion_in(l->m, t, D, "d", cell->step + at, bytes, 64);
    piece.slot = lend_slots(l, t, cell, chunk->lo, chunk->n, 0);
    out.scalars = lend_sums(l, t, SCALARS, "scalars", chunk->scalars, round->scalars);
    out.rows = rows ? lend_sums(l, t, ROWS, "rows", chunk->sum_rows, rows) : NULL;
    out.columns = columns ? lend_sums(l, t, COLUMNS, "columns", chunk->sum_columns, columns) : NULL;
    const tn_piece *call = tn_motion_in(l->m, t, CALL, "the piece", &piece, sizeof piece, 8);
    const tn_partial *to = tn_motion_in(l->m, t, OUT, "the partial", &out, sizeof out, 8);
    tn_motion_enter(l->m, t, "partial");
    l->table.partial(call, to);
    tn_motion_leave(l->m, t, "partial", 1);
    memcpy(chunk->scalars, out.scalars, (size_t)round->scalars * sizeof(double));
    if (rows)
        memcpy(chunk->sum_rows, out.rows, (size_t)rows * sizeof(double));
    if (columns)
        memcpy(chunk->sum_columns, out.columns, (size_t)columns * sizeof(double));
}

/* ---- sums ---- */

static double larger(double a, double b)
{
    double x = isnan(b) ? INFINITY : b;
    return x > a ? x : a;
}

static void join(int32_t max, double *to, const double *from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = max ? larger(to[i], from[i]) : to[i] + from[i];
}

/* One scalar over all chunks, or those of one cell. */
static double sum_scalar(const link_work *l, const link_cell *of, int32_t scalar)
{
    const link_round *round = &l->round[l->at_round];
    double most = 0;
    tn_exact sum = {0};
    for (const link_piece *chunk = l->chunks; chunk < l->chunks + l->chunk_count; chunk++) {
        if (of && chunk->cell != of)
            continue;
        most = larger(most, chunk->scalars[scalar]);
        tn_exact_add(&sum, chunk->scalars[scalar]);
    }
    return round->max ? most : tn_exact_value(&sum);
}

static int32_t all_finite(const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return 0;
    return 1;
}

static void sum_vectors(const link_work *l, link_cell *cell)
{
    const link_round *round = &l->round[l->at_round];
    clear(cell->row_sums, cell->rows * round->rows);
    clear(cell->column_sums, cell->columns * round->columns);
    for (const link_piece *chunk = l->chunks; chunk < l->chunks + l->chunk_count; chunk++) {
        if (chunk->cell != cell)
            continue;
        join(round->max, cell->row_sums + chunk->row * round->rows, chunk->sum_rows, chunk->rows * round->rows);
        join(round->max, cell->column_sums, chunk->sum_columns, cell->columns * round->columns);
    }
}

/* Into every cell; 1 if all are finite. */
static int32_t sum_round(const link_work *l)
{
    const link_round *round = &l->round[l->at_round];
    int32_t finite = 1;
    for (link_cell *cell = l->cells; cell < l->cells + l->count; cell++) {
        for (int32_t s = 0; s < round->scalars; s++)
            cell->sums[s] = sum_scalar(l, round->tensor ? cell : NULL, s);
        sum_vectors(l, cell);
        finite &= all_finite(cell->sums, round->scalars) && all_finite(cell->row_sums, cell->rows * round->rows) &&
                  all_finite(cell->column_sums, cell->columns * round->columns);
    }
    return finite;
}

/* ---- fold ---- */

static int32_t folds(const link_slot *slot, int32_t tensor)
{
    return slot->copy && (tensor ? slot->shape < TN_SHAPE_ITEM : slot->shape == TN_SHAPE_GLOBAL);
}

static const double *lend_vector(const link_work *l, int32_t which, const char *name, const double *sums, int64_t n)
{
    return n ? tn_motion_in(l->m, 0, which, name, sums, (size_t)n * sizeof *sums, 8) : NULL;
}

/* `of`: whose slots they are; k is perhaps another cell's. */
static void fold(const link_work *l, link_cell *of, char *k)
{
    const link_round *round = &l->round[l->at_round];
    void *list[LINK_SLOTS] = {NULL};
    size_t reports = (size_t)l->reports * sizeof(double);
    tn_fold call = {.struct_size = sizeof call, .round = l->at_round, .hyper = lend_hyper(l, 0)};
    for (int32_t j = 0; j < of->slots; j++)
        if (folds(&of->slot[j], round->tensor))
            list[j] = tn_motion_out(l->m, 0, SLOT + j, of->slot[j].name, of->slot[j].copy, of->slot[j].bytes, 64);
    call.clock = lend_clock(l, 0);
    call.parameter = round->tensor ? lend_parameter(l, 0, slice_of(of, 0)) : NULL;
    call.sums = tn_motion_in(l->m, 0, SCALARS, "sums", of->sums, (size_t)round->scalars * sizeof(double), 8);
    call.rows = lend_vector(l, ROWS, "rows", of->row_sums, of->rows * round->rows);
    call.columns = lend_vector(l, COLUMNS, "columns", of->column_sums, of->columns * round->columns);
    call.k = tn_motion_out(l->m, 0, K, "k", k, l->k_bytes, 8);
    call.slot = tn_motion_in(l->m, 0, LIST, "the list of slots", list, sizeof list, 8);
    call.report = tn_motion_out(l->m, 0, REPORT, "report", l->report, reports, 8);
    const tn_fold *lent = tn_motion_in(l->m, 0, CALL, "the fold", &call, sizeof call, 8);
    tn_motion_enter(l->m, 0, "fold");
    l->table.fold(lent);
    tn_motion_leave(l->m, 0, "fold", 1);
    memcpy(k, call.k, l->k_bytes);
    memcpy(l->report, call.report, reports);
    for (int32_t j = 0; j < of->slots; j++)
        if (list[j])
            memcpy(of->slot[j].copy, list[j], of->slot[j].bytes);
}

static void start_globals(link_cell *first)
{
    for (int32_t j = 0; j < first->slots; j++)
        if (first->slot[j].shape == TN_SHAPE_GLOBAL)
            memcpy(first->slot[j].copy, first->slot[j].data, first->slot[j].bytes);
}

/* At scope model once for each k, each time with the global slots of before: here there is one clock. */
static void fold_round(const link_work *l)
{
    int32_t tensor = l->round[l->at_round].tensor;
    for (int64_t i = 0; i < (l->per_tensor ? l->count : 1); i++) {
        if (!tensor && i > 0 && l->at_round == 0)
            start_globals(l->cells);
        fold(l, tensor ? &l->cells[i] : l->cells, l->per_tensor ? l->cells[i].k : l->k);
    }
}

/* 1 unless a sum was not finite. */
static int32_t run_rounds(link_work *l)
{
    int32_t finite = 1;
    for (l->at_round = 0; l->at_round < l->rounds && finite; l->at_round++) {
        tn_pool_run(l->m->pool, partial, l, l->chunk_count);
        finite = sum_round(l);
        if (finite)
            fold_round(l);
    }
    l->at_round = 0;
    return finite;
}

/* ---- update ---- */

static void name_call(const link_work *l, const link_piece *work, char *ret, size_t size)
{
    snprintf(ret, size, "update of %s, elements %lld to %lld, step %lld", work->cell->name, (long long)work->lo,
             (long long)(work->lo + work->n), (long long)l->m->steps);
}

static void update(void *arg, int64_t index, int32_t t)
{
    link_work *l = arg;
    const link_piece *work = &l->pieces[l->m->options.backwards ? l->piece_count - 1 - index : index];
    const link_cell *cell = work->cell;
    char what[160];
    int64_t n = (work->n + 15) / 16 * 16;
    size_t at = (size_t)work->lo * l->each, bytes = (size_t)n * l->each;
    const char *before = l->stage == LINK_UPDATE || l->stage == LINK_WRITE ? cell->step + at : NULL;
    tn_piece piece = piece_of(l, t, cell, work->lo, n);
    if (l->stage < LINK_WRITE)
        piece.g = tn_motion_in(l->m, t, G, "g", cell->g + at, bytes, 64);
    if (l->stage != LINK_AFTER)
        piece.d = tn_motion_out(l->m, t, D, "d", before, bytes, 64);
    if (l->stage >= LINK_WRITE)
        piece.scale = l->stage == LINK_WRITE ? 0.99 : 1;
    piece.slot = lend_slots(l, t, cell, work->lo, n, 1);
    piece.scratch = l->scratch ? tn_motion_out(l->m, t, SCRATCH, "scratch", NULL, (size_t)l->scratch, 64) : NULL;
    const tn_piece *call = tn_motion_in(l->m, t, CALL, "the piece", &piece, sizeof piece, 8);
    name_call(l, work, what, sizeof what);
    tn_motion_enter(l->m, t, what);
    l->table.update(call);
    tn_motion_leave(l->m, t, "update", 1);
    if (piece.d)
        memcpy(cell->d + at, piece.d, bytes);
    if (piece.slot)
        take_slots(l, cell, work->lo, n, piece.slot);
}

/* ---- whole matrices ---- */

/* Each row of a box between the cell's d and the item's. */
static void move_item(const link_work *l, const link_item *item, char *whole, int32_t out)
{
    int64_t row = 0;
    for (int32_t b = 0; b < item->boxes; b++)
        for (int64_t r = 0; r < item->box[b].rows; r++, row++) {
            const tn_box *box = &item->box[b];
            char *to = whole + (size_t)(row * item->columns) * l->each;
            char *from = item->weight->d + (size_t)((box->row + r) * item->weight->columns + box->column) * l->each;
            memcpy(out ? from : to, out ? to : from, (size_t)box->columns * l->each);
        }
    for (int64_t r = 0; r < item->rows && item->bias; r++) {
        char *to = whole + (size_t)(r * item->columns + item->columns - 1) * l->each;
        char *from = item->bias->d + (size_t)r * l->each;
        memcpy(out ? from : to, out ? to : from, l->each);
    }
}

static const tn_compute *lend_compute(const link_work *l)
{
    const tn_compute compute = tn_compute_open((tn_compute_host *)&l->compute);
    return tn_motion_in(l->m, 0, COMPUTE, "compute", &compute, sizeof compute, 8);
}

/* All items' slots of one number, one behind the other; or back. */
static void *gather_slot(const link_work *l, const link_item *first, size_t count, int32_t j)
{
    const link_slot *slot = &first->weight->slot[j];
    size_t each = tn_motion_item_bytes(l, first, slot->shape);
    char *to = tn_motion_out(l->m, 0, SLOT + j, slot->name, NULL, count * each, 64);
    for (size_t i = 0; i < count; i++)
        memcpy(to + i * each, first[i].slot[j], each);
    return to;
}

static void scatter_slot(const link_work *l, link_item *first, size_t count, int32_t j, const char *from)
{
    size_t each = tn_motion_item_bytes(l, first, first->weight->slot[j].shape);
    for (size_t i = 0; i < count; i++)
        memcpy(first[i].slot[j], from + i * each, each);
}

static int64_t workspace_of(const link_work *l, const link_item *item)
{
    const void *hyper = lend_hyper(l, 0);
    return l->matrix.workspace ? l->matrix.workspace(hyper, item->rows, item->columns) : 0;
}

static void apply(const link_work *l, link_item *first, size_t count)
{
    void *list[LINK_SLOTS] = {NULL};
    size_t each = (size_t)(first->rows * first->columns) * l->each;
    tn_matrix_call call = {.struct_size = sizeof call,
                           .count = (int32_t)count,
                           .rows = first->rows,
                           .columns = first->columns,
                           .hyper = lend_hyper(l, 0),
                           .k = lend_k(l, 0, first->weight->k),
                           .clock = lend_clock(l, 0),
                           .context = lend_context(l, 0),
                           .compute = lend_compute(l),
                           .parameter = lend_parameter(l, 0, &first->weight->parameter),
                           .tapped = first->tapped};
    call.d = tn_motion_out(l->m, 0, D, "d", NULL, count * each, 64);
    for (size_t i = 0; i < count; i++)
        move_item(l, &first[i], (char *)call.d + i * each, 0);
    for (int32_t j = 0; j < first->weight->slots; j++)
        list[j] = first->slot[j] ? gather_slot(l, first, count, j) : NULL;
    call.slot = tn_motion_in(l->m, 0, LIST, "the list of slots", list, sizeof list, 8);
    call.workspace = tn_motion_out(l->m, 0, SCRATCH, "workspace", NULL, count * (size_t)workspace_of(l, first), 64);
    const tn_matrix_call *lent = tn_motion_in(l->m, 0, CALL, "the call", &call, sizeof call, 8);
    tn_motion_enter(l->m, 0, "apply");
    l->matrix.apply(lent);
    tn_motion_leave(l->m, 0, "apply", 1);
    for (size_t i = 0; i < count; i++)
        move_item(l, &first[i], (char *)call.d + i * each, 1);
    for (int32_t j = 0; j < first->weight->slots; j++)
        if (list[j])
            scatter_slot(l, first, count, j, list[j]);
}

static int32_t is_like(const link_work *l, const link_item *a, const link_item *b)
{
    return a->rows == b->rows && a->columns == b->columns && !a->bias == !b->bias && !l->m->options.cut &&
           a->weight->k == b->weight->k;
}

static void apply_all(link_work *l)
{
    for (size_t i = 0, n; i < l->item_count; i += n) {
        for (n = 1; i + n < l->item_count && is_like(l, &l->items[i], &l->items[i + n]); n++)
            ;
        apply(l, &l->items[i], n);
    }
    l->compute.failed = 0;
}

/* ---- taps ---- */

typedef struct {
    tn_tensor tensor;
    int64_t shape[2], strides[2];
} tap_tensor;

/* [SAMPLES, columns] of numbers that depend on the step. */
static const tn_tensor *lend_tensor(const link_work *l, int32_t data, int32_t tensor, const char *name, int64_t index,
                                    int64_t columns)
{
    size_t bytes = (size_t)(SAMPLES * columns) * l->each;
    char *x = tn_motion_out(l->m, 0, data, name, NULL, bytes, 64);
    tap_tensor *t = tn_motion_out(l->m, 0, tensor, name, NULL, sizeof *t, 8);
    for (int64_t i = 0; i < SAMPLES * columns; i++)
        tn_motion_set(l->real, x, i, tn_motion_noise(index, i, 3 * l->m->steps + 7));
    *t = (tap_tensor){.shape = {SAMPLES, columns}, .strides = {columns, 1}};
    t->tensor = (tn_tensor){x, {TN_CPU, 0}, 2, {TN_FLOAT, (uint8_t)l->real, 1}, t->shape, t->strides, 0};
    l->m->desk[0].loan[data].how = l->m->desk[0].loan[tensor].how = TN_LEND_IN;
    return &t->tensor;
}

static int32_t is_tapped(const link_item *item, int32_t j)
{
    return item->slot[j] && item->weight->slot[j].flags & TN_SLOT_TAPPED;
}

static void clear_tapped(const link_work *l, const link_item *item)
{
    for (int32_t j = 0; j < item->weight->slots; j++)
        if (is_tapped(item, j))
            memset(item->slot[j], 0, tn_motion_item_bytes(l, item, item->weight->slot[j].shape));
}

static void tap(const link_work *l, link_item *item)
{
    void *list[LINK_SLOTS] = {NULL};
    int64_t at = item->weight->index, columns = item->columns - (item->bias != NULL);
    clear_tapped(l, item);
    for (int32_t j = 0; j < item->weight->slots; j++)
        list[j] = is_tapped(item, j) ? gather_slot(l, item, 1, j) : NULL;
    tn_tap_call call = {.struct_size = sizeof call,
                        .bias = item->bias != NULL,
                        .hyper = lend_hyper(l, 0),
                        .context = lend_context(l, 0),
                        .compute = lend_compute(l),
                        .n = SAMPLES,
                        .x = lend_tensor(l, X, X_TENSOR, "x", 100 + at, columns),
                        .dy = lend_tensor(l, DY, DY_TENSOR, "dy", 200 + at, item->rows),
                        .seed = 0.125};
    call.slot = tn_motion_in(l->m, 0, LIST, "the list of slots", list, sizeof list, 8);
    call.workspace = tn_motion_out(l->m, 0, SCRATCH, "workspace", NULL, (size_t)workspace_of(l, item), 64);
    const tn_tap_call *lent = tn_motion_in(l->m, 0, CALL, "the call", &call, sizeof call, 8);
    tn_motion_enter(l->m, 0, "tap");
    l->matrix.tap(lent);
    tn_motion_leave(l->m, 0, "tap", 1);
    for (int32_t j = 0; j < item->weight->slots; j++)
        if (list[j])
            scatter_slot(l, item, 1, j, list[j]);
    item->tapped = SAMPLES;
}

static void tap_all(const link_work *l)
{
    for (link_item *item = l->items; item < l->items + l->item_count; item++) {
        item->tapped = 0;
        if (!l->matrix.tapping || !l->matrix.tap)
            continue;
        const void *hyper = lend_hyper(l, 0);
        const tn_clock *clock = lend_clock(l, 0);
        tn_motion_enter(l->m, 0, "tapping");
        int32_t wants = l->matrix.tapping(hyper, clock);
        tn_motion_leave(l->m, 0, "tapping", 1);
        if (wants != TN_TAP_NONE)
            tap(l, item);
    }
}

/* ---- a step ---- */

/* What becomes of a parameter. */
static void move(const link_work *l, link_cell *cell, double scale, double keep)
{
    for (int64_t i = 0; i < cell->n; i++) {
        double p = tn_motion_get(l->real, cell->p, i), g = SCALE * tn_motion_get(l->real, cell->g, i);
        double d = l->table.update ? tn_motion_get(l->real, cell->d, i) : 0;
        switch (l->stage) {
        case LINK_SOURCE:
            p -= 0.01 * g;
            break;
        case LINK_GRADIENT:
            p -= 0.05 * scale * (l->table.update ? d : g);
            break;
        case LINK_RULE:
            p = keep * p + d;
            break;
        case LINK_UPDATE:
            p = keep * p + (l->table.update ? d : tn_motion_get(l->real, cell->step, i));
            break;
        default:
            p = l->table.update ? d : p;
        }
        tn_motion_set(l->real, cell->p, i, p);
    }
}

static void commit(const link_work *l)
{
    for (link_cell *cell = l->cells; cell < l->cells + l->count; cell++) {
        double scale = factor_of(l, l->table.scale, "scale", cell->k);
        double keep = factor_of(l, l->table.keep, "keep", cell->k);
        if (l->stage != LINK_AFTER)
            move(l, cell, scale, keep);
        for (int32_t j = 0; j < cell->slots; j++)
            if (cell->slot[j].copy)
                memcpy(cell->slot[j].data, cell->slot[j].copy, cell->slot[j].bytes);
    }
}

static void step(tn_motion *m)
{
    link_work *l = m->own;
    for (int64_t i = 0; i < l->count; i++)
        set_inputs(l, &l->cells[i]);
    tap_all(l);
    begin_all(l);
    m->skipped = !run_rounds(l);
    if (m->skipped)
        return;
    if (l->table.update)
        tn_pool_run(m->pool, update, l, l->piece_count);
    if (l->is_matrix)
        apply_all(l);
    commit(l);
}

/* ---- opening ---- */

static int32_t read_note(link_work *l, tn_error *err)
{
    static const char *const stages[] = {"source", "gradient", "rule", "update", "write", "after"};
    const json_t *facts = l->m->subject->info->facts, *rounds = json_object_get(facts, "rounds"), *object;
    const char *stage = tn_fact_text(facts, "stage", ""), *grain = tn_fact_text(facts, "grain", "element");
    l->stage = -1;
    for (int32_t i = 0; i < 6; i++)
        l->stage = strcmp(stages[i], stage) == 0 ? i : l->stage;
    l->is_layer = strcmp(grain, "layer") == 0;
    l->is_matrix = l->is_layer || strcmp(grain, "matrix") == 0;
    l->reports = (int64_t)json_array_size(json_object_get(facts, "reports"));
    for (size_t i = 0; (object = json_array_get(rounds, i)); i++) {
        if (l->rounds == LINK_ROUNDS)
            return tn_error_set(err, TN_E_PLUGIN, "more than %d rounds, which no check drives", LINK_ROUNDS);
        link_round *round = &l->round[l->rounds++];
        round->tensor = strcmp(tn_fact_text(object, "scope", ""), "tensor") == 0;
        round->max = strcmp(tn_fact_text(object, "reduce", "sum"), "max") == 0;
        round->scalars = (int32_t)json_integer_value(json_object_get(object, "scalars"));
        round->rows = (int32_t)json_integer_value(json_object_get(object, "rows"));
        round->columns = (int32_t)json_integer_value(json_object_get(object, "columns"));
        l->per_tensor |= round->tensor;
    }
    return TN_OK;
}

static int32_t check_table(const link_work *l, tn_error *err)
{
    const tn_optimizer *t = &l->table;
    const char *wrong = l->stage < 0                             ? "its note has no stage"
                        : t->constants_bytes > TN_CONSTANTS_MAX  ? "its constants are larger than 512 bytes"
                        : l->rounds && (!t->partial || !t->fold) ? "it has rounds but no partial or no fold"
                        : l->is_matrix != (t->matrix != NULL)    ? "tn_matrix goes with grain matrix or layer"
                        : l->is_matrix && (!l->matrix.apply || !t->update)
                            ? "a rule of matrices without apply or update"
                        : l->stage == LINK_RULE && !t->update ? "it is a rule without update"
                                                              : NULL;
    return wrong ? tn_error_set(err, TN_E_PLUGIN, "%s; see rule update-runs", wrong) : TN_OK;
}

static int32_t load_backend(link_work *l, tn_error *err)
{
    const tn_entry_info *entry;
    tn_registry *registry = l->m->subject->registry;
    int32_t status = tn_registry_find(registry, "backend", "reference", "cpu", 0, &entry, err);
    if (status == TN_OK)
        status = tn_registry_load(registry, entry, &l->backend, sizeof l->backend, err);
    l->compute = (tn_compute_host){.backend = &l->backend, .pool = l->m->pool};
    return status;
}

static int32_t open(tn_motion *m, tn_error *err)
{
    link_work *l = m->own = tn_alloc(1, sizeof *l);
    if (!l)
        return tn_error_set(err, TN_E_MEMORY, "no memory for a component at work");
    l->m = m;
    l->real = m->instance->real;
    l->each = l->real / 8;
    int32_t status = tn_registry_load(m->subject->registry, m->subject->entry, &l->table, sizeof l->table, err);
    if (status == TN_OK)
        status = read_note(l, err);
    if (status == TN_OK && l->table.matrix)
        tn_take(&l->matrix, sizeof l->matrix, l->table.matrix);
    if (status == TN_OK)
        status = check_table(l, err);
    if (status == TN_OK && l->is_matrix)
        status = load_backend(l, err);
    return status ? status : tn_motion_link_plan(l, err);
}

static void close(tn_motion *m)
{
    link_work *l = m->own;
    for (size_t i = 0; l && i < l->block_count; i++)
        tn_free(l->blocks[i]);
    if (l) {
        tn_free(l->blocks);
        tn_free(l->items);
    }
    tn_free(l);
}

const tn_motion_kind tn_motion_link = {open, step, close};

/* ---- what became of a number ---- */

static bool shows(const link_work *l, uint32_t real, const char *data, size_t bytes)
{
    (void)l;
    for (int64_t i = 0; data && i < (int64_t)(bytes * 8 / real); i++)
        if (!isfinite(tn_motion_get(real, data, i)))
            return true;
    return false;
}

static bool cell_shows(const link_work *l, const link_cell *cell)
{
    size_t bytes = (size_t)cell->n * l->each;
    bool is_shown = (l->stage != LINK_AFTER && shows(l, l->real, cell->p, bytes)) ||
                    (l->stage == LINK_SOURCE && shows(l, l->real, cell->d, bytes));
    for (int32_t j = 0; j < cell->slots && !is_shown; j++)
        is_shown =
            shows(l, cell->slot[j].shape <= TN_SHAPE_COLUMNS ? l->real : 64, cell->slot[j].data, cell->slot[j].bytes);
    return is_shown;
}

const char *tn_motion_link_lost(const tn_motion *m)
{
    const link_work *l = m->own;
    for (int64_t i = 0; i < l->count && !m->skipped; i++)
        if (l->cells[i].n > 0 && (l->stage != LINK_AFTER || l->cells[i].slots) && !cell_shows(l, &l->cells[i]))
            return l->cells[i].name;
    return NULL;
}

bool tn_motion_link_is_matrix(const tn_motion *m)
{
    return m->kind == &tn_motion_link && ((const link_work *)m->own)->is_matrix;
}
