/* SPDX-License-Identifier: Apache-2.0
 *
 * link.c: one link of a chain: what its note says, and its table.
 */
#include <string.h>

#include "host/base/memory.h"
#include "host/base/philox.h"
#include "host/update/internal.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const char *const stages[] = {"source", "gradient", "rule", "update", "write", "after"};

int32_t tn_link_no_memory(const tn_link *link, tn_error *err)
{
    return tn_error_set(err, TN_E_MEMORY, "%s: no memory for its state", link->instance->path);
}

int32_t tn_link_not_driven(const tn_link *link, const char *fact, const char *word, tn_error *err)
{
    return tn_error_set(err, TN_E_UNSUPPORTED,
                        "%s: %s \"%s\" is not driven by this host; use another component, or what "
                        "docs/architecture.md lists as driven",
                        link->instance->path, fact, word);
}

int32_t tn_link_bad_note(const tn_link *link, const char *what, tn_error *err)
{
    return tn_error_set(err, TN_E_PLUGIN, "%s: %s; correct the plugin", link->instance->path, what);
}

/* ---- the note ---- */

static int32_t check_component(const tn_chain_options *options, const tn_link *link, tn_error *err)
{
    const tn_component_info *info = link->instance->info;
    if (strcmp(info->interface, TN_OPTIMIZER) != 0 && !tn_is_minimizer(link->instance))
        return tn_error_set(err, TN_E_INVALID, "%s: %s '%s' offers %s, a link of the chain needs " TN_OPTIMIZER,
                            link->instance->path, info->kind, info->name, info->interface);
    if (info->real && info->real != options->parameters->real)
        return tn_error_set(err, TN_E_INVALID, "%s: compiled for %u-bit reals, the parameters have %u bits",
                            link->instance->path, info->real, options->parameters->real);
    return TN_OK;
}

static int32_t check_signals(const tn_chain_options *options, const tn_link *link, tn_error *err)
{
    static const char *const what[] = {"another gradient at other parameters", "taps of layers"};
    const json_t *list = json_object_get(link->instance->info->facts, "signals");
    int32_t needs[] = {link->stage == TN_LINK_SOURCE, 0};
    const tn_signals *offered = options->signals;
    for (size_t i = 0; i < json_array_size(list); i++)
        needs[strcmp(json_string_value(json_array_get(list, i)), "taps") == 0] = 1;
    for (int i = 0; i < 2; i++)
        if (needs[i] && (!offered || (i ? !offered->taps : !offered->gradient)))
            return tn_error_set(err, TN_E_UNSUPPORTED,
                                "%s: it needs the signal \"%s\", %s, which whoever computes the gradients here does "
                                "not offer; remove the link",
                                link->instance->path, i ? "taps" : "gradient2", what[i]);
    return TN_OK;
}

static int32_t read_stage(const tn_chain_options *options, tn_link *link, tn_error *err)
{
    const json_t *facts = link->instance->info->facts;
    const char *stage = tn_fact_text(facts, "stage", ""), *grain = tn_fact_text(facts, "grain", "element");
    link->stage = -1;
    for (int32_t i = 0; i < (int32_t)COUNT(stages); i++)
        if (strcmp(stages[i], stage) == 0)
            link->stage = i;
    if (link->stage < 0)
        return tn_link_bad_note(link, "its note has no stage", err);
    link->layer = strcmp(grain, "layer") == 0;
    if ((link->layer || strcmp(grain, "matrix") == 0) && link->stage != TN_LINK_RULE)
        return tn_link_bad_note(link, "its grain is matrix or layer, but its stage is not rule", err);
    return check_signals(options, link, err);
}

/* What the loader has checked, see tn_fact_check. */
static void read_round(tn_link *link, const json_t *object, tn_round *round)
{
    round->tensor = strcmp(tn_fact_text(object, "scope", ""), "tensor") == 0;
    round->max = strcmp(tn_fact_text(object, "reduce", "sum"), "max") == 0;
    round->scalars = (int32_t)json_integer_value(json_object_get(object, "scalars"));
    round->rows = (int32_t)json_integer_value(json_object_get(object, "rows"));
    round->columns = (int32_t)json_integer_value(json_object_get(object, "columns"));
    link->per_tensor |= round->tensor;
}

