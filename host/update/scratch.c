/* SPDX-License-Identifier: Apache-2.0
 *
 * scratch.c: what steps need beyond state: each thread's buffers, sums of rounds, backups.
 */
#include <inttypes.h>

#include "host/base/memory.h"
#include "host/update/internal.h"

static int32_t no_memory(tn_error *err) { return tn_error_set(err, TN_E_MEMORY, "update: no memory for the chain"); }

typedef struct sizes {
    size_t link, scalars, reports, chunk_scalars, vectors_rows, vectors_columns, slots;
} sizes;

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static void count_rounds(const tn_link *link, sizes *s)
{
    for (const tn_round *round = link->rounds; round < link->rounds + link->round_count; round++) {
        s->scalars = larger(s->scalars, (size_t)round->scalars);
        s->chunk_scalars = larger(s->chunk_scalars, round->tensor ? larger((size_t)round->scalars, 1) : 0);
        s->vectors_rows = larger(s->vectors_rows, (size_t)round->rows);
        s->vectors_columns = larger(s->vectors_columns, (size_t)round->columns);
    }
}

static sizes largest(const tn_chain *chain)
{
    sizes s = {.scalars = 1, .reports = 1};
    for (const tn_link *link = chain->links; link < chain->links + chain->link_count; link++) {
        s.link = larger(s.link, ((size_t)link->scratch + 63) / 64 * 64);
        s.reports = larger(s.reports, link->report_count);
        for (int64_t i = 0; i < chain->parameters->count && link->slots; i++)
            s.slots = larger(s.slots, (size_t)link->slots[i].count);
        count_rounds(link, &s);
    }
    return s;
}

/* ---- threads ---- */

/* Buffers of a chunk that begin at different places of a page, see state.c. */
static size_t buffer_bytes(const tn_chain *chain) { return TN_CHUNK * chain->real + 17 * 64; }

static void make_thread(const tn_chain *chain, const sizes *s, char *at, tn_thread *own)
{
    size_t buffer = buffer_bytes(chain), scalars = (s->scalars * sizeof(double) + 63) / 64 * 64;
    own->p = at;
    for (int i = 0; i < TN_BUFFER_NONE; i++)
        own->buffer[i] = at += buffer;
    for (size_t i = 0; i < s->slots; i++)
        own->slot[i] = at += buffer;
    own->scratch = at += buffer;
    own->scalars = (double *)(at += s->link);
    own->maxima = (double *)(at += scalars);
    own->sums = (tn_exact *)(at += scalars);
    own->calls = (tn_call *)(at + s->scalars * sizeof(tn_exact));
}

static int32_t make_threads(tn_chain *chain, const sizes *s, tn_error *err)
{
    size_t threads = (size_t)tn_pool_threads(chain->options.pool);
    size_t scalars = (s->scalars * sizeof(double) + 63) / 64 * 64, sums = s->scalars * sizeof(tn_exact);
    size_t calls = ((chain->link_count + 1) * sizeof(tn_call) + 63) / 64 * 64;
    size_t each = (1 + TN_BUFFER_NONE + s->slots) * buffer_bytes(chain) + s->link + 2 * scalars + sums + calls;
    each = (each + 4095) / 4096 * 4096 + 9 * 64;
    chain->threads = tn_alloc(threads, sizeof *chain->threads);
    chain->scratch = tn_alloc_aligned(threads * each);
    if (!chain->threads || !chain->scratch)
        return no_memory(err);
    for (size_t t = 0; t < threads; t++)
        make_thread(chain, s, (char *)chain->scratch + t * each, &chain->threads[t]);
    return TN_OK;
}

/* ---- sums of tensors ---- */

#define BATCH 1024 /* exact sums that processes add at a time; at least the scalars of a round */

