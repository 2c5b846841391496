/* SPDX-License-Identifier: Apache-2.0
 *
 * step.c: one update: sources, rounds, the vote, then one pass over memory that runs the whole chain.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "host/update/internal.h"

/* ---- the vote ---- */

static void check_part(const tn_pass *pass, const tn_part *part, int32_t thread)
{
    const tn_chain *chain = pass->chain;
    int64_t *bad = &chain->threads[thread].bad;
    tn_operand g = tn_chain_g(chain, part->parameter);
    for (int64_t at = g.lo + part->at, end = at + part->n, n; at < end && part->parameter < *bad; at += n) {
        n = tn_smaller(TN_CHUNK, end - at);
        if (!tn_kernel_finite(chain->parameters->real,
                              tn_operand_load(&g, at, n, chain->threads[thread].buffer[TN_BUFFER_G]), n))
            *bad = part->parameter;
    }
}

int64_t tn_find_bad(tn_chain *chain)
{
    tn_pass p = {.chain = chain, .work = check_part};
    int64_t first = INT64_MAX;
    for (int32_t t = 0; t < tn_pool_threads(chain->options.pool); t++)
        chain->threads[t].bad = INT64_MAX;
    tn_pass_run(&p);
    for (int32_t t = 0; t < tn_pool_threads(chain->options.pool); t++)
        first = tn_smaller(first, chain->threads[t].bad);
    return first == INT64_MAX ? -1 : first;
}

/* The first one of all processes. */
static int32_t first_bad(tn_chain *chain, int64_t *ret, tn_error *err)
{
    static const tn_dtype f64 = {TN_FLOAT, 64, 1};
    int64_t bad = tn_find_bad(chain);
    double last = bad < 0 ? -INFINITY : -(double)bad;
    int32_t status = tn_comm_all_reduce(chain->options.comm, f64, &last, 1, TN_REDUCE_MAX, err);
    *ret = isinf(last) ? -1 : -(int64_t)last;
    return status;
}

/* Skips together what one process must skip. */
static int32_t vote(tn_chain *chain, int32_t finite, tn_step_result *ret, tn_error *err)
{
    int64_t bad = -1;
    int32_t skip = !finite || (chain->check && tn_find_bad(chain) >= 0);
    int32_t status = chain->voting ? tn_comm_any(chain->options.comm, skip, &skip, err) : TN_OK;
    if (!status && skip)
        status = first_bad(chain, &bad, err);
    if (!status)
        *ret = (tn_step_result){!skip, bad, NULL};
    return status;
}

/* ---- clocks and constants ---- */

static int64_t clock_at(tn_chain *chain, int64_t t, int64_t attempt)
{
    int64_t c = chain->clock_count;
    while (c > 0 && chain->clock[c - 1].t != t)
        c--;
    if (c > 0)
        return c - 1;
    chain->clock[chain->clock_count] =
        (tn_clock){sizeof(tn_clock), 0, t, chain->update, attempt, chain->options.services};
    return chain->clock_count++;
}

static void set_clocks(tn_chain *chain, int64_t attempt)
{
    chain->clock_count = 0;
    for (int64_t i = 0; i < chain->parameters->count; i++)
        if (chain->parameters->present[i])
            chain->clock_of[i] = clock_at(chain, chain->clocks[i] + 1, attempt);
}

static void begin(tn_chain *chain, tn_link *link, int64_t attempt)
{
    link->context.attempt = attempt;
    link->context.update = chain->update;
    memset(link->used, 0, (size_t)chain->parameters->count);
    for (int64_t i = 0; i < chain->parameters->count; i++)
        if (chain->parameters->present[i] && link->active[i])
            link->used[link->per_tensor ? i : chain->clock_of[i]] = 1;
    for (int64_t set = 0; set < tn_set_count(chain, link); set++) {
        const tn_clock *clock = tn_set_clock(chain, link, set);
        void *k = link->k + (size_t)set * link->k_size;
        memset(k, 0, link->k_size);
        if (clock && link->table.begin)
            link->table.begin(link->instance->hyper, clock, k);
    }
    tn_link_copy(link);
}

