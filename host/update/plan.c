/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c: the slots that a link plans, and planning again to compare.
 */
#include <stdio.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/base/take.h"
#include "host/update/internal.h"

/* What a plan fills: the slots of one parameter. */
typedef struct planning {
    const tn_chain *chain;
    tn_link *link;
    int64_t parameter;
    tn_error *err;
    int32_t status; /* of the first call that failed: the plugin may not pass it on */
} planning;

static int32_t has_round(const tn_link *link, int32_t tensor)
{
    for (size_t i = 0; i < link->round_count; i++)
        if (link->rounds[i].tensor || !tensor)
            return 1;
    return 0;
}

/* Pieces run at once, so only fold can write a slot that they share. */
static int32_t check_shape(const planning *p, const tn_slot *slot, int32_t shape)
{
    int64_t rows, columns;
    char text[160];
    const tn_parameter *parameter = &p->chain->parameters->list[p->parameter];
    if (shape == TN_SHAPE_LIKE && p->link->stage == TN_LINK_SOURCE)
        return tn_link_not_driven(p->link, "in stage source the slot shape", slot->shape, p->err);
    if (shape == TN_SHAPE_LIKE)
        return TN_OK;
    if (!has_round(p->link, shape != TN_SHAPE_GLOBAL)) {
        snprintf(text, sizeof text,
                 "it plans a slot of shape \"%s\" but has no round of scope \"tensor\"%s to write it", slot->shape,
                 shape == TN_SHAPE_GLOBAL ? " or \"model\"" : "");
        return tn_link_bad_note(p->link, text, p->err);
    }
    tn_layout_view(parameter, &rows, &columns);
    if ((shape == TN_SHAPE_ROWS || shape == TN_SHAPE_COLUMNS) && parameter->ndim < 2)
        return tn_link_bad_note(p->link, "it plans rows or columns of a parameter with fewer than two axes", p->err);
    if (strcmp(slot->init, "parameter") == 0)
        return tn_link_bad_note(p->link, "only a slot of shape \"like\" starts as the parameter", p->err);
    return TN_OK;
}

static int32_t check_slot(const planning *p, const tn_slot *slot, int32_t *ret_shape)
{
    if (!slot->name || !slot->shape || !slot->init)
        return tn_link_bad_note(p->link, "a slot has no name, shape or init", p->err);
    int32_t shape = tn_slot_shape(slot->shape);
    if (shape < 0 || shape >= TN_SHAPE_ITEM)
        return tn_link_not_driven(p->link, "slot shape", slot->shape, p->err);
    if (!tn_slot_init(slot->init))
        return tn_link_not_driven(p->link, "slot init", slot->init, p->err);
    if (slot->count < 0 || slot->count > 1 << 20)
        return tn_link_bad_note(p->link, "a slot has a count outside 0 to 2^20", p->err);
    *ret_shape = shape;
    return check_shape(p, slot, shape);
}

/* A new flag may ask for something that this host would not do. */
static int32_t read_flags(const tn_link *link, const char *words, tn_arena *arena, tn_error *err)
{
    int32_t flags = tn_slot_flags(words);
    if (flags < 0 || flags & TN_SLOT_TAPPED)
        return tn_link_not_driven(link, "slot flags", words, err);
    arena->persistent = !(flags & TN_SLOT_TRANSIENT);
    arena->nonnegative = (flags & TN_SLOT_NONNEGATIVE) != 0;
    return TN_OK;
}

/* The index of the arena for a slot, made if it is new; -1 without memory. */
static int32_t arena_of(const planning *p, const tn_slot *slot, tn_arena *as)
{
    tn_link *link = p->link;
    int32_t i = 0;
    size_t count = (size_t)p->chain->parameters->count;
    while (i < link->arena_count && strcmp(link->arenas[i].name, slot->name) != 0)
        i++;
    if (i < link->arena_count)
        return i;
    tn_arena *arenas = tn_realloc(link->arenas, (size_t)i + 1, sizeof *arenas);
    if (!arenas)
        return -1;
    link->arenas = arenas;
    as->name = tn_strdup(slot->name);
    as->init = tn_strdup(slot->init);
    as->at = tn_alloc(count, sizeof *as->at);
    arenas[link->arena_count++] = *as;
    for (size_t j = 0; j < count && as->at; j++)
        as->at[j] = -1;
    return as->name && as->init && as->at ? i : -1;
}

/* At scope "model" fold sees global slots only, and of no parameter in particular. */
static int32_t check_global(const tn_link *link, const planning *p, int32_t arena)
{
    const tn_slot_list *list = &link->slots[p->parameter], *first = &link->slots[link->first];
    if (p->parameter == link->first || (list->count < first->count && first->arena[list->count] == arena))
        return TN_OK;
    return tn_link_bad_note(link, "it plans a global slot at different places for different parameters", p->err);
}

