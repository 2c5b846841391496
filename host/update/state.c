/* SPDX-License-Identifier: Apache-2.0
 *
 * state.c: the memory of a link's slots. Like-shaped slots lie in one arena, a parameter's behind another's, each
 * aligned to 64 bytes and, without a codec, padded to 64 elements. Slots of other shapes are written by fold only: it
 * writes a copy, which becomes the state when the step commits.
 */
#include <stdio.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/base/philox.h"
#include "host/update/internal.h"

static int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/* What evaluation reads lies as the parameters do. */
static int is_view(const tn_link *link, const tn_arena *arena)
{
    const char *name = tn_fact_text(link->instance->info->facts, "view", NULL);
    return name && strcmp(name, arena->name) == 0;
}

/* ---- sizes ---- */

static int64_t elements_of(const tn_parameter *parameter, const tn_arena *arena)
{
    int64_t rows, columns;
    tn_layout_view(parameter, &rows, &columns);
    switch (arena->shape) {
    case TN_SHAPE_LIKE:
        return parameter->n;
    case TN_SHAPE_ROWS:
        return rows;
    case TN_SHAPE_COLUMNS:
        return columns;
    default:
        return arena->count;
    }
}

static int64_t real_of(const tn_chain *chain, const tn_arena *arena)
{
    return arena->shape >= TN_SHAPE_SCALAR ? (int64_t)sizeof(double) : (int64_t)chain->real;
}

static int64_t bytes_of(const tn_chain *chain, const tn_arena *arena, int64_t i)
{
    int64_t elements = elements_of(&chain->parameters->list[i], arena);
    if (arena->codec.table)
        return tn_codec_bytes(arena->codec.table, chain->parameters->real, elements);
    return elements * real_of(chain, arena);
}

/* Sets where each parameter's begins, and the bytes of all. */
static void place_all(const tn_chain *chain, const tn_link *link, tn_arena *arena)
{
    int64_t end = 0;
    const tn_parameters *parameters = chain->parameters;
    for (int64_t i = 0; i < parameters->count; i++) {
        int64_t bytes = bytes_of(chain, arena, i);
        if (arena->at[i] < 0 || (arena->shape == TN_SHAPE_GLOBAL && end))
            continue;
        arena->at[i] = is_view(link, arena) ? parameters->at[i] * (int64_t)chain->real : end;
        if (arena->shape == TN_SHAPE_LIKE && !arena->codec.table)
            bytes = (bytes + TN_ALIGN_ELEMENTS * (int64_t)chain->real - 1) /
                    (TN_ALIGN_ELEMENTS * (int64_t)chain->real) * (TN_ALIGN_ELEMENTS * (int64_t)chain->real);
        end = aligned(arena->at[i] + bytes);
    }
    arena->bytes = is_view(link, arena) ? parameters->elements * (int64_t)chain->real : end;
}

/* ---- initial values ---- */

static void fill_ones(void *data, int64_t real, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (real == sizeof(float))
            ((float *)data)[i] = 1;
        else
            ((double *)data)[i] = 1;
}

static void fill_like(const tn_chain *chain, const tn_arena *arena, int64_t i)
{
    _Alignas(64) char block[TN_CHUNK * sizeof(double)];
    const tn_parameter *parameter = &chain->parameters->list[i];
    tn_operand p = tn_chain_p(chain, i);
    for (int64_t at = parameter->lo, end = at + parameter->n, n; at < end; at += n) {
        n = tn_smaller(TN_CHUNK, end - at);
        memset(block, 0, sizeof block);
        if (strcmp(arena->init, "parameter") == 0)
            tn_operand_read(&p, at, n, block);
        else if (strcmp(arena->init, "one") == 0)
            fill_ones(block, (int64_t)chain->real, n);
        tn_operand_write(&arena->operand[i], at, n, block);
    }
}

