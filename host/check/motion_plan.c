/* SPDX-License-Identifier: Apache-2.0
 *
 * motion_plan.c: the parameters that a link is tried on, its plan for each, and their memory.
 */
#include "host/check/motion_link.h"

#include <stdio.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/base/take.h"

/* ---- memory ---- */

void *tn_motion_link_block(link_work *link, size_t bytes)
{
    void *block = NULL;
    if (tn_grow(&link->blocks, &link->block_capacity, link->block_count, sizeof *link->blocks) == TN_OK)
        block = tn_alloc_aligned(bytes + 64);
    if (block)
        link->blocks[link->block_count++] = block;
    return block;
}

static int32_t no_memory(tn_error *err) { return tn_error_set(err, TN_E_MEMORY, "no memory for a component at work"); }

/* An array of a cell, filled as the options say. */
static char *array_of(link_work *link, const link_cell *cell)
{
    size_t bytes = (size_t)cell->padded * link->each;
    char *block = tn_motion_link_block(link, bytes);
    if (block)
        memset(block, link->m->options.fill, bytes);
    return block;
}

/* ---- shapes ---- */

typedef struct {
    int32_t ndim, parts;
    int64_t shape[4];
    int32_t layer; /* of the layer that it is in; 0: one of its own */
} shape_row;

/* Around the 16 that pieces are whole multiples of, and the 4096 of a chunk; rows that lie across chunks; more rows
 * than a chunk has elements. */
static const shape_row vectors[] = {{.ndim = 0},
                                    {.ndim = 1, .shape = {1}},
                                    {.ndim = 1, .shape = {15}},
                                    {.ndim = 1, .shape = {16}},
                                    {.ndim = 1, .shape = {17}},
                                    {.ndim = 1, .shape = {4097}},
                                    {.ndim = 2, .shape = {5, 1500}},
                                    {.ndim = 2, .shape = {5000, 3}},
                                    {.ndim = 4, .shape = {6, 3, 5, 5}}};
static const shape_row empties[] = {{.ndim = 1, .shape = {0}},
                                    {.ndim = 1, .shape = {15}},
                                    {.ndim = 2, .shape = {0, 3}},
                                    {.ndim = 2, .shape = {6, 5}},
                                    {.ndim = 2, .shape = {4, 0}}};
static const shape_row few[] = {{.ndim = 1, .shape = {17}}, {.ndim = 2, .shape = {3, 5}}};
static const shape_row matrices[] = {{.ndim = 2, .shape = {24, 17}},     {.ndim = 2, .shape = {24, 17}},
                                     {.ndim = 2, .shape = {5, 40}},      {.ndim = 2, .shape = {70, 65}},
                                     {.ndim = 4, .shape = {6, 3, 2, 2}}, {.ndim = 2, .shape = {12, 8}, .parts = 3}};
static const shape_row few_matrices[] = {{.ndim = 2, .shape = {3, 5}}};
static const shape_row layers[] = {{.ndim = 2, .shape = {12, 7}, .layer = 1},
                                   {.ndim = 1, .shape = {12}, .layer = 1},
                                   {.ndim = 2, .shape = {12, 7}, .layer = 2},
                                   {.ndim = 1, .shape = {12}, .layer = 2},
                                   {.ndim = 2, .shape = {5, 9}, .layer = 3}};
static const shape_row few_layers[] = {{.ndim = 2, .shape = {3, 4}, .layer = 1}, {.ndim = 1, .shape = {3}, .layer = 1}};

#define LIST(rows) (ret_count[0] = (int64_t)(sizeof(rows) / sizeof *(rows)), rows)

static const shape_row *shapes_of(const link_work *link, int64_t *ret_count)
{
    const tn_motion_options *o = &link->m->options;
    if (link->is_layer)
        return o->small ? LIST(few_layers) : LIST(layers);
    if (link->is_matrix)
        return o->small ? LIST(few_matrices) : LIST(matrices);
    return o->small ? LIST(few) : o->empty ? LIST(empties) : LIST(vectors);
}