static int32_t read_rounds(tn_link *link, tn_error *err)
{
    const json_t *list = json_object_get(link->instance->info->facts, "rounds");
    size_t count = json_array_size(list);
    if (count && link->stage > TN_LINK_UPDATE)
        return tn_link_bad_note(link, "it has rounds, whose place is before the write", err);
    if (!(link->rounds = tn_alloc(count, sizeof *link->rounds)))
        return tn_link_no_memory(link, err);
    for (size_t i = 0; i < count; i++)
        read_round(link, json_array_get(list, i), &link->rounds[i]);
    link->round_count = count;
    return TN_OK;
}

static int32_t read_reports(tn_link *link, tn_error *err)
{
    const json_t *list = json_object_get(link->instance->info->facts, "reports");
    link->report_count = json_array_size(list);
    for (size_t i = 0; i < link->report_count; i++)
        if (!json_is_string(json_array_get(list, i)))
            return tn_link_bad_note(link, "its note has a report that is not text", err);
    return TN_OK;
}

/* ---- the table ---- */

static int32_t check_table(const tn_link *link, tn_error *err)
{
    const tn_optimizer *t = &link->table;
    const char *grain = tn_fact_text(link->instance->info->facts, "grain", "element");
    int32_t whole = link->layer || strcmp(grain, "matrix") == 0;
    if (t->constants_bytes > TN_CONSTANTS_MAX)
        return tn_link_bad_note(link, "its constants are larger than 512 bytes", err);
    if (link->round_count && (!t->partial || !t->fold))
        return tn_link_bad_note(link, "it has rounds but no partial or no fold", err);
    if ((link->stage == TN_LINK_RULE || link->stage == TN_LINK_SOURCE) && !t->update)
        return tn_link_bad_note(link, "it is a rule or a source without update", err);
    if (t->scale && link->stage != TN_LINK_GRADIENT)
        return tn_link_bad_note(link, "it has scale outside stage gradient", err);
    if (t->keep && link->stage != TN_LINK_RULE && link->stage != TN_LINK_UPDATE)
        return tn_link_bad_note(link, "it has keep outside the stages rule and update", err);
    if (whole != (t->matrix != NULL))
        return tn_link_bad_note(link, "a table tn_matrix goes with the grains matrix and layer", err);
    return TN_OK;
}

int32_t tn_link_open(const tn_chain_options *options, tn_instance *instance, tn_link *link, tn_error *err)
{
    link->instance = instance;
    link->real = options->parameters->real / 8;
    link->context.struct_size = sizeof link->context;
    link->context.key = tn_hash_key(options->seed, instance->path, "update");
    link->context.services = options->services;
    int32_t status = check_component(options, link, err);
    if (!status)
        status = read_reports(link, err);
    if (!status && tn_is_minimizer(instance)) {
        link->stage = TN_LINK_RULE;
        return TN_OK;
    }
    if (!status)
        status = read_stage(options, link, err);
    if (!status)
        status = read_rounds(link, err);
    if (!status)
        status = tn_instance_load(instance, options->registry, &link->table, sizeof link->table, err);
    return status ? status : check_table(link, err);
}

void tn_link_free(tn_link *link)
{
    for (int32_t j = 0; j < link->arena_count; j++) {
        tn_arena *arena = &link->arenas[j];
        tn_free(arena->name);
        tn_free(arena->init);
        tn_free(arena->at);
        tn_free(arena->operand);
        tn_free(arena->block);
        tn_free(arena->copy);
        tn_free(arena->spare);
    }
    tn_items_free(link->items);
    tn_free(link->arenas);
    tn_free(link->active);
    tn_free(link->slots);
    tn_free(link->rounds);
    tn_free(link->used);
    tn_free(link->k);
}

void *tn_link_k(const tn_chain *chain, const tn_link *link, int64_t parameter)
{
    int64_t set = link->per_tensor ? parameter : chain->clock_of[parameter];
    return link->k + (size_t)set * link->k_size;
}
