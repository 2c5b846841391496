/* SPDX-License-Identifier: Apache-2.0
 *
 * step.c: one update. Rounds, vote, then one pass over memory that runs the whole chain block by block. What is done
 * for a chunk depends on that chunk only, so neither the number of threads nor the cuts change a bit.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "host/update/internal.h"

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- passes over the elements ---- */

/* n elements of a parameter's slice from element `at` on. */
typedef struct tn_part {
    int64_t parameter, at, n;
} tn_part;

typedef struct tn_pass tn_pass;
struct tn_pass {
    tn_chain *chain;
    void (*work)(const tn_pass *pass, const tn_part *part, int32_t thread);
    const tn_link *link; /* of a round */
    int32_t round;
};

static void do_item(void *arg, int64_t index, int32_t thread)
{
    const tn_pass *p = arg;
    const tn_parameters *parameters = p->chain->parameters;
    const tn_cut *from = &p->chain->cuts[index], *to = from + 1;
    for (int64_t i = from->parameter; i < parameters->count && i <= to->parameter; i++) {
        int64_t at = i == from->parameter ? from->at : 0, end = i == to->parameter ? to->at : parameters->list[i].n;
        tn_part part = {i, at, end - at};
        if (parameters->present[i] && at < end)
            p->work(p, &part, thread);
    }
}

static void run(tn_pass *p) { tn_pool_run(p->chain->options.pool, do_item, p, p->chain->item_count); }

/* The place of a part's first element in an arena of the layout. */
static void *place(const tn_chain *chain, const void *arena, const tn_part *part)
{
    return (char *)arena + (size_t)(chain->parameters->at[part->parameter] + part->at) * chain->real;
}

/* A piece with all but the round, the gradient, d and scratch. `slot` has room for TN_CHAIN_SLOTS pointers. */
static tn_piece piece_of(const tn_chain *chain, const tn_link *link, const tn_part *part, int64_t n, void **slot)
{
    const tn_parameter *parameter = &chain->parameters->list[part->parameter];
    const tn_slot_list *slots = &link->slots[part->parameter];
    for (int32_t j = 0; j < slots->count; j++)
        slot[j] = place(chain, link->arenas[slots->arena[j]].data, part);
    return (tn_piece){.struct_size = sizeof(tn_piece),
                      .parameter = parameter,
                      .context = &link->context,
                      .hyper = link->instance->hyper,
                      .k = tn_link_k(chain, link, part->parameter),
                      .lo = parameter->lo + part->at,
                      .n = n,
                      .scale = 1,
                      .p = place(chain, chain->parameters->p, part),
                      .slot = slots->count ? slot : NULL};
}

static double scale_of(const tn_chain *chain, const tn_link *link, int64_t parameter)
{
    return link->table.scale ? link->table.scale(tn_link_k(chain, link, parameter)) : 1;
}

static double keep_of(const tn_chain *chain, const tn_link *link, int64_t parameter)
{
    return link->table.keep ? link->table.keep(tn_link_k(chain, link, parameter)) : 1;
}

/* ---- the write pass ---- */

/* What stays the same for all blocks of a part. */
typedef struct tn_run {
    tn_call *calls; /* of the thread; the first `before` come before the write, those up to `count` after it */
    int32_t before, count;
    int32_t set; /* 1: a link has left in d what p becomes */
    double keep;
    char *p;
} tn_run;

/* The gradient as the next link reads it: scale * g. */
typedef struct tn_gradient {
    const void *g;
    double scale;
    int32_t in_arena; /* 0: in a buffer of the thread */
    int32_t next;     /* which of its two buffers is free */
} tn_gradient;

static tn_call *add_call(tn_chain *chain, const tn_link *link, const tn_part *part, tn_thread *own, tn_run *run)
{
    tn_call *call = &run->calls[run->count++];
    *call = (tn_call){.update = link->table.update, .slots = link->slots[part->parameter].count};
    call->piece = piece_of(chain, link, part, 0, call->slot);
    call->piece.scratch = own->scratch;
    return call;
}

/* The one call that writes in the host's stead. */
static void connect_write(tn_thread *own, tn_run *run, tn_call *call)
{
    call->piece.d = own->d;
    call->piece.scale = run->keep;
    run->set = 1;
}