static int32_t make_chunk_sums(tn_chain *chain, const sizes *s, tn_error *err)
{
    size_t count = (size_t)chain->parameters->count;
    if (!s->chunk_scalars)
        return TN_OK;
    chain->exact_count = chain->size > 1 ? BATCH : (int64_t)s->chunk_scalars;
    chain->chunk_at = tn_alloc(count + 1, sizeof *chain->chunk_at);
    chain->tensor_sums = tn_alloc(count * s->chunk_scalars, sizeof *chain->tensor_sums);
    chain->exact = tn_alloc((size_t)chain->exact_count, sizeof *chain->exact);
    if (!chain->chunk_at || !chain->tensor_sums || !chain->exact)
        return no_memory(err);
    for (size_t i = 0; i < count; i++)
        chain->chunk_at[i + 1] = chain->chunk_at[i] + (chain->parameters->list[i].n + TN_CHUNK - 1) / TN_CHUNK;
    chain->chunk_sums = tn_alloc((size_t)chain->chunk_at[count] * s->chunk_scalars, sizeof *chain->chunk_sums);
    return chain->chunk_sums ? TN_OK : no_memory(err);
}

/* 1 if a round sums rows or columns of the parameter; all its rounds then go by bands. */
static int in_bands(const tn_chain *chain, int64_t parameter)
{
    for (const tn_link *link = chain->links; link < chain->links + chain->link_count; link++)
        for (size_t r = 0; r < link->round_count && link->active[parameter]; r++)
            if (link->rounds[r].rows || link->rounds[r].columns)
                return 1;
    return 0;
}

/* Counts the bands, or sets them as well. Returns partial rows and columns of one vector. */
static void walk_bands(tn_chain *chain, tn_band *bands, int64_t *ret_rows, int64_t *ret_columns)
{
    int64_t rows = 0, columns = 0, count = 0;
    for (int64_t i = 0; i < chain->parameters->count; i++) {
        const tn_parameter *parameter = &chain->parameters->list[i];
        int64_t height, width, n = in_bands(chain, i) ? tn_layout_bands(parameter) : 0;
        tn_layout_view(parameter, &height, &width);
        chain->band_at[i] = count;
        for (int64_t b = 0; b < n; b++, count++) {
            tn_part part = tn_layout_band(parameter, b);
            int64_t lo = parameter->lo + part.at, first = width ? lo / width : 0;
            part.parameter = i;
            part.band = count;
            if (bands)
                bands[count] = (tn_band){part, first, rows, columns};
            rows += width ? (lo + part.n - 1) / width - first + 1 : 0;
            columns += width;
        }
        chain->rows_at[i + 1] = chain->rows_at[i] + (in_bands(chain, i) ? height : 0);
        chain->columns_at[i + 1] = chain->columns_at[i] + (in_bands(chain, i) ? width : 0);
    }
    chain->band_at[chain->parameters->count] = count;
    *ret_rows = rows;
    *ret_columns = columns;
}

/* Of each thread, what one partial leaves. */
static int32_t make_thread_sums(tn_chain *chain, const sizes *s, tn_error *err)
{
    size_t threads = (size_t)tn_pool_threads(chain->options.pool), widest = 0;
    for (int64_t i = 0; i < chain->parameters->count; i++)
        widest = larger(widest, (size_t)(chain->columns_at[i + 1] - chain->columns_at[i]));
    size_t rows = ((TN_CHUNK + 1) * s->vectors_rows + 15) / 16 * 16;
    size_t each = rows + (widest * s->vectors_columns + 15) / 16 * 16;
    if (!(chain->thread_sums = tn_alloc_aligned(threads * each * sizeof(double))))
        return no_memory(err);
    for (size_t t = 0; t < threads; t++) {
        chain->threads[t].rows = chain->thread_sums + t * each;
        chain->threads[t].columns = chain->threads[t].rows + rows;
    }
    return TN_OK;
}