static int32_t is_empty(const shape_row *row)
{
    int32_t empty = 0;
    for (int32_t i = 0; i < row->ndim; i++)
        empty |= row->shape[i] == 0;
    return empty;
}

static void describe(const link_work *link, link_cell *cell, const shape_row *row)
{
    tn_parameter *p = &cell->parameter;
    *p = (tn_parameter){.struct_size = sizeof *p,
                        .role = row->ndim >= 2 ? TN_ROLE_WEIGHT : TN_ROLE_BIAS,
                        .name = cell->name,
                        .layer = cell->layer,
                        .ndim = row->ndim,
                        .n = cell->n,
                        .fan_in_axis = row->ndim >= 2 ? 1 : -1,
                        .fan_out_axis = row->ndim >= 2 ? 0 : -1,
                        .tied = -1,
                        .tensor_axis = -1,
                        .replicas = 1,
                        .part_count = row->parts,
                        .dtype = {TN_FLOAT, (uint8_t)link->real, 1}};
    memcpy(p->shape, row->shape, sizeof row->shape);
    for (int32_t i = 0; i < row->parts; i++)
        cell->part_rows[i] = row->shape[0] / row->parts;
    static const char *const names[] = {"q", "k", "v"};
    p->part_rows = row->parts ? cell->part_rows : NULL;
    p->part_names = row->parts ? names : NULL;
    cell->slice[0] = cell->slice[1] = *p;
    cell->slices = link->m->options.cut && cell->n > TN_CHUNK ? 2 : 1;
    if (cell->slices == 2) {
        cell->slice[0].n = TN_CHUNK;
        cell->slice[1].lo = TN_CHUNK;
        cell->slice[1].n = cell->n - TN_CHUNK;
    }
}

static void name_cell(link_cell *cell, const shape_row *row)
{
    int used = snprintf(cell->name, sizeof cell->name, "[");
    for (int32_t i = 0; i < row->ndim; i++)
        used += snprintf(cell->name + used, sizeof cell->name - (size_t)used, "%s%lld", i ? ", " : "",
                         (long long)row->shape[i]);
    snprintf(cell->name + used, sizeof cell->name - (size_t)used, "]");
    snprintf(cell->layer, sizeof cell->layer, row->layer ? "layer%d" : "p%d",
             row->layer ? row->layer : (int)cell->index);
}

static int32_t make_cell(link_work *link, link_cell *cell, const shape_row *row, tn_error *err)
{
    cell->n = 1;
    for (int32_t i = 0; i < row->ndim; i++)
        cell->n *= row->shape[i];
    cell->padded = (cell->n + 15) / 16 * 16;
    cell->rows = row->ndim >= 2 ? row->shape[0] : 0;
    cell->columns = row->ndim >= 2 ? 1 : 0;
    for (int32_t i = 1; i < row->ndim; i++)
        cell->columns *= row->shape[i];
    name_cell(cell, row);
    describe(link, cell, row);
    cell->p = array_of(link, cell);
    cell->g = array_of(link, cell);
    cell->d = array_of(link, cell);
    cell->step = array_of(link, cell);
    if (!cell->p || !cell->g || !cell->d || !cell->step)
        return no_memory(err);
    for (int64_t i = 0; i < cell->n; i++)
        tn_motion_set(link->real, cell->p, i, tn_motion_noise(cell->index, i, -1));
    return TN_OK;
}

/* ---- the plan ---- */

typedef struct {
    link_work *link;
    link_cell *cell;
    tn_error *err;
    int32_t status;
} planning;

static int32_t refuse(planning *p, const char *what)
{
    return p->status = tn_error_set(p->err, TN_E_PLUGIN, "its plan for a parameter %s: %s; see rule update-runs",
                                    p->cell->name, what);
}