/* A call before the write: what it reads and where it puts its result. */
static void connect(const tn_link *link, tn_thread *own, tn_gradient *gradient, tn_call *call)
{
    call->piece.g = gradient->g;
    call->piece.scale = gradient->scale;
    call->piece.d = own->d;
    call->g_in_arena = gradient->in_arena;
    if (link->stage == TN_LINK_GRADIENT) {
        call->piece.d = own->gradient[gradient->next];
        *gradient = (tn_gradient){call->piece.d, 1, 0, !gradient->next};
    }
}

static void prepare(tn_chain *chain, const tn_part *part, tn_thread *own, tn_run *run)
{
    tn_gradient gradient = {place(chain, chain->parameters->g, part), chain->scale, 1, 0};
    *run = (tn_run){.calls = own->calls, .keep = 1, .p = place(chain, chain->parameters->p, part)};
    for (const tn_link *link = chain->links; link < chain->links + chain->link_count; link++) {
        tn_call *call = link->table.update ? add_call(chain, link, part, own, run) : NULL;
        if (link->stage == TN_LINK_AFTER)
            continue;
        run->before = run->count;
        if (call && link->stage == TN_LINK_WRITE)
            connect_write(own, run, call);
        else if (call)
            connect(link, own, &gradient, call);
        gradient.scale *= scale_of(chain, link, part->parameter);
        run->keep *= keep_of(chain, link, part->parameter);
    }
}

static void advance(tn_call *call, int64_t n, size_t bytes)
{
    call->piece.lo += n;
    call->piece.p = (const char *)call->piece.p + bytes;
    if (call->g_in_arena)
        call->piece.g = (const char *)call->piece.g + bytes;
    for (int32_t j = 0; j < call->slots; j++)
        call->slot[j] = (char *)call->slot[j] + bytes;
}

static void do_calls(tn_call *calls, int32_t count, int64_t n, size_t bytes)
{
    for (tn_call *call = calls; call < calls + count; call++) {
        call->piece.n = n;
        call->update(&call->piece);
        advance(call, n, bytes);
    }
}

static void write_part(const tn_pass *pass, const tn_part *part, int32_t thread)
{
    tn_chain *chain = pass->chain;
    tn_thread *own = &chain->threads[thread];
    tn_run run;
    prepare(chain, part, own, &run);
    for (int64_t left = part->n, n; left > 0; left -= n) {
        n = smaller(TN_CHAIN_BLOCK, left);
        /* The padding's content never matters; whole multiples spare vector code its tails. */
        int64_t padded = (n + TN_CHAIN_PAD - 1) / TN_CHAIN_PAD * TN_CHAIN_PAD;
        size_t bytes = (size_t)n * chain->real;
        do_calls(run.calls, run.before, padded, bytes);
        if (run.set)
            memcpy(run.p, own->d, bytes);
        else
            tn_kernel_add(chain->parameters->real, run.p, own->d, run.keep, n);
        do_calls(run.calls + run.before, run.count - run.before, padded, bytes);
        run.p += bytes;
    }
}

/* ---- rounds ---- */

static void add_chunk(const tn_pass *pass, const tn_part *chunk, const tn_piece *piece, const tn_thread *own)
{
    const tn_round *round = &pass->link->rounds[pass->round];
    const tn_partial out = {.struct_size = sizeof out, .scalars = own->scalars};
    size_t scalars = (size_t)round->scalars;
    memset(own->scalars, 0, scalars * sizeof *own->scalars);
    pass->link->table.partial(piece, &out);
    if (round->tensor) {
        size_t at = (size_t)(pass->chain->chunk_at[chunk->parameter] + chunk->at / TN_CHUNK) * scalars;
        memcpy(pass->chain->chunk_sums + at, own->scalars, scalars * sizeof *own->scalars);
        return;
    }
    for (size_t s = 0; s < scalars; s++)
        tn_exact_add(&own->sums[s], own->scalars[s]);
}