static void fill(const tn_chain *chain, const tn_arena *arena)
{
    int zero = strcmp(arena->init, "zero") == 0;
    for (int64_t i = 0; i < chain->parameters->count; i++)
        if (arena->at[i] >= 0 && arena->shape == TN_SHAPE_LIKE && !(zero && !arena->codec.table))
            fill_like(chain, arena, i);
        else if (arena->at[i] >= 0 && arena->shape != TN_SHAPE_LIKE && !zero)
            fill_ones(arena->data + arena->at[i], real_of(chain, arena),
                      elements_of(&chain->parameters->list[i], arena));
}

/* ---- arenas ---- */

/* Arenas of one size begin at the same place of a page, so a block's arrays would all fall on the same cache sets
 * (measured: 1.1 to 1.5 times the time). Each begins some lines later than the one before. */
#define STAGGER       (17 * 64)
#define STAGGER_COUNT 16

static tn_operand operand_of(const tn_chain *chain, const tn_link *link, const tn_arena *arena, int64_t i)
{
    const tn_parameter *parameter = &chain->parameters->list[i];
    uint32_t real = chain->parameters->real;
    char purpose[512];
    if (!arena->codec.table)
        return tn_operand_arena(real, arena->data + arena->at[i], parameter->lo);
    snprintf(purpose, sizeof purpose, "%s.%s of %s", link->instance->handle, arena->name, parameter->name);
    uint64_t key = tn_hash_key(chain->options.seed, arena->codec.instance->path, purpose);
    return tn_operand_stored(real, &arena->codec, arena->nonnegative ? TN_CODEC_NONNEGATIVE : 0,
                             arena->data + arena->at[i], NULL, parameter->lo, parameter->n, key, &chain->context);
}

static int32_t make_operands(const tn_chain *chain, const tn_link *link, tn_arena *arena, tn_error *err)
{
    size_t count = (size_t)chain->parameters->count;
    if (!(arena->operand = tn_alloc(count, sizeof *arena->operand)))
        return tn_link_no_memory(link, err);
    for (size_t i = 0; i < count; i++)
        if (arena->at[i] >= 0)
            arena->operand[i] = operand_of(chain, link, arena, (int64_t)i);
    return TN_OK;
}

static int32_t make_copies(const tn_link *link, tn_arena *arena, tn_error *err)
{
    arena->copy = tn_alloc_aligned((size_t)arena->bytes);
    if (arena->shape == TN_SHAPE_GLOBAL)
        arena->spare = tn_alloc_aligned((size_t)arena->bytes);
    return arena->copy && (arena->spare || arena->shape != TN_SHAPE_GLOBAL) ? TN_OK : tn_link_no_memory(link, err);
}

static int32_t make_arena(const tn_chain *chain, const tn_link *link, size_t ordinal, tn_arena *arena, tn_error *err)
{
    if (arena->shape == TN_SHAPE_LIKE && !is_view(link, arena))
        arena->codec = chain->options.state;
    place_all(chain, link, arena);
    if (!(arena->block = tn_alloc_aligned((size_t)arena->bytes + STAGGER_COUNT * STAGGER)))
        return tn_link_no_memory(link, err);
    arena->data = (char *)arena->block + (ordinal % STAGGER_COUNT + 1) * STAGGER;
    int32_t status =
        arena->shape == TN_SHAPE_LIKE ? make_operands(chain, link, arena, err) : make_copies(link, arena, err);
    if (!status)
        fill(chain, arena);
    return status;
}

int32_t tn_link_allocate(const tn_chain *chain, size_t ordinal, tn_link *link, tn_error *err)
{
    size_t count = (size_t)chain->parameters->count;
    link->k_size = (link->table.constants_bytes + 15) / 16 * 16;
    link->k = tn_alloc_aligned(count * link->k_size);
    link->used = tn_alloc(count, 1);
    int32_t status = link->k && link->used ? TN_OK : tn_link_no_memory(link, err);
    for (int32_t j = 0; j < link->arena_count && !status; j++)
        status = make_arena(chain, link, ordinal + (size_t)j, &link->arenas[j], err);
    return status;
}

void *tn_arena_copy(const tn_arena *arena, int64_t parameter)
{
    return arena->at[parameter] < 0 ? NULL : arena->copy + arena->at[parameter];
}