static int32_t plan_slot(void *host, const tn_slot *slot)
{
    planning *p = host;
    tn_slot taken = {0};
    link_slot *to = &p->cell->slot[p->cell->slots];
    if (p->status)
        return p->status;
    if (!slot || p->cell->slots == LINK_SLOTS)
        return refuse(p, "a slot is NULL, or there are more than 16");
    tn_take(&taken, sizeof taken, slot);
    to->shape = taken.shape ? tn_slot_shape(taken.shape) : -1;
    to->flags = tn_slot_flags(taken.flags);
    to->count = taken.count > 0 ? taken.count : 1;
    if (!taken.name || to->shape < 0 || to->flags < 0 || !taken.init || !tn_slot_init(taken.init))
        return refuse(p, "a slot whose name, shape, init or flags are none");
    if (to->shape >= TN_SHAPE_ITEM && !p->link->is_matrix)
        return refuse(p, "a slot of a matrix, but the grain is neither matrix nor layer");
    snprintf(to->name, sizeof to->name, "%s", taken.name);
    snprintf(to->init, sizeof to->init, "%s", taken.init);
    p->cell->slots++;
    return TN_OK;
}

static int32_t plan_scratch(void *host, int64_t bytes)
{
    planning *p = host;
    if (!p->status && (bytes < 0 || bytes > INT32_MAX))
        return refuse(p, "scratch outside 0 to 2^31 bytes");
    if (!p->status && bytes > p->link->scratch)
        p->link->scratch = bytes;
    return p->status;
}

static link_item *add_item(link_work *link, link_cell *cell)
{
    if (tn_grow(&link->items, &link->item_capacity, link->item_count, sizeof *link->items))
        return NULL;
    link_item *item = &link->items[link->item_count++];
    *item = (link_item){.weight = cell};
    cell->items++;
    return item;
}

static int32_t plan_item(void *host, const struct tn_box *boxes, int32_t count)
{
    planning *p = host;
    if (p->status)
        return p->status;
    if (!p->link->is_matrix || p->link->is_layer || count < 1 || count > LINK_BOXES || !boxes)
        return refuse(p, "an item, where there can be none or of no boxes");
    link_item *item = add_item(p->link, p->cell);
    if (!item)
        return p->status = no_memory(p->err);
    for (int32_t i = 0; i < count; i++) {
        const tn_box *b = &boxes[i];
        if (b->row < 0 || b->column < 0 || b->rows < 1 || b->columns < 1 || b->row + b->rows > p->cell->rows ||
            b->column + b->columns > p->cell->columns || b->columns != boxes[0].columns)
            return refuse(p, "a box that is empty, beyond the matrix or of other columns than the item's first");
        item->box[item->boxes++] = *b;
        item->rows += b->rows;
    }
    item->columns = boxes[0].columns;
    return TN_OK;
}