static void round_part(const tn_pass *pass, const tn_part *whole, int32_t thread)
{
    tn_chain *chain = pass->chain;
    double scale = chain->scale;
    tn_part chunk = *whole;
    for (const tn_link *before = chain->links; before < pass->link; before++)
        scale *= scale_of(chain, before, whole->parameter);
    for (int64_t end = whole->at + whole->n; chunk.at < end; chunk.at += chunk.n) {
        void *slot[TN_CHAIN_SLOTS];
        chunk.n = smaller(TN_CHUNK, end - chunk.at);
        tn_piece piece = piece_of(chain, pass->link, &chunk, chunk.n, slot);
        piece.round = pass->round;
        piece.scale = scale;
        piece.g = place(chain, chain->parameters->g, &chunk);
        add_chunk(pass, &chunk, &piece, &chain->threads[thread]);
    }
}

/* Rounds the sums, once; 1 if all are finite. */
static int32_t settle(tn_chain *chain, const tn_exact *sums, int32_t scalars)
{
    int32_t finite = 1;
    for (int32_t s = 0; s < scalars; s++) {
        chain->sums[s] = tn_exact_value(&sums[s]);
        finite &= isfinite(chain->sums[s]) != 0;
    }
    return finite;
}

/* How many sets of constants a link has, and the clock of one; NULL: of a parameter that is absent. */
static int64_t set_count(const tn_chain *chain, const tn_link *link)
{
    return link->per_tensor ? chain->parameters->count : chain->clock_count;
}

static const tn_clock *set_clock(const tn_chain *chain, const tn_link *link, int64_t set)
{
    if (!link->per_tensor)
        return &chain->clock[set];
    return chain->parameters->present[set] ? &chain->clock[chain->clock_of[set]] : NULL;
}

/* Reports are what the last fold leaves: of the model each clock says the same. */
static void fold(tn_chain *chain, tn_link *link, int32_t round, int64_t set)
{
    const tn_clock *clock = set_clock(chain, link, set);
    for (size_t j = 0; j < link->report_count; j++)
        chain->report[j] = link->reports[j].value;
    const tn_fold call = {.struct_size = sizeof call,
                          .round = round,
                          .hyper = link->instance->hyper,
                          .clock = clock,
                          .sums = chain->sums,
                          .k = link->k + (size_t)set * link->k_size,
                          .report = chain->report};
    link->table.fold(&call);
    for (size_t j = 0; j < link->report_count; j++)
        link->reports[j].value = chain->report[j];
}

static int32_t fold_model(tn_chain *chain, tn_link *link, int32_t round)
{
    int32_t scalars = link->rounds[round].scalars;
    tn_exact *sums = chain->threads[0].sums;
    for (int32_t t = 1; t < tn_pool_threads(chain->options.pool); t++)
        for (int32_t s = 0; s < scalars; s++)
            tn_exact_merge(&sums[s], &chain->threads[t].sums[s]);
    if (!settle(chain, sums, scalars))
        return 0;
    for (int64_t set = 0; set < set_count(chain, link); set++)
        if (set_clock(chain, link, set))
            fold(chain, link, round, set);
    return 1;
}

static int32_t fold_tensors(tn_chain *chain, tn_link *link, int32_t round)
{
    int32_t scalars = link->rounds[round].scalars;
    tn_exact *sums = chain->threads[0].sums;
    for (int64_t i = 0; i < chain->parameters->count; i++) {
        if (!chain->parameters->present[i])
            continue;
        memset(sums, 0, (size_t)scalars * sizeof *sums);
        for (int64_t at = chain->chunk_at[i] * scalars; at < chain->chunk_at[i + 1] * scalars; at++)
            tn_exact_add(&sums[at % scalars], chain->chunk_sums[at]);
        if (!settle(chain, sums, scalars))
            return 0;
        fold(chain, link, round, i);
    }
    return 1;
}

/* 1 if all sums of the round are finite. */
static int32_t do_round(tn_chain *chain, tn_link *link, int32_t round)
{
    tn_pass p = {chain, round_part, link, round};
    for (int32_t t = 0; t < tn_pool_threads(chain->options.pool); t++)
        memset(chain->threads[t].sums, 0, (size_t)link->rounds[round].scalars * sizeof(tn_exact));
    run(&p);
    return link->rounds[round].tensor ? fold_tensors(chain, link, round) : fold_model(chain, link, round);
}

