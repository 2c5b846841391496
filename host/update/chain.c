/* SPDX-License-Identifier: Apache-2.0
 *
 * chain.c: making a chain and looking at it.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/base/text.h"
#include "host/update/internal.h"

static int32_t no_memory(tn_error *err) { return tn_error_set(err, TN_E_MEMORY, "update: no memory for the chain"); }

/* ---- the order of the links ---- */

static int32_t check_handle(const tn_chain *chain, size_t i, tn_error *err)
{
    for (size_t j = 0; j < i; j++)
        if (tn_name_equal(chain->links[j].instance->handle, chain->links[i].instance->handle))
            return tn_error_set(err, TN_E_INVALID,
                                "%s: a link before it is also called '%s'; give one of them another name with `as:`",
                                chain->links[i].instance->path, chain->links[i].instance->handle);
    return TN_OK;
}

/* A round sees the gradient as the links before it leave it, which is known only while they merely scale. */
static int32_t check_round(const tn_chain *chain, size_t i, tn_error *err)
{
    for (size_t j = 0; j < i && chain->links[i].round_count; j++)
        if (chain->links[j].table.update)
            return tn_error_set(
                err, TN_E_UNSUPPORTED,
                "%s: a round behind %s, which changes the gradient, is not driven by this host yet; put "
                "it first",
                chain->links[i].instance->path, chain->links[j].instance->path);
    return TN_OK;
}

static int32_t check_stage(const tn_chain *chain, size_t i, tn_error *err)
{
    const tn_link *link = &chain->links[i], *before = i ? link - 1 : NULL;
    if (before && before->stage > link->stage)
        return tn_error_set(
            err, TN_E_INVALID,
            "%s stands behind %s, needed the order source, gradient, rule, update, write, after; move it",
            link->instance->path, before->instance->path);
    if (before && before->stage == TN_LINK_WRITE && link->stage == TN_LINK_WRITE)
        return tn_error_set(err, TN_E_INVALID, "%s and %s both write the parameters, needed at most one; remove one",
                            before->instance->path, link->instance->path);
    if (before && before->stage == TN_LINK_RULE && link->stage == TN_LINK_RULE)
        return tn_error_set(err, TN_E_INVALID, "%s and %s are both rules, needed exactly one; remove one",
                            before->instance->path, link->instance->path);
    return TN_OK;
}

static int32_t check_order(tn_chain *chain, tn_error *err)
{
    int32_t status = TN_OK, rules = 0;
    chain->check = chain->options.check_finite != 0;
    for (size_t i = 0; i < chain->link_count && !status; i++) {
        rules += chain->links[i].stage == TN_LINK_RULE;
        status = check_stage(chain, i, err);
        if (!status)
            status = check_handle(chain, i, err);
        if (!status)
            status = check_round(chain, i, err);
    }
    if (!status && !rules)
        status =
            tn_error_set(err, TN_E_INVALID, "update: no link is a rule, needed exactly one; add one, such as adamw");
    return status;
}

/* ---- links ---- */

static int32_t open_links(tn_chain *chain, tn_error *err)
{
    int32_t status = TN_OK;
    if (!(chain->links = tn_alloc(chain->options.link_count, sizeof *chain->links)))
        return no_memory(err);
    while (chain->link_count < chain->options.link_count && !status) {
        size_t i = chain->link_count++;
        status = tn_link_open(&chain->options, chain->options.links[i], &chain->links[i], err);
    }
    if (!status)
        status = check_order(chain, err);
    for (size_t i = 0, arenas = 0; i < chain->link_count && !status; i++) {
        status = tn_link_plan(chain->parameters, arenas, &chain->links[i], err);
        arenas += (size_t)chain->links[i].arena_count;
    }
    return status;
}

/* 1 if the link plans the arena for every parameter. */
static int32_t covers(const tn_chain *chain, const tn_link *link, int32_t arena)
{
    int64_t held = 0;
    for (int64_t i = 0; i < chain->parameters->count; i++)
        for (int32_t j = 0; j < link->slots[i].count; j++)
            held += link->slots[i].arena[j] == arena;
    return held == chain->parameters->count;
}

static void warn_of_view(const tn_chain *chain, const tn_link *link)
{
    char text[256];
    const tn_services *services = chain->options.services;
    snprintf(text, sizeof text, "%s: evaluation sees this link's view, not the one of a link before it",
             link->instance->path);
    if (services && services->log)
        services->log(services->host, 2, text);
}

