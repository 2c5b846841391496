/* SPDX-License-Identifier: Apache-2.0
 *
 * chain.c: making a chain and looking at it.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/base/philox.h"
#include "host/update/internal.h"

static int32_t no_memory(tn_error *err) { return tn_error_set(err, TN_E_MEMORY, "update: no memory for the chain"); }

/* ---- links ---- */

static int32_t open_minimizer(tn_chain *chain, size_t i, tn_error *err)
{
    chain->minimizer_at = i;
    return tn_minimizer_open(&chain->options, chain->links[i].instance, &chain->minimizer, err);
}

/* A round behind a rule for whole matrices waits for its step, and so do those behind it. */
static void mark_late(tn_chain *chain, size_t at)
{
    tn_link *link = &chain->links[at];
    for (size_t j = 0; j < at && link->stage == TN_LINK_UPDATE && link->round_count; j++) {
        const tn_link *before = &chain->links[j];
        link->late |= before->late;
        for (int64_t i = 0; i < chain->parameters->count && before->items; i++)
            link->late |= before->active[i] && link->active[i];
    }
}

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
        status = tn_route(chain, err);
    return status ? status : tn_route_order(chain, err);
}

static int32_t plan_links(tn_chain *chain, tn_error *err)
{
    int32_t status = TN_OK;
    chain->check = chain->options.check_finite != 0;
    chain->voting = chain->check;
    for (size_t i = 0, arenas = 0; i < chain->link_count && !status; i++) {
        tn_link *link = &chain->links[i];
        if (tn_is_minimizer(link->instance)) {
            status = open_minimizer(chain, i, err);
            continue;
        }
        status = tn_link_plan(chain, link, err);
        if (!status)
            status = tn_link_allocate(chain, arenas, link, err);
        arenas += (size_t)link->arena_count;
        mark_late(chain, i);
        chain->voting |= link->round_count > 0 || link->stage == TN_LINK_SOURCE;
    }
    return status;
}

