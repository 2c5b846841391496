/* SPDX-License-Identifier: Apache-2.0
 *
 * rounds.c: the reductions before the first write: partial over chunks, sums or maxima over threads and processes,
 * fold.
 *
 * Scalars are summed exactly. Rows and columns are f64: a thread adds those of a band, whole chunks of the logical
 * tensor's grid, in order; then bands are added in order, then processes. So their bits depend on shapes and on how the
 * parameters are cut over processes. Maxima have no order; NaN joins them as inf, so that no other number hides it.
 */
#include <math.h>
#include <string.h>

#include "host/update/internal.h"

/* ---- partial ---- */

/* 1 where this process leaves a parameter to the first one, which holds the same: it must enter a shared sum once. */
static int left_to_first(const tn_chain *chain, const tn_link *link, int64_t parameter)
{
    return link->shared && chain->rank > 0 && chain->parameters->list[parameter].replicas >= chain->size;
}

/* The part of a matrix view that a chunk touches: rows from `row` on, columns from `column` on. */
typedef struct window {
    int64_t row, rows, column, columns, width;
} window;

static window window_of(const tn_parameter *parameter, int64_t lo, int64_t n)
{
    int64_t height, width;
    tn_layout_view(parameter, &height, &width);
    if (!width)
        return (window){0};
    window w = {lo / width, (lo + n - 1) / width - lo / width + 1, lo % width, n, width};
    if (w.column + n > width) {
        w.column = 0;
        w.columns = width;
    }
    return w;
}

static void add_to(double *restrict to, const double *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] += from[i];
}

static void raise_to(double *restrict to, const double *restrict from, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        double x = isnan(from[i]) ? INFINITY : from[i];
        to[i] = x > to[i] ? x : to[i];
    }
}

static void join(const tn_round *round, double *restrict to, const double *restrict from, int64_t n)
{
    if (round->max)
        raise_to(to, from, n);
    else
        add_to(to, from, n);
}

/* Adds what a chunk left to its band's sums; the thread's columns are 0 between calls. */
static void add_vectors(const tn_pass *pass, const tn_part *part, const window *w, const tn_thread *own)
{
    const tn_chain *chain = pass->chain;
    const tn_round *round = &pass->link->rounds[pass->round];
    const tn_band *band = &chain->bands[part->band];
    double *rows = chain->band_rows + (band->rows + w->row - band->row) * round->rows;
    double *columns = chain->band_columns + (band->columns + w->column) * round->columns;
    double *left = own->columns + w->column * round->columns;
    join(round, rows, own->rows, w->rows * round->rows);
    join(round, columns, left, w->columns * round->columns);
    memset(left, 0, (size_t)(w->columns * round->columns) * sizeof *left);
}

static void add_chunk(const tn_pass *pass, const tn_part *part, int64_t at, const tn_piece *piece, const tn_thread *own)
{
    const tn_chain *chain = pass->chain;
    const tn_round *round = &pass->link->rounds[pass->round];
    const window w = part->band < 0 ? (window){0} : window_of(piece->parameter, piece->lo, piece->n);
    const tn_partial out = {.struct_size = sizeof out,
                            .scalars = own->scalars,
                            .rows = w.width && round->rows ? own->rows : NULL,
                            .columns = w.width && round->columns ? own->columns : NULL};
    size_t scalars = (size_t)round->scalars;
    memset(own->scalars, 0, scalars * sizeof *own->scalars);
    if (out.rows)
        memset(own->rows, 0, (size_t)(w.rows * round->rows) * sizeof *own->rows);
    pass->link->table.partial(piece, &out);
    if (w.width)
        add_vectors(pass, part, &w, own);
    if (round->tensor) {
        size_t to = (size_t)(chain->chunk_at[part->parameter] + at / TN_CHUNK) * scalars;
        memcpy(chain->chunk_sums + to, own->scalars, scalars * sizeof *own->scalars);
        return;
    }
    if (round->max)
        raise_to(own->maxima, own->scalars, (int64_t)scalars);
    for (size_t s = 0; s < scalars && !round->max; s++)
        tn_exact_add(&own->sums[s], own->scalars[s]);
}

/* Neighbouring bands share a row of the tensor, not of memory. */
static void clear_band(const tn_pass *pass, const tn_part *part)
{
    const tn_chain *chain = pass->chain;
    const tn_round *round = &pass->link->rounds[pass->round];
    const tn_parameter *parameter = &chain->parameters->list[part->parameter];
    const window w = window_of(parameter, parameter->lo + part->at, part->n);
    if (part->band < 0 || !w.width)
        return;
    const tn_band *band = &chain->bands[part->band];
    memset(chain->band_rows + band->rows * round->rows, 0, (size_t)(w.rows * round->rows) * sizeof(double));
    memset(chain->band_columns + band->columns * round->columns, 0,
           (size_t)(w.width * round->columns) * sizeof(double));
}