static int32_t find_view(tn_chain *chain, tn_error *err)
{
    for (size_t i = 0; i < chain->link_count; i++) {
        const tn_link *link = &chain->links[i];
        const char *name = tn_fact_text(link->instance->info->facts, "view", NULL);
        int32_t j = 0;
        while (name && j < link->arena_count && strcmp(link->arenas[j].name, name) != 0)
            j++;
        if (name && (j == link->arena_count || !covers(chain, link, j)))
            return tn_error_set(
                err, TN_E_PLUGIN,
                "%s: its view is the slot '%s', which it does not plan for every parameter; correct the "
                "plugin",
                link->instance->path, name);
        if (name && chain->view)
            warn_of_view(chain, link);
        if (name)
            chain->view = &link->arenas[j];
    }
    return TN_OK;
}

static int32_t name_reports(tn_chain *chain, tn_error *err)
{
    size_t count = 0;
    for (size_t i = 0; i < chain->link_count; i++)
        count += chain->links[i].report_count;
    if (!(chain->reports = tn_alloc(count, sizeof *chain->reports)))
        return no_memory(err);
    for (size_t i = 0; i < chain->link_count; i++) {
        tn_link *link = &chain->links[i];
        const json_t *names = json_object_get(link->instance->info->facts, "reports");
        link->reports = chain->reports + chain->report_count;
        for (size_t j = 0; j < link->report_count; j++) {
            tn_report *report = &chain->reports[chain->report_count++];
            report->value = NAN;
            report->name = tn_format("%s.%s", link->instance->handle, json_string_value(json_array_get(names, j)));
            if (!report->name)
                return no_memory(err);
        }
    }
    return TN_OK;
}

static void list_parameter(tn_chain *chain, const tn_link *link, int64_t i)
{
    const tn_parameters *parameters = chain->parameters;
    for (int32_t j = 0; j < link->slots[i].count; j++) {
        const tn_arena *arena = &link->arenas[link->slots[i].arena[j]];
        void *data = arena->data + (size_t)parameters->at[i] * chain->real;
        int64_t n = parameters->list[i].n;
        chain->slots[chain->slot_count++] = (tn_chain_slot){.link = link->instance->handle,
                                                            .slot = arena->name,
                                                            .parameter = i,
                                                            .shape = "like",
                                                            .data = data,
                                                            .elements = n,
                                                            .bytes = n * (int64_t)chain->real,
                                                            .bits = (int32_t)parameters->real,
                                                            .persistent = arena->persistent};
    }
}

static int32_t list_slots(tn_chain *chain, tn_error *err)
{
    size_t count = 0, parameters = (size_t)chain->parameters->count;
    for (size_t l = 0; l < chain->link_count; l++)
        for (size_t i = 0; i < parameters; i++)
            count += (size_t)chain->links[l].slots[i].count;
    if (!(chain->slots = tn_alloc(count, sizeof *chain->slots)))
        return no_memory(err);
    for (size_t l = 0; l < chain->link_count; l++)
        for (size_t i = 0; i < parameters; i++)
            list_parameter(chain, &chain->links[l], (int64_t)i);
    return TN_OK;
}

/* ---- scratch ---- */

typedef struct sizes {
    size_t link, scalars, reports, chunk_scalars;
} sizes;

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static sizes largest(const tn_chain *chain)
{
    sizes s = {0, 1, 1, 0};
    for (size_t i = 0; i < chain->link_count; i++) {
        const tn_link *link = &chain->links[i];
        s.link = larger(s.link, ((size_t)link->scratch + 63) / 64 * 64);
        s.reports = larger(s.reports, link->report_count);
        for (size_t j = 0; j < link->round_count; j++) {
            size_t scalars = (size_t)link->rounds[j].scalars;
            s.scalars = larger(s.scalars, scalars);
            s.chunk_scalars = larger(s.chunk_scalars, link->rounds[j].tensor ? scalars : 0);
        }
    }
    return s;
}

static int32_t make_threads(tn_chain *chain, const sizes *s, tn_error *err)
{
    size_t threads = (size_t)tn_pool_threads(chain->options.pool), block = TN_CHAIN_BLOCK * chain->real;
    size_t scalars = (s->scalars * sizeof(double) + 63) / 64 * 64, sums = s->scalars * sizeof(tn_exact);
    size_t calls = (chain->link_count * sizeof(tn_call) + 63) / 64 * 64;
    size_t each = 3 * block + s->link + scalars + sums + calls;
    chain->threads = tn_alloc(threads, sizeof *chain->threads);
    chain->scratch = tn_alloc_aligned(threads * each);
    if (!chain->threads || !chain->scratch)
        return no_memory(err);
    for (size_t t = 0; t < threads; t++) {
        char *at = (char *)chain->scratch + t * each;
        tn_thread *own = &chain->threads[t];
        own->gradient[0] = at;
        own->gradient[1] = at += block;
        own->d = at += block;
        own->scratch = at += block;
        own->scalars = (double *)(at += s->link);
        own->sums = (tn_exact *)(at += scalars);
        own->calls = (tn_call *)(at + sums);
    }
    return TN_OK;
}

