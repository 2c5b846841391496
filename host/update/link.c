/* SPDX-License-Identifier: Apache-2.0
 *
 * link.c: one link of a chain: what its note says, its table, its state.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "host/base/take.h"
#include "host/base/memory.h"
#include "host/base/philox.h"
#include "host/update/internal.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const char *const stages[] = {"source", "gradient", "rule", "update", "write", "after"};

static int32_t no_memory(const tn_link *link, tn_error *err)
{
    return tn_error_set(err, TN_E_MEMORY, "%s: no memory for its state", link->instance->path);
}

static int32_t not_driven(const tn_link *link, const char *fact, const char *word, tn_error *err)
{
    return tn_error_set(err, TN_E_UNSUPPORTED,
                        "%s: %s \"%s\" is not driven by this host yet; use another component, or what "
                        "docs/architecture.md lists as driven",
                        link->instance->path, fact, word);
}

static int32_t bad_note(const tn_link *link, const char *what, tn_error *err)
{
    return tn_error_set(err, TN_E_PLUGIN, "%s: %s; correct the plugin", link->instance->path, what);
}

/* ---- the note ---- */

static int32_t check_component(const tn_chain_options *options, const tn_link *link, tn_error *err)
{
    const tn_component_info *info = link->instance->info;
    if (strcmp(info->interface, TN_OPTIMIZER) != 0)
        return tn_error_set(err, TN_E_INVALID, "%s: %s '%s' offers %s, a link of the chain needs " TN_OPTIMIZER,
                            link->instance->path, info->kind, info->name, info->interface);
    if (info->real && info->real != options->parameters->real)
        return tn_error_set(err, TN_E_INVALID, "%s: compiled for %u-bit reals, the parameters have %u bits",
                            link->instance->path, info->real, options->parameters->real);
    return TN_OK;
}

static int32_t read_stage(tn_link *link, tn_error *err)
{
    const json_t *facts = link->instance->info->facts;
    const char *stage = tn_fact_text(facts, "stage", ""), *grain = tn_fact_text(facts, "grain", "element");
    link->stage = -1;
    for (int32_t i = 0; i < (int32_t)COUNT(stages); i++)
        if (strcmp(stages[i], stage) == 0)
            link->stage = i;
    if (link->stage < 0)
        return bad_note(link, "its note has no stage", err);
    if (link->stage == TN_LINK_SOURCE)
        return not_driven(link, "stage", stage, err);
    if (strcmp(grain, "element") != 0 && strcmp(grain, "tensor") != 0)
        return not_driven(link, "grain", grain, err);
    const json_t *signal = json_array_get(json_object_get(facts, "signals"), 0);
    return signal ? not_driven(link, "signal", json_string_value(signal), err) : TN_OK;
}

static int32_t read_round(tn_link *link, const json_t *object, tn_round *round, tn_error *err)
{
    const char *scope = tn_fact_text(object, "scope", "");
    json_int_t scalars = json_integer_value(json_object_get(object, "scalars"));
    if (json_object_get(object, "rows") || json_object_get(object, "columns"))
        return not_driven(link, "a round with", json_object_get(object, "rows") ? "rows" : "columns", err);
    if (strcmp(scope, "model") != 0 && strcmp(scope, "tensor") != 0)
        return not_driven(link, "round scope", scope, err);
    if (scalars < 1 || scalars > 1024)
        return bad_note(link, "a round has scalars outside 1 to 1024", err);
    round->tensor = strcmp(scope, "tensor") == 0;
    round->scalars = (int32_t)scalars;
    link->per_tensor |= round->tensor;
    return TN_OK;
}

static int32_t read_rounds(tn_link *link, tn_error *err)
{
    const json_t *list = json_object_get(link->instance->info->facts, "rounds");
    size_t count = json_array_size(list);
    if (count && link->stage != TN_LINK_GRADIENT && link->stage != TN_LINK_RULE)
        return not_driven(link, "a round in stage", stages[link->stage], err);
    if (!(link->rounds = tn_alloc(count, sizeof *link->rounds)))
        return no_memory(link, err);
    for (size_t i = 0; i < count; i++) {
        int32_t status = read_round(link, json_array_get(list, i), &link->rounds[i], err);
        if (status)
            return status;
    }
    link->round_count = count;
    return TN_OK;
}