static void round_part(const tn_pass *pass, const tn_part *part, int32_t thread)
{
    tn_chain *chain = pass->chain;
    tn_thread *own = &chain->threads[thread];
    tn_run run;
    if (!pass->link->active[part->parameter] || left_to_first(chain, pass->link, part->parameter))
        return;
    tn_run_open(chain, part->parameter, TN_RUN_DRY, pass->link, own, &run);
    tn_call *call = &run.calls[run.count];
    tn_call_open(chain, pass->link, part->parameter, own, call);
    call->piece.round = pass->round;
    call->piece.scale = run.scale;
    clear_band(pass, part);
    for (int64_t at = part->at, end = at + part->n, n; at < end; at += n) {
        int64_t lo = run.p.lo + at;
        n = tn_smaller(TN_CHUNK, end - at);
        tn_run_dry(&run, lo, n);
        tn_call_load(call, lo, n, own);
        call->piece.lo = lo;
        call->piece.n = n;
        call->piece.p = run.block;
        call->piece.g = run.buffer[run.gradient];
        call->piece.d = run.stepped ? run.buffer[TN_BUFFER_D] : NULL;
        add_chunk(pass, part, at, &call->piece, own);
    }
}

/* ---- fold ---- */

int64_t tn_set_count(const tn_chain *chain, const tn_link *link)
{
    return link->per_tensor ? chain->parameters->count : chain->clock_count;
}

const tn_clock *tn_set_clock(const tn_chain *chain, const tn_link *link, int64_t set)
{
    if (!link->used[set])
        return NULL;
    return &chain->clock[link->per_tensor ? chain->clock_of[set] : set];
}

/* What fold may write: of a tensor all slots that are not like-shaped, of the model global ones. */
static void fold_slots(const tn_link *link, int64_t parameter, int32_t tensor, void **slot)
{
    const tn_slot_list *slots = &link->slots[parameter];
    for (int32_t j = 0; j < slots->count; j++) {
        const tn_arena *arena = slots->arena[j] < 0 ? NULL : &link->arenas[slots->arena[j]];
        slot[j] = arena && arena->copy && (tensor || arena->shape == TN_SHAPE_GLOBAL) ? tn_arena_copy(arena, parameter)
                                                                                      : NULL;
    }
}

/* Reports are what the last fold leaves. */
static void call_fold(tn_chain *chain, tn_link *link, int64_t set, tn_fold *fold)
{
    for (size_t j = 0; j < link->report_count; j++)
        chain->report[j] = link->reports[j].value;
    fold->struct_size = sizeof *fold;
    fold->hyper = link->instance->hyper;
    fold->clock = tn_set_clock(chain, link, set);
    fold->k = link->k + (size_t)set * link->k_size;
    fold->report = chain->report;
    link->table.fold(fold);
    for (size_t j = 0; j < link->report_count; j++)
        link->reports[j].value = chain->report[j];
}

/* ---- scope model ---- */

/* Rounds the sums, once; 1 if all are finite. */
static int32_t settle(const tn_exact *sums, int32_t scalars, double *to)
{
    int32_t finite = 1;
    for (int32_t s = 0; s < scalars; s++) {
        to[s] = tn_exact_value(&sums[s]);
        finite &= isfinite(to[s]) != 0;
    }
    return finite;
}

/* Each fold of the model gets the global slots as they were before the first. */
static void copy_globals(const tn_link *link, int32_t back)
{
    for (tn_arena *arena = link->arenas; arena < link->arenas + link->arena_count; arena++)
        if (arena->spare)
            memcpy(back ? arena->copy : arena->spare, back ? arena->spare : arena->copy, (size_t)arena->bytes);
}

/* Over the processes, where they share the link. */
static int32_t share(const tn_chain *chain, const tn_link *link, double *values, int64_t count, int32_t reduce,
                     tn_error *err)
{
    static const tn_dtype f64 = {TN_FLOAT, 64, 1};
    return link->shared && count ? tn_comm_all_reduce(chain->options.comm, f64, values, count, reduce, err) : TN_OK;
}