static int32_t make_chunk_sums(tn_chain *chain, const sizes *s, tn_error *err)
{
    size_t count = (size_t)chain->parameters->count;
    if (!s->chunk_scalars)
        return TN_OK;
    if (!(chain->chunk_at = tn_alloc(count + 1, sizeof *chain->chunk_at)))
        return no_memory(err);
    for (size_t i = 0; i < count; i++)
        chain->chunk_at[i + 1] = chain->chunk_at[i] + (chain->parameters->list[i].n + TN_CHUNK - 1) / TN_CHUNK;
    chain->chunk_sums = tn_alloc((size_t)chain->chunk_at[count] * s->chunk_scalars, sizeof *chain->chunk_sums);
    return chain->chunk_sums ? TN_OK : no_memory(err);
}

static int32_t make_scratch(tn_chain *chain, tn_error *err)
{
    size_t count = (size_t)chain->parameters->count;
    sizes s = largest(chain);
    chain->clocks = tn_alloc(count, sizeof *chain->clocks);
    chain->clock = tn_alloc(count, sizeof *chain->clock);
    chain->clock_of = tn_alloc(count, sizeof *chain->clock_of);
    chain->sums = tn_alloc(s.scalars, sizeof *chain->sums);
    chain->report = tn_alloc(s.reports, sizeof *chain->report);
    if (!chain->clocks || !chain->clock || !chain->clock_of || !chain->sums || !chain->report)
        return no_memory(err);
    int32_t status = make_threads(chain, &s, err);
    return status ? status : make_chunk_sums(chain, &s, err);
}

/* ---- the chain ---- */

int32_t tn_chain_create(const tn_chain_options *options, tn_chain **ret, tn_error *err)
{
    int32_t status = tn_layout_check(options->parameters, err);
    if (status)
        return status;
    tn_chain *chain = tn_alloc(1, sizeof *chain);
    if (!chain)
        return no_memory(err);
    chain->options = *options;
    chain->parameters = options->parameters;
    chain->real = options->parameters->real / 8;
    status = open_links(chain, err);
    if (!status)
        status = find_view(chain, err);
    if (!status)
        status = name_reports(chain, err);
    if (!status)
        status = list_slots(chain, err);
    if (!status)
        status = make_scratch(chain, err);
    if (!status)
        status = tn_layout_cut(chain->parameters, TN_CHAIN_STRETCH, &chain->cuts, &chain->item_count, err);
    if (status)
        tn_chain_destroy(chain);
    else
        *ret = chain;
    return status;
}

void tn_chain_destroy(tn_chain *chain)
{
    if (!chain)
        return;
    for (size_t i = 0; i < chain->link_count; i++)
        tn_link_free(&chain->links[i]);
    for (size_t i = 0; i < chain->report_count; i++)
        tn_free((char *)chain->reports[i].name);
    tn_free(chain->links);
    tn_free(chain->reports);
    tn_free(chain->slots);
    tn_free(chain->clocks);
    tn_free(chain->clock);
    tn_free(chain->clock_of);
    tn_free(chain->cuts);
    tn_free(chain->threads);
    tn_free(chain->scratch);
    tn_free(chain->chunk_at);
    tn_free(chain->chunk_sums);
    tn_free(chain->sums);
    tn_free(chain->report);
    tn_free(chain);
}

const void *tn_chain_view(const tn_chain *chain) { return chain->view ? chain->view->data : chain->parameters->p; }

size_t tn_chain_reports(const tn_chain *chain, const tn_report **ret)
{
    *ret = chain->reports;
    return chain->report_count;
}

int64_t *tn_chain_update(tn_chain *chain) { return &chain->update; }

int64_t *tn_chain_clocks(tn_chain *chain) { return chain->clocks; }

size_t tn_chain_slot_count(const tn_chain *chain) { return chain->slot_count; }

void tn_chain_slot_at(const tn_chain *chain, size_t index, tn_chain_slot *ret) { *ret = chain->slots[index]; }

int64_t tn_chain_bytes(const tn_chain *chain)
{
    int64_t arenas = 0;
    for (size_t i = 0; i < chain->link_count; i++)
        arenas += chain->links[i].arena_count;
    return arenas * chain->parameters->elements * (int64_t)chain->real;
}

int32_t tn_chain_check_plan(const tn_chain *chain, const tn_instance *instance, tn_error *err)
{
    for (size_t i = 0; i < chain->link_count; i++)
        if (chain->links[i].instance == instance)
            return tn_link_check_plan(chain->parameters, &chain->links[i], err);
    return TN_OK;
}