static int32_t read_reports(tn_link *link, tn_error *err)
{
    const json_t *list = json_object_get(link->instance->info->facts, "reports");
    link->report_count = json_array_size(list);
    for (size_t i = 0; i < link->report_count; i++)
        if (!json_is_string(json_array_get(list, i)))
            return bad_note(link, "its note has a report that is not text", err);
    return TN_OK;
}

/* ---- the table ---- */

static int32_t check_table(const tn_link *link, tn_error *err)
{
    const tn_optimizer *t = &link->table;
    if (t->constants_bytes > TN_CONSTANTS_MAX)
        return bad_note(link, "its constants are larger than 512 bytes", err);
    if (link->round_count && (!t->partial || !t->fold))
        return bad_note(link, "it has rounds but no partial or no fold", err);
    if (link->stage == TN_LINK_RULE && !t->update)
        return bad_note(link, "it is a rule without update", err);
    if (t->scale && link->stage != TN_LINK_GRADIENT)
        return bad_note(link, "it has scale outside stage gradient", err);
    if (t->keep && link->stage != TN_LINK_RULE && link->stage != TN_LINK_UPDATE)
        return bad_note(link, "it has keep outside the stages rule and update", err);
    return TN_OK;
}

int32_t tn_link_open(const tn_chain_options *options, tn_instance *instance, tn_link *link, tn_error *err)
{
    link->instance = instance;
    link->context.struct_size = sizeof link->context;
    link->context.key = tn_hash_key(options->seed, instance->path, "update");
    link->context.services = options->services;
    int32_t status = check_component(options, link, err);
    if (!status)
        status = read_stage(link, err);
    if (!status)
        status = read_rounds(link, err);
    if (!status)
        status = read_reports(link, err);
    if (!status)
        status = tn_registry_load(options->registry, instance->entry, &link->table, sizeof link->table, err);
    return status ? status : check_table(link, err);
}

/* ---- state ---- */

/* What a plan fills: the slots of one parameter. */
typedef struct planning {
    tn_link *link;
    tn_slot_list *list;
    tn_error *err;
    int32_t status; /* of the first call that failed: the plugin may not pass it on */
} planning;

static int32_t check_slot(const tn_link *link, const tn_slot *slot, tn_error *err)
{
    const char *const inits[] = {"zero", "one", "parameter"};
    if (!slot->name || !slot->shape || !slot->init)
        return bad_note(link, "a slot has no name, shape or init", err);
    /* fold can not write slots and pieces run at once, so nobody could write one that pieces share. */
    if (strcmp(slot->shape, "like") != 0)
        return not_driven(link, "slot shape", slot->shape, err);
    for (size_t i = 0; i < COUNT(inits); i++)
        if (strcmp(slot->init, inits[i]) == 0)
            return TN_OK;
    return not_driven(link, "slot init", slot->init, err);
}

/* Flags are words with commas between them; a new one may ask for something that this host would not do. */
static int32_t read_flags(const tn_link *link, const char *flags, int32_t *ret_persistent, tn_error *err)
{
    static const char *const known[] = {"transient", "nonnegative", "offloadable", "signed"};
    int32_t persistent = 1;
    for (const char *at = flags ? flags + strspn(flags, ", ") : ""; *at; at += strspn(at, ", ")) {
        size_t n = strcspn(at, ", "), i = 0;
        while (i < COUNT(known) && (strlen(known[i]) != n || strncmp(at, known[i], n) != 0))
            i++;
        if (i == COUNT(known))
            return not_driven(link, "slot flags", flags, err);
        persistent &= i != 0;
        at += n;
    }
    *ret_persistent = persistent;
    return TN_OK;
}