static int32_t plan_noted(const link_work *link, const tn_slot_planner *planner)
{
    const json_t *list = json_object_get(link->m->subject->info->facts, "slots"), *object;
    int32_t status = TN_OK;
    for (size_t i = 0; status == TN_OK && (object = json_array_get(list, i)); i++) {
        const tn_slot slot = {sizeof slot,
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

static int32_t plan_cell(link_work *link, link_cell *cell, tn_error *err)
{
    tn_error own = {0};
    planning p = {link, cell, &own, TN_OK};
    const tn_slot_planner planner = {sizeof planner, 0, &p, plan_slot, plan_scratch, plan_item};
    int32_t status = link->table.plan ? link->table.plan(&cell->parameter, link->m->instance->hyper, &planner, &own)
                                      : plan_noted(link, &planner);
    status = p.status ? p.status : status;
    return status ? tn_error_set(err, status, "%s", own.msg[0] ? own.msg : "its plan failed without a message") : TN_OK;
}

/* ---- slots ---- */

static size_t slot_bytes(const link_work *link, const link_cell *cell, const link_slot *slot)
{
    switch (slot->shape) {
    case TN_SHAPE_LIKE:
        return (size_t)cell->n * link->each;
    case TN_SHAPE_ROWS:
        return (size_t)cell->rows * link->each;
    case TN_SHAPE_COLUMNS:
        return (size_t)cell->columns * link->each;
    default:
        return (size_t)slot->count * sizeof(double);
    }
}

static void start_slot(const link_work *link, const link_cell *cell, link_slot *slot)
{
    uint32_t real = slot->shape == TN_SHAPE_SCALAR || slot->shape == TN_SHAPE_GLOBAL ? 64 : link->real;
    if (slot->shape == TN_SHAPE_LIKE)
        memset(slot->data, link->m->options.fill, (size_t)cell->padded * link->each);
    for (int64_t i = 0; i < (int64_t)(slot->bytes * 8 / real); i++)
        tn_motion_set(real, slot->data, i,
                      strcmp(slot->init, "parameter") == 0 ? tn_motion_get(link->real, cell->p, i)
                                                           : strcmp(slot->init, "one") == 0);
}

static const link_slot *global_of(const link_work *link, const link_cell *end, const char *name)
{
    for (const link_cell *cell = link->cells; cell < end; cell++)
        for (int32_t j = 0; j < cell->slots; j++)
            if (cell->slot[j].shape == TN_SHAPE_GLOBAL && strcmp(cell->slot[j].name, name) == 0)
                return &cell->slot[j];
    return NULL;
}

static int32_t show_slot(link_work *link, const link_cell *cell, const link_slot *slot, tn_error *err)
{
    int32_t wide = slot->shape == TN_SHAPE_SCALAR || slot->shape == TN_SHAPE_GLOBAL;
    if (slot->flags & TN_SLOT_TRANSIENT)
        return TN_OK;
    tn_span *span =
        tn_motion_span(link->m, slot->data, slot->bytes, wide ? 64 : (int32_t)link->real, 1, err, "slot '%s' of %s",
                       slot->name, slot->shape == TN_SHAPE_GLOBAL ? "the link" : cell->name);
    if (span)
        span->nonnegative = (slot->flags & TN_SLOT_NONNEGATIVE) != 0;
    return span ? TN_OK : TN_E_MEMORY;
}

static int32_t make_slot(link_work *link, link_cell *cell, link_slot *slot, tn_error *err)
{
    const link_slot *first = slot->shape == TN_SHAPE_GLOBAL ? global_of(link, cell, slot->name) : NULL;
    if (slot->shape >= TN_SHAPE_ITEM)
        return TN_OK;
    slot->bytes = slot_bytes(link, cell, slot);
    if (first) {
        slot->is_shared = 1;
        slot->data = first->data;
        slot->copy = first->copy;
        return TN_OK;
    }
    slot->data =
        tn_motion_link_block(link, slot->shape == TN_SHAPE_LIKE ? (size_t)cell->padded * link->each : slot->bytes);
    slot->copy = slot->shape == TN_SHAPE_LIKE ? NULL : tn_motion_link_block(link, slot->bytes);
    if (!slot->data || (slot->shape != TN_SHAPE_LIKE && !slot->copy))
        return no_memory(err);
    start_slot(link, cell, slot);
    return show_slot(link, cell, slot, err);
}

/* ---- items ---- */

size_t tn_motion_item_bytes(const link_work *link, const link_item *item, int32_t shape)
{
    int64_t rows = shape == TN_SHAPE_RIGHT ? item->columns : item->rows;
    int64_t columns = shape == TN_SHAPE_LEFT ? item->rows : item->columns;
    return (size_t)(rows * columns) * link->each;
}

/* The whole matrix view, and of a layer the bias behind it. */
static int32_t default_items(link_work *link, tn_error *err)
{
    for (link_cell *cell = link->cells; cell < link->cells + link->count; cell++) {
        if (cell->items || cell->rows == 0)
            continue;
        link_item *item = add_item(link, cell);
        if (!item)
            return no_memory(err);
        item->box[item->boxes++] = (tn_box){0, cell->rows, 0, cell->columns};
        item->rows = cell->rows;
        item->columns = cell->columns;
        link_cell *next = cell + 1;
        if (link->is_layer && next < link->cells + link->count && next->rows == 0) {
            item->bias = next;
            item->columns++;
        }
    }
    return TN_OK;
}

static int32_t make_item(link_work *link, link_item *item, tn_error *err)
{
    for (int32_t j = 0; j < item->weight->slots; j++) {
        const link_slot *slot = &item->weight->slot[j];
        size_t bytes = slot->shape < TN_SHAPE_ITEM ? 0 : tn_motion_item_bytes(link, item, slot->shape);
        if (slot->shape < TN_SHAPE_ITEM)
            continue;
        if (!(item->slot[j] = tn_motion_link_block(link, bytes)))
            return no_memory(err);
        for (int64_t i = 0; i < (int64_t)(bytes / link->each); i++)
            tn_motion_set(link->real, item->slot[j], i, strcmp(slot->init, "one") == 0);
        if (!(slot->flags & TN_SLOT_TRANSIENT) &&
            !tn_motion_span(link->m, item->slot[j], bytes, (int32_t)link->real, 1, err, "slot '%s' of %s", slot->name,
                            item->weight->name))
            return TN_E_MEMORY;
    }
    return TN_OK;
}

static int32_t make_items(link_work *link, tn_error *err)
{
    int32_t status = link->is_matrix ? default_items(link, err) : TN_OK;
    for (size_t i = 0; i < link->item_count && status == TN_OK; i++)
        status = make_item(link, &link->items[i], err);
    return status;
}

/* ---- pieces ---- */

static int32_t most_of(const link_work *link, size_t field)
{
    int32_t most = 0;
    for (int32_t i = 0; i < link->rounds; i++) {
        int32_t value = *(const int32_t *)((const char *)&link->round[i] + field);
        most = value > most ? value : most;
    }
    return most;
}

static size_t doubles(int64_t count) { return (size_t)count * sizeof(double); }

static int32_t make_chunk(link_work *link, link_cell *cell, int64_t lo, tn_error *err)
{
    link_piece *chunk = &link->chunks[link->chunk_count++];
    int64_t n = cell->n - lo < TN_CHUNK ? cell->n - lo : TN_CHUNK;
    *chunk = (link_piece){.cell = cell, .lo = lo, .n = n};
    if (cell->columns) {
        chunk->row = lo / cell->columns;
        chunk->rows = (lo + n - 1) / cell->columns - chunk->row + 1;
    }
    chunk->scalars = tn_motion_link_block(link, doubles(most_of(link, offsetof(link_round, scalars))));
    chunk->sum_rows = tn_motion_link_block(link, doubles(chunk->rows * most_of(link, offsetof(link_round, rows))));
    chunk->sum_columns =
        tn_motion_link_block(link, doubles(cell->columns * most_of(link, offsetof(link_round, columns))));
    return chunk->scalars && chunk->sum_rows && chunk->sum_columns ? TN_OK : no_memory(err);
}

static void make_pieces(link_work *link, link_cell *cell, int64_t length)
{
    for (int64_t at = 0, n; at < cell->n; at += n) {
        int64_t left = TN_CHUNK - at % TN_CHUNK;
        n = left < length ? left : length;
        n = cell->n - at < n ? cell->n - at : n;
        link->pieces[link->piece_count++] = (link_piece){.cell = cell, .lo = at, .n = n};
    }
}

static int32_t cut(link_work *link, tn_error *err)
{
    int64_t chunks = 0, pieces = 0, length = link->m->options.piece ? link->m->options.piece : TN_CHUNK;
    int32_t status = TN_OK;
    for (int64_t i = 0; i < link->count; i++) {
        int64_t of = (link->cells[i].n + TN_CHUNK - 1) / TN_CHUNK;
        chunks += of;
        pieces += of * ((TN_CHUNK + length - 1) / length);
    }
    link->chunks = tn_motion_link_block(link, (size_t)chunks * sizeof *link->chunks);
    link->pieces = tn_motion_link_block(link, (size_t)pieces * sizeof *link->pieces);
    if (!link->chunks || !link->pieces)
        return no_memory(err);
    for (link_cell *cell = link->cells; cell < link->cells + link->count; cell++) {
        for (int64_t lo = 0; lo < cell->n && status == TN_OK && link->rounds; lo += TN_CHUNK)
            status = make_chunk(link, cell, lo, err);
        make_pieces(link, cell, length);
    }
    return status;
}

/* ---- all of it ---- */

static int32_t make_sums(link_work *link, link_cell *cell, tn_error *err)
{
    cell->sums = tn_motion_link_block(link, doubles(most_of(link, offsetof(link_round, scalars))));
    cell->row_sums = tn_motion_link_block(link, doubles(cell->rows * most_of(link, offsetof(link_round, rows))));
    cell->column_sums =
        tn_motion_link_block(link, doubles(cell->columns * most_of(link, offsetof(link_round, columns))));
    cell->k = link->per_tensor ? tn_motion_link_block(link, link->k_bytes) : link->k;
    return cell->sums && cell->row_sums && cell->column_sums && cell->k ? TN_OK : no_memory(err);
}

static int32_t finish_cell(link_work *link, link_cell *cell, tn_error *err)
{
    int32_t status = make_sums(link, cell, err);
    if (status == TN_OK && !tn_motion_span(link->m, cell->p, (size_t)cell->n * link->each, (int32_t)link->real, 1, err,
                                           "p of %s", cell->name))
        status = TN_E_MEMORY;
    if (status == TN_OK && link->stage < LINK_RULE && link->table.update &&
        !tn_motion_span(link->m, cell->d, (size_t)cell->n * link->each, (int32_t)link->real, 0, err, "d of %s",
                        cell->name))
        status = TN_E_MEMORY;
    for (int32_t j = 0; j < cell->slots && status == TN_OK; j++)
        status = make_slot(link, cell, &cell->slot[j], err);
    return status;
}

/* A component may be for some shapes only; *ret: the first refusal. */
static int32_t plan_cells(link_work *link, tn_error *err)
{
    int64_t count, kept = 0;
    int32_t status = TN_OK, refused = TN_OK;
    const shape_row *rows = shapes_of(link, &count);
    if (!(link->cells = tn_motion_link_block(link, (size_t)count * sizeof *link->cells)))
        return no_memory(err);
    for (int64_t i = 0; i < count && status == TN_OK; i++) {
        link_cell *cell = &link->cells[kept];
        if (link->m->options.empty == 2 && is_empty(&rows[i]))
            continue;
        size_t items = link->item_count;
        memset(cell, 0, sizeof *cell);
        cell->index = i;
        status = make_cell(link, cell, &rows[i], err);
        if (status == TN_OK)
            status = plan_cell(link, cell, err);
        kept += status == TN_OK;
        link->item_count = status ? items : link->item_count;
        refused = status ? status : refused;
        status = status == TN_E_INVALID || status == TN_E_UNSUPPORTED ? TN_OK : status;
    }
    link->count = kept;
    return status ? status : kept ? TN_OK : refused;
}

int32_t tn_motion_link_plan(link_work *link, tn_error *err)
{
    link->k_bytes = link->table.constants_bytes;
    link->k = tn_motion_link_block(link, link->k_bytes);
    link->report = tn_motion_link_block(link, doubles(link->reports));
    int32_t status = link->k && link->report ? plan_cells(link, err) : no_memory(err);
    for (int64_t i = 0; i < link->count && status == TN_OK; i++)
        status = finish_cell(link, &link->cells[i], err);
    if (status == TN_OK)
        status = make_items(link, err);
    if (status == TN_OK && link->reports &&
        !tn_motion_span(link->m, link->report, doubles(link->reports), 64, 0, err, "reports"))
        status = TN_E_MEMORY;
    return status ? status : cut(link, err);
}