static int32_t sum_model(tn_chain *chain, const tn_link *link, int32_t scalars, int32_t *ret_finite, tn_error *err)
{
    tn_exact *sums = chain->threads[0].sums;
    for (int32_t t = 1; t < tn_pool_threads(chain->options.pool); t++)
        for (int32_t s = 0; s < scalars; s++)
            tn_exact_merge(&sums[s], &chain->threads[t].sums[s]);
    int32_t status = link->shared ? tn_comm_sum_exact(chain->options.comm, sums, scalars, err) : TN_OK;
    *ret_finite = !status && settle(sums, scalars, chain->sums);
    return status;
}

static int32_t max_model(tn_chain *chain, const tn_link *link, int32_t scalars, int32_t *ret_finite, tn_error *err)
{
    memset(chain->sums, 0, (size_t)scalars * sizeof *chain->sums);
    for (int32_t t = 0; t < tn_pool_threads(chain->options.pool); t++)
        raise_to(chain->sums, chain->threads[t].maxima, scalars);
    int32_t status = share(chain, link, chain->sums, scalars, TN_REDUCE_MAX, err);
    *ret_finite = !status && tn_kernel_finite(64, chain->sums, scalars);
    return status;
}

static int32_t fold_model(tn_chain *chain, tn_link *link, int32_t at, int32_t *ret_finite, tn_error *err)
{
    const tn_round *round = &link->rounds[at];
    int32_t folds = 0;
    int32_t status = (round->max ? max_model : sum_model)(chain, link, round->scalars, ret_finite, err);
    if (status || !*ret_finite)
        return status;
    copy_globals(link, 0);
    for (int64_t set = 0; set < tn_set_count(chain, link); set++) {
        void *slot[TN_CHAIN_SLOTS] = {NULL};
        if (!tn_set_clock(chain, link, set))
            continue;
        if (folds++)
            copy_globals(link, 1);
        fold_slots(link, link->first, 0, slot);
        call_fold(chain, link, set, &(tn_fold){.round = at, .sums = chain->sums, .slot = slot});
    }
    return TN_OK;
}

/* ---- scope tensor ---- */

/* Sums of the tensors from `from` to `to`, one batch. */
static int32_t sum_batch(tn_chain *chain, const tn_link *link, int32_t scalars, int64_t from, int64_t to,
                         int32_t *ret_finite, tn_error *err)
{
    int64_t count = (to - from) * scalars;
    memset(chain->exact, 0, (size_t)count * sizeof *chain->exact);
    for (int64_t i = from; i < to; i++)
        for (int64_t at = chain->chunk_at[i] * scalars; at < chain->chunk_at[i + 1] * scalars && link->active[i] &&
                                                        chain->parameters->present[i] && !left_to_first(chain, link, i);
             at++)
            tn_exact_add(&chain->exact[(i - from) * scalars + at % scalars], chain->chunk_sums[at]);
    int32_t status = link->shared ? tn_comm_sum_exact(chain->options.comm, chain->exact, count, err) : TN_OK;
    if (!status)
        *ret_finite &= settle(chain->exact, (int32_t)count, chain->tensor_sums + from * scalars);
    return status;
}

static int32_t sum_tensors(tn_chain *chain, const tn_link *link, int32_t scalars, int32_t *ret_finite, tn_error *err)
{
    int64_t batch = scalars ? chain->exact_count / scalars : 0, count = chain->parameters->count;
    int32_t status = TN_OK;
    for (int64_t i = 0; i < count && scalars && !status; i += batch)
        status = sum_batch(chain, link, scalars, i, tn_smaller(i + batch, count), ret_finite, err);
    return status;
}

static int32_t max_tensors(tn_chain *chain, const tn_link *link, int32_t scalars, int32_t *ret_finite, tn_error *err)
{
    int64_t count = chain->parameters->count * scalars;
    memset(chain->tensor_sums, 0, (size_t)count * sizeof *chain->tensor_sums);
    for (int64_t i = 0; i < chain->parameters->count; i++)
        for (int64_t at = chain->chunk_at[i]; at < chain->chunk_at[i + 1] && link->active[i] &&
                                              chain->parameters->present[i] && !left_to_first(chain, link, i);
             at++)
            raise_to(chain->tensor_sums + i * scalars, chain->chunk_sums + at * scalars, scalars);
    int32_t status = share(chain, link, chain->tensor_sums, count, TN_REDUCE_MAX, err);
    *ret_finite &= !status && tn_kernel_finite(64, chain->tensor_sums, count);
    return status;
}

/* Where a parameter's sums stand: its rows, then its columns. */
static double *vectors_of(const tn_chain *chain, const tn_round *round, int64_t i)
{
    return chain->vectors + chain->rows_at[i] * round->rows + chain->columns_at[i] * round->columns;
}