/* The index of the arena for a slot, made if it is new; -1 without memory. */
static int32_t arena_of(tn_link *link, const tn_slot *slot, int32_t persistent)
{
    int32_t i = 0;
    while (i < link->arena_count && strcmp(link->arenas[i].name, slot->name) != 0)
        i++;
    if (i < link->arena_count)
        return i;
    tn_arena *arenas = tn_realloc(link->arenas, (size_t)i + 1, sizeof *arenas);
    if (!arenas)
        return -1;
    link->arenas = arenas;
    arenas[link->arena_count++] =
        (tn_arena){.name = tn_strdup(slot->name), .init = tn_strdup(slot->init), .persistent = persistent};
    return arenas[i].name && arenas[i].init ? i : -1;
}

static int32_t add_slot(const planning *p, const tn_slot *slot)
{
    int32_t persistent = 1, status = check_slot(p->link, slot, p->err);
    if (!status)
        status = read_flags(p->link, slot->flags, &persistent, p->err);
    if (status)
        return status;
    if (p->list->count == TN_CHAIN_SLOTS)
        return bad_note(p->link, "it plans more than 16 slots for one parameter", p->err);
    int32_t arena = arena_of(p->link, slot, persistent);
    if (arena < 0)
        return no_memory(p->link, p->err);
    for (int32_t j = 0; j < p->list->count; j++)
        if (p->list->arena[j] == arena)
            return bad_note(p->link, "it plans two slots of one name for one parameter", p->err);
    if (strcmp(p->link->arenas[arena].init, slot->init) != 0)
        return bad_note(p->link, "it plans one slot with two initial values", p->err);
    p->list->arena[p->list->count++] = arena;
    return TN_OK;
}

static int32_t plan_slot(void *host, const tn_slot *slot)
{
    planning *p = host;
    tn_slot taken;
    tn_take(&taken, sizeof taken, slot);
    if (!p->status)
        p->status = add_slot(p, &taken);
    return p->status;
}

static int32_t plan_scratch(void *host, int64_t bytes)
{
    planning *p = host;
    if (!p->status && (bytes < 0 || bytes > INT32_MAX))
        p->status = bad_note(p->link, "it plans scratch outside 0 to 2^31 bytes", p->err);
    if (!p->status && bytes > p->link->scratch)
        p->link->scratch = bytes;
    return p->status;
}

static int32_t plan_noted(planning *p)
{
    const json_t *list = json_object_get(p->link->instance->info->facts, "slots"), *object;
    for (size_t i = 0; !p->status && (object = json_array_get(list, i)); i++) {
        tn_slot slot = {sizeof slot,
                        0,
                        tn_fact_text(object, "name", NULL),
                        tn_fact_text(object, "shape", NULL),
                        tn_fact_text(object, "init", NULL),
                        tn_fact_text(object, "flags", ""),
                        NULL};
        plan_slot(p, &slot);
    }
    return p->status;
}

static int32_t plan_parameter(const tn_parameter *parameter, tn_link *link, tn_slot_list *list, tn_error *err)
{
    tn_error own = {0};
    planning p = {link, list, &own, TN_OK};
    const tn_slot_planner planner = {sizeof planner, 0, &p, plan_slot, plan_scratch, NULL};
    int32_t status =
        link->table.plan ? link->table.plan(parameter, link->instance->hyper, &planner, &own) : plan_noted(&p);
    if (!status)
        status = p.status;
    return status ? tn_error_set(err, status, "%s: plan for parameter '%s': %s", link->instance->path, parameter->name,
                                 own.msg[0] ? own.msg : "failed without a message")
                  : TN_OK;
}

static void fill_ones(void *data, uint32_t real, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (real == 32)
            ((float *)data)[i] = 1;
        else
            ((double *)data)[i] = 1;
}

/* Arenas of one size begin at the same place of a page, so a block's arrays would all fall on the same cache sets
 * (measured: 1.1 to 1.5 times the time). Each begins some lines later than the one before. */
#define STAGGER       (17 * 64)
#define STAGGER_COUNT 16