static int32_t do_rounds(tn_chain *chain)
{
    for (tn_link *link = chain->links; link < chain->links + chain->link_count; link++)
        for (size_t round = 0; round < link->round_count; round++)
            if (!do_round(chain, link, (int32_t)round))
                return 0;
    return 1;
}

/* ---- the vote ---- */

static void check_part(const tn_pass *pass, const tn_part *part, int32_t thread)
{
    const tn_chain *chain = pass->chain;
    int64_t *bad = &chain->threads[thread].bad;
    if (part->parameter < *bad &&
        !tn_kernel_finite(chain->parameters->real, place(chain, chain->parameters->g, part), part->n))
        *bad = part->parameter;
}

/* The first present parameter whose gradient is not finite, or -1. */
static int64_t find_bad(tn_chain *chain)
{
    tn_pass p = {chain, check_part, NULL, 0};
    int64_t first = INT64_MAX;
    for (int32_t t = 0; t < tn_pool_threads(chain->options.pool); t++)
        chain->threads[t].bad = INT64_MAX;
    run(&p);
    for (int32_t t = 0; t < tn_pool_threads(chain->options.pool); t++)
        first = smaller(first, chain->threads[t].bad);
    return first == INT64_MAX ? -1 : first;
}

/* ---- the step ---- */

static int64_t clock_at(tn_chain *chain, int64_t t, int64_t attempt)
{
    int64_t c = chain->clock_count;
    while (c > 0 && chain->clock[c - 1].t != t)
        c--;
    if (c > 0)
        return c - 1;
    chain->clock[chain->clock_count] = (tn_clock){sizeof(tn_clock), 0, t, chain->update, attempt};
    return chain->clock_count++;
}

static void begin(tn_chain *chain, tn_link *link, int64_t attempt)
{
    link->context.attempt = attempt;
    link->context.update = chain->update;
    for (size_t j = 0; j < link->report_count; j++)
        link->reports[j].value = NAN;
    for (int64_t set = 0; set < set_count(chain, link); set++) {
        const tn_clock *clock = set_clock(chain, link, set);
        void *k = link->k + (size_t)set * link->k_size;
        memset(k, 0, link->k_size);
        if (clock && link->table.begin)
            link->table.begin(link->instance->hyper, clock, k);
    }
}

static void commit(tn_chain *chain)
{
    for (int64_t i = 0; i < chain->parameters->count; i++)
        chain->clocks[i] += chain->parameters->present[i] != 0;
    chain->update++;
}

static int32_t check_arguments(const tn_chain *chain, double scale, tn_error *err)
{
    if (!isfinite(scale))
        return tn_error_set(err, TN_E_NUMERIC, "update: the gradient's scale is %g, needed a finite number", scale);
    if (((uintptr_t)chain->parameters->p | (uintptr_t)chain->parameters->g) % 64)
        return tn_error_set(err, TN_E_INVALID, "update: p is at %p and g at %p, needed multiples of 64 bytes",
                            chain->parameters->p, chain->parameters->g);
    return TN_OK;
}

int32_t tn_chain_step(tn_chain *chain, const tn_step *step, tn_step_result *ret, tn_error *err)
{
    int32_t status = check_arguments(chain, step->scale, err);
    if (status)
        return status;
    chain->scale = step->scale;
    chain->clock_count = 0;
    for (int64_t i = 0; i < chain->parameters->count; i++)
        if (chain->parameters->present[i])
            chain->clock_of[i] = clock_at(chain, chain->clocks[i] + 1, step->attempt);
    for (size_t i = 0; i < chain->link_count; i++)
        begin(chain, &chain->links[i], step->attempt);

    int32_t finite = do_rounds(chain);
    int64_t bad = !finite || chain->check ? find_bad(chain) : -1;
    ret->committed = finite && bad < 0;
    ret->bad_parameter = bad;
    if (ret->committed) {
        tn_pass p = {chain, write_part, NULL, 0};
        run(&p);
        commit(chain);
    }
    return TN_OK;
}