static int32_t add_slot(const planning *p, const tn_slot *slot)
{
    tn_arena as = {0};
    tn_slot_list *list = &p->link->slots[p->parameter];
    int32_t status = check_slot(p, slot, &as.shape);
    if (!status)
        status = read_flags(p->link, slot->flags, &as, p->err);
    if (status)
        return status;
    as.count = slot->count ? slot->count : 1;
    int32_t i = arena_of(p, slot, &as);
    if (i < 0)
        return tn_link_no_memory(p->link, p->err);
    tn_arena *arena = &p->link->arenas[i];
    if (arena->at[p->parameter] >= 0)
        return tn_link_bad_note(p->link, "it plans two slots of one name for one parameter", p->err);
    if (strcmp(arena->init, slot->init) != 0 || arena->shape != as.shape || arena->count != as.count)
        return tn_link_bad_note(p->link, "it plans one slot with two shapes or initial values", p->err);
    if (arena->shape == TN_SHAPE_GLOBAL)
        status = check_global(p->link, p, i);
    arena->at[p->parameter] = 0;
    list->arena[list->count++] = i;
    return status;
}

/* The caller's slot, or why there is none. */
static int32_t take_slot(const planning *p, const tn_slot *slot, tn_slot *ret)
{
    if (!slot)
        return tn_link_bad_note(p->link, "it plans a slot that is NULL", p->err);
    tn_take(ret, sizeof *ret, slot);
    return tn_slot_named(ret->name)
               ? TN_OK
               : tn_link_bad_note(p->link,
                                  "it plans a slot without a name, or with one of other characters "
                                  "than letters, digits and - _ .",
                                  p->err);
}

static int32_t plan_slot(void *host, const tn_slot *slot)
{
    planning *p = host;
    tn_slot taken;
    tn_slot_list *list = &p->link->slots[p->parameter];
    if (!p->status)
        p->status = take_slot(p, slot, &taken);
    if (p->status)
        return p->status;
    if (list->count == TN_CHAIN_SLOTS)
        return p->status = tn_link_bad_note(p->link, "it plans more than 16 slots for one parameter", p->err);
    if (!p->link->items || !taken.shape || !tn_items_shape(taken.shape))
        return p->status = add_slot(p, &taken);
    p->status = tn_items_slot(p->link->items, p->parameter, list->count, &taken, p->err);
    list->arena[list->count++] = -1;
    return p->status;
}

static int32_t plan_scratch(void *host, int64_t bytes)
{
    planning *p = host;
    if (!p->status && (bytes < 0 || bytes > INT32_MAX))
        p->status = tn_link_bad_note(p->link, "it plans scratch outside 0 to 2^31 bytes", p->err);
    if (!p->status && bytes > p->link->scratch)
        p->link->scratch = bytes;
    return p->status;
}

static int32_t plan_item(void *host, const struct tn_box *boxes, int32_t count)
{
    planning *p = host;
    if (!p->status && !p->link->items)
        p->status = tn_link_bad_note(p->link, "it plans items, but its grain is not matrix", p->err);
    if (!p->status)
        p->status = tn_items_add(p->link->items, p->parameter, boxes, count, p->err);
    return p->status;
}

/* The note's slots, for a link without a plan of its own. */
static int32_t plan_noted(const tn_link *link, const tn_slot_planner *planner)
{
    const json_t *list = json_object_get(link->instance->info->facts, "slots"), *object;
    int32_t status = TN_OK;
    for (size_t i = 0; !status && (object = json_array_get(list, i)); i++) {
        tn_slot slot = {sizeof slot,
                        (int32_t)json_integer_value(json_object_get(object, "count")),
                        tn_fact_text(object, "name", NULL),
                        tn_fact_text(object, "shape", NULL),
                        tn_fact_text(object, "init", NULL),
                        tn_fact_text(object, "flags", ""),
                        NULL};
        status = planner->slot(planner->host, &slot);
    }
    return status;
}

static int32_t plan_parameter(planning *p)
{
    tn_error own = {0}, *err = p->err;
    const tn_parameter *parameter = &p->chain->parameters->list[p->parameter];
    const tn_slot_planner planner = {sizeof planner, 0, p, plan_slot, plan_scratch, plan_item};
    const tn_link *link = p->link;
    p->err = &own;
    int32_t status = link->table.plan ? link->table.plan(parameter, link->instance->hyper, &planner, &own)
                                      : plan_noted(link, &planner);
    if (!status)
        status = p->status;
    return status ? tn_error_set(err, status, "%s: plan for parameter '%s': %s", link->instance->path, parameter->name,
                                 own.msg[0] ? own.msg : "failed without a message")
                  : TN_OK;
}