void tn_link_copy(tn_link *link)
{
    for (tn_arena *arena = link->arenas; arena < link->arenas + link->arena_count; arena++)
        if (arena->copy)
            memcpy(arena->copy, arena->data, (size_t)arena->bytes);
}

void tn_link_commit(tn_link *link)
{
    for (tn_arena *arena = link->arenas; arena < link->arenas + link->arena_count; arena++)
        if (arena->copy)
            memcpy(arena->data, arena->copy, (size_t)arena->bytes);
}

/* ---- the list ---- */

static void list_slot(tn_chain *chain, const tn_link *link, const tn_arena *arena, int64_t i)
{
    const tn_codec *codec = arena->codec.table;
    int32_t global = arena->shape == TN_SHAPE_GLOBAL, like = arena->shape == TN_SHAPE_LIKE;
    chain->slots[chain->slot_count++] =
        (tn_chain_slot){.link = link->instance->handle,
                        .slot = arena->name,
                        .parameter = global ? -1 : i,
                        .shape = tn_slot_shape_name(arena->shape),
                        .data = arena->data + arena->at[i],
                        .elements = elements_of(&chain->parameters->list[i], arena),
                        .bytes = bytes_of(chain, arena, i),
                        .bits = codec ? codec->bits : (int32_t)real_of(chain, arena) * 8,
                        .persistent = arena->persistent,
                        .replicated = !like || chain->parameters->list[i].replicas >= chain->size};
}

/* The like-shaped ones and those of fold: a parameter's in the order of its plan, a global one once. */
static void list_link(tn_chain *chain, const tn_link *link)
{
    for (int64_t i = 0; i < chain->parameters->count && link->slots; i++)
        for (int32_t j = 0; j < link->slots[i].count; j++) {
            int32_t at = link->slots[i].arena[j];
            if (at >= 0 && (link->arenas[at].shape != TN_SHAPE_GLOBAL || i == link->first))
                list_slot(chain, link, &link->arenas[at], i);
        }
    for (size_t j = 0; link->items && j < tn_items_slot_count(link->items); j++) {
        tn_items_slot_at(link->items, j, &chain->slots[chain->slot_count]);
        chain->slots[chain->slot_count++].link = link->instance->handle;
    }
}

static void list_minimizer(tn_chain *chain, const tn_link *link)
{
    for (size_t j = 0; j < tn_minimizer_slot_count(chain->minimizer); j++) {
        tn_minimizer_slot_at(chain->minimizer, j, &chain->slots[chain->slot_count]);
        chain->slots[chain->slot_count++].link = link->instance->handle;
    }
}

int32_t tn_state_list(tn_chain *chain, tn_error *err)
{
    size_t count = chain->minimizer ? tn_minimizer_slot_count(chain->minimizer) : 0;
    for (tn_link *link = chain->links; link < chain->links + chain->link_count; link++) {
        for (int64_t i = 0; i < chain->parameters->count && link->slots; i++)
            count += (size_t)link->slots[i].count;
        count += link->items ? tn_items_slot_count(link->items) : 0;
    }
    if (!(chain->slots = tn_alloc(count, sizeof *chain->slots)))
        return tn_error_set(err, TN_E_MEMORY, "update: no memory for the list of %zu slots", count);
    for (size_t l = 0; l < chain->link_count; l++)
        if (chain->minimizer && l == chain->minimizer_at)
            list_minimizer(chain, &chain->links[l]);
        else
            list_link(chain, &chain->links[l]);
    return TN_OK;
}

int64_t tn_state_bytes(const tn_chain *chain)
{
    int64_t bytes = chain->minimizer ? tn_minimizer_bytes(chain->minimizer) : 0;
    for (const tn_link *link = chain->links; link < chain->links + chain->link_count; link++) {
        for (int32_t j = 0; j < link->arena_count; j++)
            bytes += link->arenas[j].bytes;
        bytes += link->items ? tn_items_bytes(link->items) : 0;
    }
    bytes += chain->backup ? chain->backup_at[chain->parameters->count] : 0;
    return bytes + (chain->step ? chain->parameters->elements * (int64_t)chain->real : 0);
}