static int32_t make_arena(const tn_parameters *parameters, const tn_link *link, size_t ordinal, tn_arena *arena,
                          tn_error *err)
{
    size_t bytes = (size_t)parameters->elements * (parameters->real / 8);
    if (!(arena->block = tn_alloc_aligned(bytes + STAGGER_COUNT * STAGGER)))
        return no_memory(link, err);
    arena->data = (char *)arena->block + (ordinal % STAGGER_COUNT + 1) * STAGGER;
    if (strcmp(arena->init, "parameter") == 0)
        memcpy(arena->data, parameters->p, bytes);
    else if (strcmp(arena->init, "one") == 0)
        fill_ones(arena->data, parameters->real, parameters->elements);
    return TN_OK;
}

int32_t tn_link_plan(const tn_parameters *parameters, size_t ordinal, tn_link *link, tn_error *err)
{
    size_t count = (size_t)parameters->count;
    link->k_size = (link->table.constants_bytes + 15) / 16 * 16;
    link->slots = tn_alloc(count, sizeof *link->slots);
    link->k = tn_alloc_aligned(count * link->k_size);
    int32_t status = link->slots && link->k ? TN_OK : no_memory(link, err);
    for (size_t i = 0; i < count && !status; i++)
        status = plan_parameter(&parameters->list[i], link, &link->slots[i], err);
    for (int32_t j = 0; j < link->arena_count && !status; j++)
        status = make_arena(parameters, link, ordinal + (size_t)j, &link->arenas[j], err);
    return status;
}

/* ---- planning again, to compare ---- */

typedef struct {
    const tn_link *link;
    const tn_slot_list *has;
    int32_t count; /* slots planned so far */
    int32_t wrong; /* 1: something else than there is; then what */
    char what[64];
} comparing;

static int32_t differ(comparing *c, const char *what)
{
    if (!c->wrong)
        snprintf(c->what, sizeof c->what, "%s", what);
    c->wrong = 1;
    return TN_E_INVALID;
}

static int32_t compare_slot(void *host, const tn_slot *slot)
{
    comparing *c = host;
    tn_slot taken;
    tn_take(&taken, sizeof taken, slot);
    int32_t at = c->count++;
    if (taken.name && at < c->has->count && strcmp(c->link->arenas[c->has->arena[at]].name, taken.name) == 0)
        return c->wrong ? TN_E_INVALID : TN_OK;
    return differ(c, taken.name ? taken.name : "(no name)");
}

static int32_t compare_scratch(void *host, int64_t bytes)
{
    comparing *c = host;
    return bytes >= 0 && bytes <= c->link->scratch ? TN_OK : differ(c, "(more scratch)");
}

int32_t tn_link_check_plan(const tn_parameters *parameters, const tn_link *link, tn_error *err)
{
    for (int64_t i = 0; i < parameters->count && link->table.plan; i++) {
        comparing c = {.link = link, .has = &link->slots[i]};
        const tn_slot_planner planner = {sizeof planner, 0, &c, compare_slot, compare_scratch, NULL};
        tn_error_clear(err);
        int32_t status = link->table.plan(&parameters->list[i], link->instance->hyper, &planner, err);
        if (status && !c.wrong)
            return tn_error_wrap(err, status, "%s", link->instance->path);
        if (c.wrong) /* less than it has is no harm */
            return tn_error_set(
                err, TN_E_INVALID,
                "%s would need the state '%s', which it does not start with; give the row a value in the "
                "experiment under which it does, such as one above 0",
                link->instance->path, c.what);
    }
    return TN_OK;
}

void tn_link_free(tn_link *link)
{
    for (int32_t j = 0; j < link->arena_count; j++) {
        tn_free(link->arenas[j].name);
        tn_free(link->arenas[j].init);
        tn_free(link->arenas[j].block);
    }
    tn_free(link->arenas);
    tn_free(link->slots);
    tn_free(link->rounds);
    tn_free(link->k);
}

void *tn_link_k(const tn_chain *chain, const tn_link *link, int64_t parameter)
{
    int64_t set = link->per_tensor ? parameter : chain->clock_of[parameter];
    return link->k + (size_t)set * link->k_size;
}