static int32_t create_items(const tn_chain *chain, const tn_link *link, tn_items **ret, tn_error *err)
{
    const tn_items_options options = {.path = link->instance->path,
                                      .layer = link->layer,
                                      .table = link->table.matrix,
                                      .hyper = link->instance->hyper,
                                      .context = &link->context,
                                      .parameters = chain->parameters,
                                      .on = link->active,
                                      .compute = chain->options.compute,
                                      .comm = chain->options.comm};
    return tn_items_create(&options, ret, err);
}

static int32_t plan_all(const tn_chain *chain, tn_link *link, tn_error *err)
{
    int32_t status = TN_OK;
    for (int64_t i = 0; i < chain->parameters->count && !status; i++)
        if (link->active[i])
            status = plan_parameter(&(planning){chain, link, i, err, TN_OK});
    return status;
}

int32_t tn_link_plan(const tn_chain *chain, tn_link *link, tn_error *err)
{
    link->slots = tn_alloc((size_t)chain->parameters->count, sizeof *link->slots);
    int32_t status = link->slots ? TN_OK : tn_link_no_memory(link, err);
    if (!status && link->table.matrix)
        status = create_items(chain, link, &link->items, err);
    if (!status)
        status = plan_all(chain, link, err);
    if (!status && link->items)
        status = tn_items_settle(link->items, err);
    return status;
}

/* ---- planning again, to compare ---- */

typedef struct {
    const tn_link *link;
    const tn_slot_list *has;
    tn_items *items; /* planned anew; NULL: none */
    int64_t parameter;
    int32_t count;  /* slots planned so far */
    int32_t memory; /* 1: there was none to compare with */
    int32_t wrong;  /* 1: something else than there is; then what */
    char what[64];
} comparing;

static int32_t differ(comparing *c, const char *what)
{
    if (!c->wrong)
        snprintf(c->what, sizeof c->what, "%s", what);
    c->wrong = 1;
    return TN_E_INVALID;
}

/* Of an item's plan. */
static int32_t differ_or_no_memory(comparing *c, int32_t status, const char *what)
{
    c->memory |= status == TN_E_MEMORY;
    return status == TN_OK || status == TN_E_MEMORY ? status : differ(c, what);
}

static int32_t compare_slot(void *host, const tn_slot *slot)
{
    comparing *c = host;
    tn_slot taken;
    if (!slot)
        return differ(c, "(none)");
    tn_take(&taken, sizeof taken, slot);
    int32_t at = c->count++, arena = at < c->has->count ? c->has->arena[at] : -1;
    if (c->items && taken.shape && tn_items_shape(taken.shape))
        return differ_or_no_memory(c, tn_items_slot(c->items, c->parameter, at, &taken, NULL), "(an item's)");
    if (taken.name && arena >= 0 && strcmp(c->link->arenas[arena].name, taken.name) == 0)
        return c->wrong ? TN_E_INVALID : TN_OK;
    return differ(c, taken.name ? taken.name : "(no name)");
}

static int32_t compare_scratch(void *host, int64_t bytes)
{
    comparing *c = host;
    return bytes >= 0 && bytes <= c->link->scratch ? TN_OK : differ(c, "(more scratch)");
}

static int32_t compare_item(void *host, const struct tn_box *boxes, int32_t count)
{
    comparing *c = host;
    int32_t status = c->items ? tn_items_add(c->items, c->parameter, boxes, count, NULL) : TN_E_INVALID;
    return differ_or_no_memory(c, status, "(other items)");
}

static int32_t plan_again(const tn_chain *chain, comparing *c, tn_error *err)
{
    const tn_link *link = c->link;
    const tn_slot_planner planner = {sizeof planner, 0, c, compare_slot, compare_scratch, compare_item};
    tn_error_clear(err);
    int32_t status = link->table.plan(&chain->parameters->list[c->parameter], link->instance->hyper, &planner, err);
    if (c->memory)
        return tn_link_no_memory(link, err);
    if (status && !c->wrong)
        return tn_error_wrap(err, status, "%s", link->instance->path);
    return TN_OK; /* less than it has is no harm */
}

int32_t tn_link_check_plan(const tn_chain *chain, const tn_link *link, tn_error *err)
{
    tn_items *items = NULL;
    comparing c = {.link = link};
    int32_t status = link->items && link->table.plan ? create_items(chain, link, &items, err) : TN_OK;
    for (int64_t i = 0; i < chain->parameters->count && link->table.plan && !status && !c.wrong; i++) {
        if (!link->active[i])
            continue;
        c = (comparing){.link = link, .has = &link->slots[i], .items = items, .parameter = i};
        status = plan_again(chain, &c, err);
    }
    if (!status && !c.wrong && items && !tn_items_same(link->items, items))
        differ(&c, "(other items)");
    tn_items_free(items);
    if (status || !c.wrong)
        return status;
    return tn_error_set(err, TN_E_INVALID,
                        "%s would need the state '%s', which it does not start with; give the row a value in the "
                        "experiment under which it does, such as one above 0",
                        link->instance->path, c.what);
}