/* 1 if the link plans the slot for every parameter that it is on. */
static int32_t covers(const tn_chain *chain, const tn_link *link, const tn_arena *arena)
{
    for (int64_t i = 0; i < chain->parameters->count; i++)
        if (link->active[i] && arena->at[i] < 0)
            return 0;
    return arena->shape == TN_SHAPE_LIKE;
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
        if (name && link->first >= 0 && (j == link->arena_count || !covers(chain, link, &link->arenas[j])))
            return tn_error_set(
                err, TN_E_PLUGIN,
                "%s: its view is the slot '%s', which it does not plan, like-shaped, for every parameter; correct the "
                "plugin",
                link->instance->path, name);
        if (!name || link->first < 0)
            continue;
        if (chain->view)
            warn_of_view(chain, link);
        chain->view = &link->arenas[j];
        chain->view_link = link;
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

/* A window is looked at once more for taps, of one kind: two links must not want two of the same update. */
static int32_t check_taps_at(const tn_chain *chain, int64_t t, tn_error *err)
{
    const tn_clock clock = {sizeof clock, 0, t, t - 1, t - 1, chain->options.services};
    const tn_link *first = NULL;
    int32_t kind = TN_TAP_NONE;
    for (const tn_link *link = chain->links; link < chain->links + chain->link_count; link++) {
        int32_t wants = link->items ? tn_items_wants(link->items, &clock) : TN_TAP_NONE;
        if (wants != TN_TAP_NONE && kind != TN_TAP_NONE && wants != kind)
            return tn_error_set(err, TN_E_UNSUPPORTED,
                                "%s wants taps of kind %d for update %" PRId64 " and %s of kind %d, needed one kind: "
                                "sampled (1) or the data's targets (2); give both the same, as in kfac's row fisher",
                                first->instance->path, kind, t, link->instance->path, wants);
        first = kind == TN_TAP_NONE ? link : first;
        kind = kind == TN_TAP_NONE ? wants : kind;
    }
    return TN_OK;
}

/* What comes later than this, or from clocks that drift apart, fails its step. */
#define TAPS_LOOK 1000

static int32_t check_taps(const tn_chain *chain, tn_error *err)
{
    int32_t status = TN_OK;
    for (int64_t t = 1; t <= TAPS_LOOK && !status; t++)
        status = check_taps_at(chain, t, err);
    return status;
}

/* ---- the chain ---- */

static int32_t check_codec(const tn_codec_use *use, const char *what, int32_t arena, tn_error *err)
{
    if (!use->table || !arena || !use->table->extra_bytes)
        return TN_OK;
    return tn_error_set(err, TN_E_UNSUPPORTED,
                        "update: %s lies in an arena, which has no room for the block scales of the codec %s; give the "
                        "place of each parameter, or use a codec without",
                        what, use->instance->path);
}

static int32_t check_replicas(const tn_chain *chain, tn_error *err)
{
    for (int64_t i = 0; i < chain->parameters->count && chain->size > 1; i++) {
        const tn_parameter *parameter = &chain->parameters->list[i];
        if (parameter->replicas != 1 && parameter->replicas != chain->size)
            return tn_error_set(err, TN_E_UNSUPPORTED,
                                "parameter '%s': %d of %d processes hold each slice, needed 1 or all", parameter->name,
                                parameter->replicas, chain->size);
    }
    return TN_OK;
}

static int32_t check_sums(const tn_chain *chain, const double *held, tn_error *err)
{
    for (int64_t i = 0; i < chain->parameters->count; i++) {
        const tn_parameter *parameter = &chain->parameters->list[i];
        double whole = 1;
        for (int32_t j = 0; j < parameter->ndim; j++)
            whole *= (double)parameter->shape[j];
        if (held[i] != whole * parameter->replicas)
            return tn_error_set(
                err, TN_E_INVALID,
                "parameter '%s': all processes together hold %.0f elements, needed %.0f, each %d times; "
                "correct the slices",
                parameter->name, held[i], whole, parameter->replicas);
    }
    return TN_OK;
}

/* A gap between slices would be seen by nobody. */
static int32_t check_cover(const tn_chain *chain, tn_error *err)
{
    static const tn_dtype f64 = {TN_FLOAT, 64, 1};
    int64_t count = chain->parameters->count;
    if (chain->size == 1)
        return TN_OK;
    double *held = tn_alloc((size_t)count, sizeof *held);
    if (!held)
        return no_memory(err);
    for (int64_t i = 0; i < count; i++)
        held[i] = (double)chain->parameters->list[i].n;
    int32_t status = tn_comm_all_reduce(chain->options.comm, f64, held, count, TN_REDUCE_SUM, err);
    if (!status)
        status = check_sums(chain, held, err);
    tn_free(held);
    return status;
}

static int32_t check_options(const tn_chain *chain, tn_error *err)
{
    const tn_chain_options *options = &chain->options;
    int32_t status = tn_layout_check(options->parameters, err);
    if (!status)
        status = check_codec(&options->p, "p", !options->parameters->p_of, err);
    if (!status)
        status = check_codec(&options->g, "g", !options->parameters->g_of, err);
    if (!status)
        status = check_replicas(chain, err);
    return status ? status : check_cover(chain, err);
}

/* Random keys of p's codec, which may round by chance. */
static int32_t make_keys(tn_chain *chain, tn_error *err)
{
    size_t count = (size_t)chain->parameters->count;
    if (!chain->options.p.table)
        return TN_OK;
    if (!(chain->p_key = tn_alloc(count, sizeof *chain->p_key)))
        return no_memory(err);
    for (size_t i = 0; i < count; i++)
        chain->p_key[i] =
            tn_hash_key(chain->options.seed, chain->options.p.instance->path, chain->parameters->list[i].name);
    return TN_OK;
}

static int32_t create(tn_chain *chain, tn_error *err)
{
    int32_t status = check_options(chain, err);
    if (!status)
        status = make_keys(chain, err);
    if (!status)
        status = open_links(chain, err);
    if (!status)
        status = plan_links(chain, err);
    if (!status)
        status = check_taps(chain, err);
    if (!status)
        status = find_view(chain, err);
    if (!status)
        status = name_reports(chain, err);
    if (!status)
        status = tn_state_list(chain, err);
    if (!status)
        status = tn_scratch_create(chain, err);
    return status ? status : tn_layout_cut(chain->parameters, TN_CHAIN_STRETCH, &chain->cuts, &chain->item_count, err);
}

int32_t tn_chain_create(const tn_chain_options *options, tn_chain **ret, tn_error *err)
{
    tn_chain *chain = tn_alloc(1, sizeof *chain);
    if (!chain)
        return no_memory(err);
    chain->options = *options;
    chain->parameters = options->parameters;
    chain->real = options->parameters->real / 8;
    chain->rank = tn_comm_rank(options->comm);
    chain->size = tn_comm_size(options->comm);
    chain->context =
        (tn_context){.struct_size = sizeof chain->context, .key = options->seed, .services = options->services};
    int32_t status = create(chain, err);
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
    tn_minimizer_close(chain->minimizer);
    tn_free(chain->links);
    tn_free(chain->reports);
    tn_free(chain->slots);
    tn_scratch_free(chain);
    tn_free(chain);
}

/* The parameters that the view's link is not on are evaluated as they are. */
const void *tn_chain_view(const tn_chain *chain)
{
    const tn_parameters *parameters = chain->parameters;
    if (!chain->view)
        return parameters->p;
    for (int64_t i = 0; i < parameters->count; i++) {
        tn_operand p = tn_chain_p(chain, i);
        if (!chain->view_link->active[i])
            tn_operand_read(&p, p.lo, parameters->list[i].n,
                            chain->view->data + parameters->at[i] * (int64_t)chain->real);
    }
    return chain->view->data;
}

size_t tn_chain_reports(const tn_chain *chain, const tn_report **ret)
{
    *ret = chain->reports;
    return chain->report_count;
}

int64_t *tn_chain_update(tn_chain *chain) { return &chain->update; }

int64_t *tn_chain_clocks(tn_chain *chain) { return chain->clocks; }

size_t tn_chain_slot_count(const tn_chain *chain) { return chain->slot_count; }

void tn_chain_slot_at(const tn_chain *chain, size_t index, tn_chain_slot *ret) { *ret = chain->slots[index]; }

int64_t tn_chain_bytes(const tn_chain *chain) { return tn_state_bytes(chain); }

int32_t tn_chain_check_plan(const tn_chain *chain, const tn_instance *instance, tn_error *err)
{
    for (size_t i = 0; i < chain->link_count; i++)
        if (chain->links[i].instance == instance)
            return chain->minimizer && i == chain->minimizer_at ? tn_minimizer_check_plan(chain->minimizer, err)
                                                                : tn_link_check_plan(chain, &chain->links[i], err);
    return TN_OK;
}