static int32_t make_bands(tn_chain *chain, const sizes *s, tn_error *err)
{
    size_t count = (size_t)chain->parameters->count;
    int64_t rows, columns;
    if (!s->vectors_rows && !s->vectors_columns)
        return TN_OK;
    chain->band_at = tn_alloc(count + 1, sizeof *chain->band_at);
    chain->rows_at = tn_alloc(count + 1, sizeof *chain->rows_at);
    chain->columns_at = tn_alloc(count + 1, sizeof *chain->columns_at);
    if (!chain->band_at || !chain->rows_at || !chain->columns_at)
        return no_memory(err);
    walk_bands(chain, NULL, &rows, &columns);
    chain->bands = tn_alloc((size_t)chain->band_at[count], sizeof *chain->bands);
    chain->band_rows = tn_alloc((size_t)rows * s->vectors_rows, sizeof *chain->band_rows);
    chain->band_columns = tn_alloc((size_t)columns * s->vectors_columns, sizeof *chain->band_columns);
    chain->vectors = tn_alloc((size_t)chain->rows_at[count] * s->vectors_rows +
                                  (size_t)chain->columns_at[count] * s->vectors_columns,
                              sizeof *chain->vectors);
    if (!chain->bands || !chain->band_rows || !chain->band_columns || !chain->vectors)
        return no_memory(err);
    walk_bands(chain, chain->bands, &rows, &columns);
    return make_thread_sums(chain, s, err);
}

/* ---- whole copies of p and d ---- */

static int32_t make_backup(tn_chain *chain, tn_error *err)
{
    int64_t count = chain->parameters->count;
    if (!chain->link_count || chain->links[0].stage != TN_LINK_SOURCE)
        return TN_OK;
    chain->moved = tn_alloc((size_t)count, 1);
    if (!chain->moved || !(chain->backup_at = tn_alloc((size_t)count + 1, sizeof *chain->backup_at)))
        return no_memory(err);
    for (int64_t i = 0; i < count; i++) {
        int64_t bytes = tn_codec_bytes(chain->options.p.table, chain->parameters->real, chain->parameters->list[i].n);
        chain->backup_at[i + 1] = chain->backup_at[i] + (bytes + 63) / 64 * 64;
    }
    chain->backup = tn_alloc_aligned((size_t)chain->backup_at[count]);
    return chain->backup ? TN_OK : no_memory(err);
}

static int32_t make_step(tn_chain *chain, tn_error *err)
{
    int32_t needed = 0;
    for (size_t i = 0; i < chain->link_count; i++)
        needed |= chain->links[i].items != NULL;
    if (!needed)
        return TN_OK;
    if (!(chain->step_block = tn_alloc_aligned((size_t)chain->parameters->elements * chain->real + 64)))
        return no_memory(err);
    chain->step = chain->step_block;
    return TN_OK;
}

int32_t tn_scratch_create(tn_chain *chain, tn_error *err)
{
    size_t count = (size_t)chain->parameters->count;
    sizes s = largest(chain);
    chain->clocks = tn_alloc(count, sizeof *chain->clocks);
    chain->clock = tn_alloc(count + 1, sizeof *chain->clock);
    chain->clock_of = tn_alloc(count, sizeof *chain->clock_of);
    chain->sums = tn_alloc(s.scalars, sizeof *chain->sums);
    chain->report = tn_alloc(s.reports, sizeof *chain->report);
    if (!chain->clocks || !chain->clock || !chain->clock_of || !chain->sums || !chain->report)
        return no_memory(err);
    int32_t status = make_threads(chain, &s, err);
    if (!status)
        status = make_chunk_sums(chain, &s, err);
    if (!status)
        status = make_bands(chain, &s, err);
    if (!status)
        status = make_backup(chain, err);
    if (!status)
        status = make_step(chain, err);
    return status;
}

void tn_scratch_free(tn_chain *chain)
{
    void *const blocks[] = {
        chain->clocks,      chain->clock,        chain->clock_of, chain->sums,       chain->report,
        chain->threads,     chain->scratch,      chain->chunk_at, chain->exact,      chain->chunk_sums,
        chain->tensor_sums, chain->bands,        chain->band_at,  chain->rows_at,    chain->columns_at,
        chain->band_rows,   chain->band_columns, chain->vectors,  chain->step_block, chain->backup,
        chain->backup_at,   chain->moved,        chain->cuts,     chain->p_key,      chain->thread_sums};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        tn_free(blocks[i]);
}