/* Links of stage source, or the others. */
static void begin_links(tn_chain *chain, int32_t sources, int64_t attempt)
{
    set_clocks(chain, attempt);
    for (tn_link *link = chain->links; link < chain->links + chain->link_count; link++)
        if ((link->stage == TN_LINK_SOURCE) == sources && link->slots)
            begin(chain, link, attempt);
}

static void forget_reports(tn_chain *chain)
{
    for (size_t j = 0; j < chain->report_count; j++)
        chain->reports[j].value = NAN;
}

static void commit(tn_chain *chain)
{
    for (tn_link *link = chain->links; link < chain->links + chain->link_count; link++)
        tn_link_commit(link);
    for (int64_t i = 0; i < chain->parameters->count; i++)
        chain->clocks[i] += chain->parameters->present[i] != 0;
    chain->update++;
}

/* ---- before the vote ---- */

static int32_t do_sources(tn_chain *chain, int32_t *ret_finite, tn_error *err)
{
    int32_t status = TN_OK;
    for (tn_link *link = chain->links; link < chain->links + chain->link_count && !status && *ret_finite; link++)
        if (link->stage == TN_LINK_SOURCE) {
            status = tn_source(chain, link, ret_finite, err);
            if (!status) /* so that all go on, or none */
                status = tn_comm_any(chain->options.comm, !*ret_finite, ret_finite, err), *ret_finite = !*ret_finite;
        }
    return status;
}

static int32_t do_rounds(tn_chain *chain, int32_t late, int32_t *ret_finite, tn_error *err)
{
    int32_t status = TN_OK;
    for (tn_link *link = chain->links; link < chain->links + chain->link_count && !status && *ret_finite; link++)
        if (link->stage != TN_LINK_SOURCE && link->late == late)
            status = tn_rounds(chain, link, ret_finite, err);
    return status;
}

/* ---- rules for whole matrices, after the vote ---- */

static const tn_clock *clock_of(void *user, int64_t parameter)
{
    const tn_chain *chain = user;
    return &chain->clock[chain->clock_of[parameter]];
}

typedef struct matrix_step {
    tn_chain *chain;
    const tn_link *link;
} matrix_step;

static const tn_clock *items_clock(void *user, int64_t parameter)
{
    return clock_of(((const matrix_step *)user)->chain, parameter);
}

static const void *items_k(void *user, int64_t parameter)
{
    const matrix_step *step = user;
    return tn_link_k(step->chain, step->link, parameter);
}

static int32_t apply_items(tn_chain *chain, tn_error *err)
{
    int32_t status = TN_OK;
    for (tn_link *link = chain->links; link < chain->links + chain->link_count && !status; link++) {
        matrix_step user = {chain, link};
        const tn_items_step step = {.d = chain->step, .user = &user, .clock = items_clock, .k = items_k};
        if (link->items)
            status = tn_items_apply(link->items, &step, err);
    }
    return status;
}

/* The steps of rules for whole matrices, which then lie in chain->step, and the rounds that need them. */
static int32_t do_matrices(tn_chain *chain, tn_step_result *ret, tn_error *err)
{
    int32_t finite = 1, late = 0;
    tn_pass p = {.chain = chain, .work = tn_run_step};
    for (size_t i = 0; i < chain->link_count; i++)
        late |= chain->links[i].late && chain->links[i].round_count;
    tn_pass_run(&p);
    int32_t status = apply_items(chain, err);
    if (!status)
        status = do_rounds(chain, 1, &finite, err);
    if (!status && late)
        status = tn_comm_any(chain->options.comm, !finite, &finite, err), finite = !finite;
    if (!status)
        ret->committed = finite;
    return status;
}

/* ---- the step ---- */