static void add_bands(void *arg, int64_t i, int32_t thread)
{
    const tn_pass *pass = arg;
    const tn_chain *chain = pass->chain;
    const tn_round *round = &pass->link->rounds[pass->round];
    int64_t height = chain->rows_at[i + 1] - chain->rows_at[i], width = chain->columns_at[i + 1] - chain->columns_at[i];
    double *rows = vectors_of(chain, round, i), *columns = rows + height * round->rows;
    (void)thread;
    memset(rows, 0, (size_t)(height * round->rows + width * round->columns) * sizeof *rows);
    if (!pass->link->active[i] || !chain->parameters->present[i] || left_to_first(chain, pass->link, i) || !width)
        return;
    for (const tn_band *band = chain->bands + chain->band_at[i]; band < chain->bands + chain->band_at[i + 1]; band++) {
        const tn_parameter *parameter = &chain->parameters->list[i];
        const window w = window_of(parameter, parameter->lo + band->part.at, band->part.n);
        join(round, rows + w.row * round->rows, chain->band_rows + band->rows * round->rows, w.rows * round->rows);
        join(round, columns, chain->band_columns + band->columns * round->columns, width * round->columns);
    }
}

static int32_t sum_vectors(tn_pass *pass, int32_t *ret_finite, tn_error *err)
{
    tn_chain *chain = pass->chain;
    const tn_round *round = &pass->link->rounds[pass->round];
    if (!round->rows && !round->columns)
        return TN_OK;
    tn_pool_run(chain->options.pool, add_bands, pass, chain->parameters->count);
    int64_t count = vectors_of(chain, round, chain->parameters->count) - chain->vectors;
    int32_t reduce = round->max ? TN_REDUCE_MAX : TN_REDUCE_SUM;
    int32_t status = share(chain, pass->link, chain->vectors, count, reduce, err);
    *ret_finite &= tn_kernel_finite(64, chain->vectors, count);
    return status;
}

static void fold_tensor(tn_chain *chain, tn_link *link, int32_t round_at, int64_t i)
{
    const tn_round *round = &link->rounds[round_at];
    void *slot[TN_CHAIN_SLOTS] = {NULL};
    tn_fold fold = {.round = round_at,
                    .parameter = &chain->parameters->list[i],
                    .sums = chain->tensor_sums + i * round->scalars,
                    .slot = slot};
    int64_t rows, columns;
    tn_layout_view(fold.parameter, &rows, &columns);
    fold_slots(link, i, 1, slot);
    if (fold.parameter->ndim >= 2 && round->rows)
        fold.rows = vectors_of(chain, round, i);
    if (fold.parameter->ndim >= 2 && round->columns)
        fold.columns = vectors_of(chain, round, i) + rows * round->rows;
    call_fold(chain, link, i, &fold);
}

static int32_t fold_tensors(tn_pass *pass, int32_t *ret_finite, tn_error *err)
{
    tn_chain *chain = pass->chain;
    *ret_finite = 1;
    const tn_round *round = &pass->link->rounds[pass->round];
    int32_t status = (round->max ? max_tensors : sum_tensors)(chain, pass->link, round->scalars, ret_finite, err);
    if (!status)
        status = sum_vectors(pass, ret_finite, err);
    for (int64_t i = 0; i < chain->parameters->count && !status && *ret_finite; i++)
        if (tn_set_clock(chain, pass->link, i))
            fold_tensor(chain, pass->link, pass->round, i);
    return status;
}

/* ---- rounds ---- */

static int32_t do_round(tn_chain *chain, tn_link *link, int32_t at, int32_t *ret_finite, tn_error *err)
{
    const tn_round *round = &link->rounds[at];
    tn_pass pass = {.chain = chain, .work = round_part, .link = link, .round = at};
    for (int32_t t = 0; t < tn_pool_threads(chain->options.pool); t++)
        memset(round->max ? (void *)chain->threads[t].maxima : chain->threads[t].sums, 0,
               (size_t)round->scalars * (round->max ? sizeof(double) : sizeof(tn_exact)));
    if (round->rows || round->columns)
        tn_pass_bands(&pass);
    else
        tn_pass_run(&pass);
    return round->tensor ? fold_tensors(&pass, ret_finite, err) : fold_model(chain, link, at, ret_finite, err);
}

int32_t tn_rounds(tn_chain *chain, tn_link *link, int32_t *ret_finite, tn_error *err)
{
    int32_t status = TN_OK;
    *ret_finite = 1;
    for (size_t round = 0; round < link->round_count && !status && *ret_finite; round++)
        status = do_round(chain, link, (int32_t)round, ret_finite, err);
    return status;
}