static int32_t check_arguments(const tn_chain *chain, double scale, tn_error *err)
{
    const tn_parameters *parameters = chain->parameters;
    const void *p = parameters->p_of || chain->options.p.table ? NULL : parameters->p;
    const void *g = parameters->g_of || chain->options.g.table ? NULL : parameters->g;
    if (!isfinite(scale))
        return tn_error_set(err, TN_E_NUMERIC, "update: the gradient's scale is %g, needed a finite number", scale);
    if (((uintptr_t)p | (uintptr_t)g) % 64)
        return tn_error_set(err, TN_E_INVALID, "update: p is at %p and g at %p, needed multiples of 64 bytes",
                            parameters->p, parameters->g);
    return TN_OK;
}

static int32_t minimize(tn_chain *chain, const tn_step *step, tn_step_result *ret, tn_error *err)
{
    tn_link *link = &chain->links[chain->minimizer_at];
    const tn_clock clock = {sizeof clock,
                            0,
                            chain->parameters->count ? chain->clocks[0] + 1 : chain->update + 1,
                            chain->update,
                            step->attempt,
                            chain->options.services};
    int32_t committed;
    for (size_t j = 0; j < link->report_count; j++)
        chain->report[j] = NAN;
    begin_links(chain, 0, step->attempt);
    int32_t status =
        tn_minimizer_step(chain->minimizer, step, &clock, link->report_count ? chain->report : NULL, &committed, err);
    if (status)
        return status;
    *ret = (tn_step_result){committed, -1, NULL};
    if (!committed && tn_minimizer_rejected(chain->minimizer))
        ret->rejected = link->instance->handle;
    else if (!committed)
        ret->bad_parameter = tn_find_bad(chain);
    for (size_t j = 0; j < link->report_count && committed; j++)
        link->reports[j].value = chain->report[j];
    if (committed) {
        tn_pass p = {.chain = chain, .work = tn_run_after};
        tn_pass_run(&p);
        commit(chain);
    }
    return TN_OK;
}

static int32_t update(tn_chain *chain, const tn_step *step, tn_step_result *ret, tn_error *err)
{
    int32_t finite = 1;
    begin_links(chain, 1, step->attempt);
    int32_t status = do_sources(chain, &finite, err);
    begin_links(chain, 0, step->attempt);
    if (!status && finite)
        status = do_rounds(chain, 0, &finite, err);
    if (!status)
        status = vote(chain, finite, ret, err);
    if (!status && ret->committed && chain->step)
        status = do_matrices(chain, ret, err);
    if (!status && ret->committed) {
        tn_pass p = {.chain = chain, .work = tn_run_write};
        tn_pass_run(&p);
        commit(chain);
    }
    return status;
}

int32_t tn_chain_step(tn_chain *chain, const tn_step *step, tn_step_result *ret, tn_error *err)
{
    tn_step_result result = {0, -1, NULL};
    int32_t status = check_arguments(chain, step->scale, err);
    if (status)
        return status;
    chain->scale = step->scale;
    chain->context.attempt = step->attempt;
    chain->next_attempt = step->attempt + 1;
    chain->context.update = chain->update;
    forget_reports(chain);
    status = chain->minimizer ? minimize(chain, step, &result, err) : update(chain, step, &result, err);
    if (status || !result.committed)
        forget_reports(chain);
    if (!status)
        *ret = result;
    return status;
}

void tn_chain_skip(tn_chain *chain, int64_t attempt)
{
    chain->next_attempt = attempt + 1;
    forget_reports(chain);
}

/* ---- taps ---- */

int32_t tn_chain_tapping(tn_chain *chain)
{
    int32_t taps = TN_TAP_NONE;
    for (tn_link *link = chain->links; link < chain->links + chain->link_count; link++)
        if (link->items)
            taps = tn_items_tapping(link->items, chain->clocks, chain->update, chain->next_attempt, taps);
    return taps;
}

void tn_chain_tap(tn_chain *chain, int64_t weight, const tn_tensor *x, const tn_tensor *dy, double seed)
{
    for (tn_link *link = chain->links; link < chain->links + chain->link_count; link++)
        if (link->items && link->active[weight])
            tn_items_tap(link->items, weight, x, dy, seed);
}
