/* SPDX-License-Identifier: Apache-2.0
 *
 * matrix.c: the items of a matrix link: plans, owners, state.
 */
#include "host/update/matrix.h"

#include <inttypes.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/base/take.h"
#include "host/update/matrix_items.h"

/* Batches end where their matrices and scratch would take more. */
#define BATCH_BYTES   ((int64_t)32 << 20)
#define WORKSPACE_MAX ((int64_t)1 << 40)

static int32_t no_memory(const tn_items *s, tn_error *err)
{
    return tn_error_set(err, TN_E_MEMORY, "%s: no memory for its matrices", s->options.path);
}

static const tn_parameter *parameter_at(const tn_items *s, int64_t i) { return &s->options.parameters->list[i]; }

static int is_on(const tn_items *s, int64_t i) { return !s->options.on || s->options.on[i]; }

static int64_t view_rows(const tn_parameter *p) { return p->shape[0]; }

static int64_t view_columns(const tn_parameter *p)
{
    int64_t columns = 1;
    for (int32_t a = 1; a < p->ndim; a++)
        columns *= p->shape[a];
    return columns;
}

/* ---- what the link may be on ---- */

static int32_t refuse(const tn_items *s, const tn_parameter *p, const char *what, tn_error *err)
{
    return tn_error_set(err, TN_E_INVALID, "%s: parameter '%s' %s; route it to another rule with `on:`",
                        s->options.path, p->name, what);
}

static int32_t check_matrix(const tn_items *s, const tn_parameter *p, tn_error *err)
{
    if (p->ndim < 2)
        return refuse(s, p, p->ndim ? "has one axis, needed two or more" : "has no axis, needed two or more", err);
    if (p->tensor_axis > 0)
        return tn_error_set(err, TN_E_UNSUPPORTED,
                            "%s: parameter '%s' is cut across its rows (tensor axis %d), needed axis 0 or none; "
                            "route it to another rule with `on:`",
                            s->options.path, p->name, p->tensor_axis);
    return TN_OK;
}

static int is_weight(const tn_parameter *p)
{
    return p->ndim == 2 && (p->role == TN_ROLE_WEIGHT || p->role == TN_ROLE_HEAD) &&
           (p->fan_in_axis == 1 || p->fan_in_axis == -1);
}

/* The weight on the link that shares a layer with parameter i; -1: none. */
static int64_t weight_of(const tn_items *s, int64_t i)
{
    for (int64_t w = 0; w < s->options.parameters->count; w++)
        if (w != i && is_on(s, w) && is_weight(parameter_at(s, w)) &&
            strcmp(parameter_at(s, w)->layer, parameter_at(s, i)->layer) == 0)
            return w;
    return -1;
}

static int32_t check_layer(tn_items *s, int64_t i, tn_error *err)
{
    const tn_parameter *p = parameter_at(s, i);
    int64_t w = weight_of(s, i);
    if (is_weight(p))
        return w < 0 ? check_matrix(s, p, err)
                     : refuse(s, p, "shares its layer with another weight, needed one a layer", err);
    if (p->ndim != 1 || p->role != TN_ROLE_BIAS)
        return refuse(s, p, "is neither a linear layer's weight [out, in] nor its bias", err);
    if (w < 0 || s->bias[w] >= 0 || view_rows(parameter_at(s, w)) != p->shape[0])
        return refuse(s, p, "is a bias whose layer has no weight of as many rows on this link", err);
    s->bias[w] = i;
    return TN_OK;
}

static int32_t check_parameters(tn_items *s, tn_error *err)
{
    int32_t status = TN_OK;
    for (int64_t i = 0; i < s->options.parameters->count; i++)
        s->bias[i] = -1;
    for (int64_t i = 0; i < s->options.parameters->count && !status; i++)
        if (is_on(s, i))
            status = s->options.layer ? check_layer(s, i, err) : check_matrix(s, parameter_at(s, i), err);
    return status;
}

/* ---- who holds what ---- */

static tn_held *held_at(tn_items *s, int32_t rank, int64_t i)
{
    return &s->held[(int64_t)rank * s->options.parameters->count + i];
}

static int32_t not_covered(const tn_items *s, int64_t i, int64_t at, tn_error *err)
{
    return tn_error_set(err, TN_E_INVALID,
                        "%s: of parameter '%s' no process holds a slice from element %" PRId64
                        " on that others do not cut; needed slices that cover it once, or equal ones",
                        s->options.path, parameter_at(s, i)->name, at);
}

static int32_t check_held(tn_items *s, int64_t i, tn_error *err)
{
    int64_t total = view_rows(parameter_at(s, i)) * view_columns(parameter_at(s, i));
    for (int64_t at = 0; at < total;) {
        int32_t r = 0;
        while (r < s->size && (held_at(s, r, i)->n <= 0 || held_at(s, r, i)->lo != at))
            r++;
        if (r == s->size || held_at(s, r, i)->n > total - at)
            return not_covered(s, i, at, err);
        held_at(s, r, i)->first = 1;
        at += held_at(s, r, i)->n;
    }
    for (int32_t r = 0; r < s->size; r++) {
        const tn_held *mine = held_at(s, r, i);
        int32_t f = 0;
        while (mine->n > 0 && f < s->size &&
               !(held_at(s, f, i)->first && held_at(s, f, i)->lo == mine->lo && held_at(s, f, i)->n == mine->n))
            f++;
        if (f == s->size)
            return not_covered(s, i, mine->lo, err);
    }
    return TN_OK;
}

static int32_t exchange_held(tn_items *s, tn_error *err)
{
    int64_t count = s->options.parameters->count, bytes = count * (int64_t)sizeof(tn_held);
    tn_held *own = tn_alloc((size_t)count, sizeof *own);
    if (!own)
        return no_memory(s, err);
    for (int64_t i = 0; i < count; i++)
        own[i] = (tn_held){parameter_at(s, i)->lo, parameter_at(s, i)->n, 0};
    int32_t status = tn_comm_all_gather(s->options.comm, own, s->held, bytes, err);
    tn_free(own);
    for (int64_t i = 0; i < count && !status; i++)
        if (is_on(s, i))
            status = check_held(s, i, err);
    return status;
}

/* ---- creation ---- */

static int32_t check_table(const tn_items *s, tn_error *err)
{
    const char *wrong = !s->table.apply                      ? "it has no apply"
                        : !s->table.tapping != !s->table.tap ? "it has only one of tapping and tap"
                        : s->table.tap && !s->options.layer  ? "it taps, which needs grain layer"
                                                             : NULL;
    if (wrong)
        return tn_error_set(err, TN_E_PLUGIN, "%s: %s; correct the plugin", s->options.path, wrong);
    if (!s->options.compute)
        return tn_error_set(err, TN_E_UNSUPPORTED,
                            "%s: a link of matrices needs a backend for its products, here is none; use another rule",
                            s->options.path);
    return TN_OK;
}

int32_t tn_items_create(const tn_items_options *options, tn_items **ret, tn_error *err)
{
    tn_items *s = tn_alloc(1, sizeof *s);
    if (!s)
        return tn_error_set(err, TN_E_MEMORY, "%s: no memory for its matrices", options->path);
    size_t count = (size_t)options->parameters->count;
    s->options = *options;
    if (options->table)
        tn_take(&s->table, sizeof s->table, options->table);
    if (options->compute)
        s->compute = tn_compute_open(options->compute);
    s->real = options->parameters->real / 8;
    s->rank = tn_comm_rank(options->comm);
    s->size = tn_comm_size(options->comm);
    s->held = tn_alloc((size_t)s->size * count, sizeof *s->held);
    s->bias = tn_alloc(count, sizeof *s->bias);
    s->plan = tn_alloc(count, sizeof *s->plan);
    int32_t status = s->held && s->bias && s->plan ? check_table(s, err) : no_memory(s, err);
    if (!status)
        status = check_parameters(s, err);
    if (!status)
        status = exchange_held(s, err);
    if (status)
        tn_items_free(s);
    else
        *ret = s;
    return status;
}

static void free_batches(tn_items *s)
{
    for (size_t b = 0; b < s->batch_count; b++)
        for (int32_t j = 0; j < TN_CHAIN_SLOTS; j++)
            tn_free(s->batches[b].slot[j]);
    tn_free(s->batches);
    for (size_t i = 0; i < s->slot_count; i++)
        tn_free((char *)s->slots[i].slot);
    tn_free(s->slots);
}

void tn_items_free(tn_items *s)
{
    if (!s)
        return;
    free_batches(s);
    for (size_t i = 0; i < s->count; i++)
        tn_free(s->list[i].boxes);
    for (int64_t i = 0; s->plan && i < s->options.parameters->count; i++)
        for (int32_t j = 0; j < s->plan[i].count; j++)
            tn_free(s->plan[i].slot[j].name);
    tn_free(s->list);
    tn_free(s->plan);
    tn_free(s->bias);
    tn_free(s->held);
    tn_free(s->d);
    tn_free(s->message);
    tn_free(s->workspace);
    tn_free(s->samples);
    tn_free(s);
}

/* ---- plans ---- */

static int32_t check_box(const tn_parameter *p, const tn_box *box, int64_t columns, tn_error *err)
{
    if (box->row < 0 || box->rows < 1 || box->row > view_rows(p) - box->rows || box->column < 0 || box->columns < 1 ||
        box->column > view_columns(p) - box->columns)
        return tn_error_set(err, TN_E_PLUGIN,
                            "a box of rows %" PRId64 " + %" PRId64 " and columns %" PRId64 " + %" PRId64
                            " is empty or beyond the matrix view of %" PRId64 " x %" PRId64,
                            box->row, box->rows, box->column, box->columns, view_rows(p), view_columns(p));
    if (box->columns != columns)
        return tn_error_set(err, TN_E_PLUGIN, "an item has boxes of %" PRId64 " and %" PRId64 " columns, needed equal",
                            columns, box->columns);
    return TN_OK;
}

static int64_t items_of(const tn_items *s, int64_t parameter)
{
    int64_t n = 0;
    for (size_t i = 0; i < s->count; i++)
        n += s->list[i].weight == parameter;
    return n;
}

static int32_t push(tn_items *s, const tn_item *item, const tn_box *boxes, tn_error *err)
{
    tn_box *copy = tn_alloc((size_t)item->box_count, sizeof *copy);
    int32_t status = copy ? tn_grow(&s->list, &s->capacity, s->count, sizeof *s->list) : TN_E_MEMORY;
    if (status) {
        tn_free(copy);
        return no_memory(s, err);
    }
    memcpy(copy, boxes, (size_t)item->box_count * sizeof *copy);
    s->list[s->count] = *item;
    s->list[s->count].boxes = copy;
    s->list[s->count++].owner = 0;
    return TN_OK;
}

int32_t tn_items_add(tn_items *s, int64_t parameter, const tn_box *boxes, int32_t count, tn_error *err)
{
    tn_item item = {.weight = parameter, .bias = -1, .box_count = count, .planned = 1};
    int32_t status = TN_OK;
    if (s->options.layer)
        return tn_error_set(err, TN_E_PLUGIN, "it plans items; of grain layer each layer is one");
    if (count < 1 || !boxes)
        return tn_error_set(err, TN_E_PLUGIN, "it plans an item without boxes");
    for (int32_t b = 0; b < count && !status; b++) {
        status = check_box(parameter_at(s, parameter), &boxes[b], boxes[0].columns, err);
        item.rows += boxes[b].rows;
    }
    item.columns = boxes[0].columns;
    item.number = items_of(s, parameter);
    return status ? status : push(s, &item, boxes, err);
}

int tn_items_shape(const char *shape) { return tn_slot_shape(shape) >= TN_SHAPE_ITEM; }

static int32_t read_flags(const char *words, tn_item_slot *slot, tn_error *err)
{
    int32_t flags = tn_slot_flags(words);
    if (flags < 0)
        return tn_error_set(err, TN_E_UNSUPPORTED, "slot flags \"%s\" are not driven by this host", words);
    slot->persistent = !(flags & TN_SLOT_TRANSIENT);
    slot->tapped = (flags & TN_SLOT_TAPPED) != 0;
    return TN_OK;
}

static int32_t read_slot(const tn_items *s, int32_t index, const tn_slot *slot, tn_item_slot *ret, tn_error *err)
{
    *ret = (tn_item_slot){.index = index};
    if (!slot->name || !slot->init || !slot->shape || !tn_items_shape(slot->shape))
        return tn_error_set(err, TN_E_PLUGIN, "a slot has no name, shape or init");
    ret->shape = tn_slot_shape_name(tn_slot_shape(slot->shape));
    ret->ones = strcmp(slot->init, "one") == 0;
    if (!ret->ones && strcmp(slot->init, "zero") != 0)
        return tn_error_set(err, TN_E_UNSUPPORTED, "slot '%s' of shape %s starts as \"%s\", needed zero or one",
                            slot->name, slot->shape, slot->init);
    int32_t status = read_flags(slot->flags, ret, err);
    if (!status && ret->tapped && !s->table.tap)
        return tn_error_set(err, TN_E_PLUGIN, "slot '%s' is tapped, but the link has no tap", slot->name);
    return status;
}

int32_t tn_items_slot(tn_items *s, int64_t parameter, int32_t index, const tn_slot *slot, tn_error *err)
{
    tn_item_plan *plan = &s->plan[parameter];
    tn_item_slot read;
    int32_t status = read_slot(s, index, slot, &read, err);
    if (status || (s->options.layer && !is_weight(parameter_at(s, parameter))))
        return status;
    if (index < 0 || index >= TN_CHAIN_SLOTS || plan->count == TN_CHAIN_SLOTS)
        return tn_error_set(err, TN_E_PLUGIN, "it plans more than %d slots for one parameter", TN_CHAIN_SLOTS);
    for (int32_t j = 0; j < plan->count; j++)
        if (strcmp(plan->slot[j].name, slot->name) == 0)
            return tn_error_set(err, TN_E_PLUGIN, "it plans two slots of the name '%s'", slot->name);
    if (!(read.name = tn_strdup(slot->name)))
        return no_memory(s, err);
    plan->slot[plan->count++] = read;
    return TN_OK;
}

static int same_plan(const tn_item_plan *a, const tn_item_plan *b)
{
    int same = a->count == b->count;
    for (int32_t j = 0; same && j < a->count; j++) {
        const tn_item_slot *x = &a->slot[j], *y = &b->slot[j];
        same = strcmp(x->name, y->name) == 0 && x->shape == y->shape && x->index == y->index && x->ones == y->ones &&
               x->persistent == y->persistent && x->tapped == y->tapped;
    }
    return same;
}

static size_t planned(const tn_items *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->count; i++)
        n += s->list[i].planned != 0;
    return n;
}

static int has_item(const tn_items *s, const tn_item *item)
{
    for (size_t i = 0; i < s->count; i++) {
        const tn_item *x = &s->list[i];
        if (x->planned && x->weight == item->weight && x->number == item->number)
            return x->box_count == item->box_count &&
                   memcmp(x->boxes, item->boxes, (size_t)item->box_count * sizeof *x->boxes) == 0;
    }
    return 0;
}

int tn_items_same(const tn_items *a, const tn_items *b)
{
    int same = a->options.parameters->count == b->options.parameters->count && planned(a) == planned(b);
    for (int64_t i = 0; same && i < a->options.parameters->count; i++)
        same = same_plan(&a->plan[i], &b->plan[i]);
    for (size_t i = 0; same && i < b->count; i++)
        same = !b->list[i].planned || has_item(a, &b->list[i]);
    return same;
}

/* ---- settling: the items ---- */

static int32_t add_default(tn_items *s, int64_t i, tn_error *err)
{
    const tn_parameter *p = parameter_at(s, i);
    const tn_box whole = {0, view_rows(p), 0, view_columns(p)};
    int64_t bias = s->bias[i];
    tn_item item = {
        .weight = i, .bias = bias, .box_count = 1, .rows = whole.rows, .columns = whole.columns + (bias >= 0)};
    if (whole.rows == 0 || whole.columns == 0)
        return TN_OK;
    return push(s, &item, &whole, err);
}

static int overlap(const tn_box *a, const tn_box *b)
{
    return a->row < b->row + b->rows && b->row < a->row + a->rows && a->column < b->column + b->columns &&
           b->column < a->column + a->columns;
}

static int overlaps(const tn_item *a, const tn_item *b)
{
    for (int32_t i = 0; i < a->box_count; i++)
        for (int32_t j = 0; j < (a == b ? i : b->box_count); j++)
            if (overlap(&a->boxes[i], &b->boxes[j]))
                return 1;
    return 0;
}

/* Do the planned items hold each element once? */
static int32_t check_cover(const tn_items *s, int64_t parameter, tn_error *err)
{
    const tn_parameter *p = parameter_at(s, parameter);
    int64_t held = 0;
    for (size_t i = 0; i < s->count; i++) {
        if (s->list[i].weight != parameter)
            continue;
        held += s->list[i].rows * s->list[i].columns;
        for (size_t j = 0; j <= i; j++)
            if (s->list[j].weight == parameter && overlaps(&s->list[i], &s->list[j]))
                return tn_error_set(err, TN_E_PLUGIN,
                                    "%s: items %" PRId64 " and %" PRId64
                                    " of parameter '%s' overlap; correct the plugin",
                                    s->options.path, s->list[j].number, s->list[i].number, p->name);
    }
    if (held != view_rows(p) * view_columns(p))
        return tn_error_set(err, TN_E_PLUGIN,
                            "%s: the items of parameter '%s' hold %" PRId64 " elements of the %" PRId64
                            " of its matrix view, needed all; correct the plugin",
                            s->options.path, p->name, held, view_rows(p) * view_columns(p));
    return TN_OK;
}

static int64_t first_of_plan(const tn_items *s, int64_t parameter)
{
    int64_t i = 0;
    while (i < parameter && !(is_on(s, i) && same_plan(&s->plan[i], &s->plan[parameter])))
        i++;
    return i;
}

static int32_t complete_items(tn_items *s, tn_error *err)
{
    int32_t status = TN_OK;
    for (int64_t i = 0; i < s->options.parameters->count && !status; i++) {
        if (!is_on(s, i) || (s->options.layer && !is_weight(parameter_at(s, i))))
            continue;
        int64_t plan = first_of_plan(s, i), of = items_of(s, i);
        status = of ? check_cover(s, i, err) : add_default(s, i, err);
        for (size_t j = 0; j < s->count; j++)
            if (s->list[j].weight == i) {
                s->list[j].plan = plan;
                s->list[j].of = of;
            }
    }
    return status;
}

/* ---- settling: owners ---- */

static double cost(const tn_item *x)
{
    return (double)x->rows * (double)x->columns * (double)(x->rows < x->columns ? x->rows : x->columns);
}

static int by_number(const tn_item *x, const tn_item *y)
{
    if (x->weight != y->weight)
        return x->weight < y->weight ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static int by_cost(const void *a, const void *b)
{
    double x = cost(a), y = cost(b);
    return x != y ? (x > y ? -1 : 1) : by_number(a, b);
}

static int by_batch(const void *a, const void *b)
{
    const tn_item *x = a, *y = b;
    if (x->owner != y->owner)
        return x->owner < y->owner ? -1 : 1;
    if (x->rows != y->rows)
        return x->rows < y->rows ? -1 : 1;
    if (x->columns != y->columns)
        return x->columns < y->columns ? -1 : 1;
    if (x->plan != y->plan)
        return x->plan < y->plan ? -1 : 1;
    return by_number(x, y);
}

/* The dearest first, each to the process that has least: known from the shapes alone, so all agree. */
static int32_t choose_owners(tn_items *s, tn_error *err)
{
    double *load = tn_alloc((size_t)s->size, sizeof *load);
    if (!load)
        return no_memory(s, err);
    if (s->count)
        qsort(s->list, s->count, sizeof *s->list, by_cost);
    for (size_t i = 0; i < s->count; i++) {
        int32_t least = 0;
        for (int32_t r = 1; r < s->size; r++)
            if (load[r] < load[least])
                least = r;
        s->list[i].owner = least;
        load[least] += cost(&s->list[i]);
    }
    if (s->count)
        qsort(s->list, s->count, sizeof *s->list, by_batch);
    tn_free(load);
    return TN_OK;
}

/* ---- settling: batches and their memory ---- */

static int64_t workspace_of(const tn_items *s, const tn_item *x)
{
    return s->table.workspace ? s->table.workspace(s->options.hyper, x->rows, x->columns) : 0;
}

static int32_t check_workspace(const tn_items *s, const tn_item *x, tn_error *err)
{
    int64_t bytes = workspace_of(s, x);
    if (bytes >= 0 && bytes <= WORKSPACE_MAX)
        return TN_OK;
    return tn_error_set(err, TN_E_PLUGIN,
                        "%s: asks for %" PRId64 " bytes of scratch for %" PRId64 " x %" PRId64
                        ", needed 0 to 2^40; correct the plugin",
                        s->options.path, bytes, x->rows, x->columns);
}

static int64_t bytes_of(const tn_items *s, const tn_item *x) { return x->rows * x->columns * (int64_t)s->real; }

static int fits(const tn_items *s, const tn_batch *batch, const tn_item *x)
{
    const tn_item *first = &s->list[batch->first];
    int64_t each = bytes_of(s, first) + workspace_of(s, first);
    return first->owner == x->owner && first->rows == x->rows && first->columns == x->columns &&
           first->plan == x->plan && ((int64_t)batch->count + 1) * each <= BATCH_BYTES;
}

static int32_t make_batches(tn_items *s, tn_error *err)
{
    tn_batch *batch = NULL;
    if (!(s->batches = tn_alloc(s->count, sizeof *s->batches)))
        return no_memory(s, err);
    for (size_t i = 0; i < s->count; i++) {
        const tn_item *x = &s->list[i];
        int32_t status = check_workspace(s, x, err);
        if (status)
            return status;
        if (!batch || !fits(s, batch, x)) {
            batch = &s->batches[s->batch_count++];
            *batch = (tn_batch){.first = i, .owner = x->owner, .plan = &s->plan[x->plan]};
        }
        batch->count++;
    }
    return TN_OK;
}

static int64_t round_up(int64_t bytes) { return (bytes + 63) / 64 * 64; }

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* With one process the batches come one after the other, else all own ones are there at once. */
static int32_t make_buffers(tn_items *s, tn_error *err)
{
    int64_t own = 0, message = 0, workspace = 0, at = 0;
    for (size_t b = 0; b < s->batch_count; b++) {
        const tn_batch *batch = &s->batches[b];
        const tn_item *x = &s->list[batch->first];
        int64_t bytes = round_up((int64_t)batch->count * bytes_of(s, x)), scratch = workspace_of(s, x);
        int is_own = batch->owner == s->rank;
        message = larger(message, bytes);
        own = is_own ? (s->options.comm ? own + bytes : larger(own, bytes)) : own;
        workspace = larger(workspace, (is_own ? (int64_t)batch->count : 1) * scratch);
    }
    s->d = tn_alloc_aligned((size_t)own);
    s->message = s->options.comm ? tn_alloc_aligned((size_t)message) : NULL;
    s->workspace = tn_alloc_aligned((size_t)workspace);
    s->samples = tn_alloc(s->count, sizeof *s->samples);
    if (!s->d || (s->options.comm && !s->message) || !s->workspace || !s->samples)
        return no_memory(s, err);
    for (size_t b = 0; b < s->batch_count; b++)
        if (s->batches[b].owner == s->rank) {
            s->batches[b].d = s->d + at;
            at += s->options.comm ? round_up((int64_t)s->batches[b].count * bytes_of(s, &s->list[s->batches[b].first]))
                                  : 0;
        }
    return TN_OK;
}

static void fill_ones(void *data, size_t real, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (real == 4)
            ((float *)data)[i] = 1;
        else
            ((double *)data)[i] = 1;
}

/* ---- settling: state ---- */

/* Bytes of a batch's slot; 1 where there can not be so many: the square of a side may be. */
static int too_many_bytes(const tn_items *s, const tn_batch *batch, const char *shape, int64_t *ret)
{
    const tn_item *x = &s->list[batch->first];
    int64_t across = shape[0] == 'l' ? x->rows : x->columns, down = shape[0] == 'r' ? x->columns : x->rows;
    return __builtin_mul_overflow(down, across, ret) || __builtin_mul_overflow(*ret, (int64_t)batch->count, ret) ||
           __builtin_mul_overflow(*ret, (int64_t)s->real, ret);
}

static int32_t make_state(tn_items *s, tn_batch *batch, tn_error *err)
{
    for (int32_t j = 0; j < batch->plan->count; j++) {
        const tn_item_slot *slot = &batch->plan->slot[j];
        int64_t bytes;
        if (batch->owner != s->rank && !slot->tapped)
            continue;
        if (too_many_bytes(s, batch, slot->shape, &bytes) || !(batch->slot[j] = tn_alloc_aligned((size_t)bytes)))
            return no_memory(s, err);
        if (slot->ones)
            fill_ones(batch->slot[j], s->real, bytes / (int64_t)s->real);
        s->bytes += bytes;
    }
    return TN_OK;
}

static int32_t list_slot(tn_items *s, const tn_batch *batch, size_t i, int32_t j, tn_error *err)
{
    const tn_item *x = &s->list[batch->first + i];
    const tn_item_slot *slot = &batch->plan->slot[j];
    int64_t n = tn_item_extent(x, slot->shape);
    char *name = x->of > 1 ? tn_format("%s.%" PRId64, slot->name, x->number) : tn_strdup(slot->name);
    if (!name)
        return no_memory(s, err);
    s->slots[s->slot_count++] = (tn_chain_slot){.slot = name,
                                                .parameter = x->weight,
                                                .shape = slot->shape,
                                                .data = batch->slot[j] + (int64_t)i * n * (int64_t)s->real,
                                                .elements = n,
                                                .bytes = n * (int64_t)s->real,
                                                .bits = (int32_t)(8 * s->real),
                                                .persistent = slot->persistent,
                                                .replicated = s->size == 1};
    return TN_OK;
}

static int32_t list_slots(tn_items *s, tn_error *err)
{
    size_t count = 0;
    int32_t status = TN_OK;
    for (size_t b = 0; b < s->batch_count; b++)
        count += s->batches[b].count * (size_t)s->batches[b].plan->count;
    if (!(s->slots = tn_alloc(count, sizeof *s->slots)))
        return no_memory(s, err);
    for (size_t b = 0; b < s->batch_count; b++)
        for (size_t i = 0; s->batches[b].owner == s->rank && i < s->batches[b].count; i++)
            for (int32_t j = 0; j < s->batches[b].plan->count && !status; j++)
                status = list_slot(s, &s->batches[b], i, j, err);
    return status;
}

int32_t tn_items_settle(tn_items *s, tn_error *err)
{
    int32_t status = complete_items(s, err);
    if (!status)
        status = choose_owners(s, err);
    if (!status)
        status = make_batches(s, err);
    for (size_t b = 0; b < s->batch_count && !status; b++)
        status = make_state(s, &s->batches[b], err);
    if (!status)
        status = make_buffers(s, err);
    return status ? status : list_slots(s, err);
}

size_t tn_items_slot_count(const tn_items *s) { return s->slot_count; }

void tn_items_slot_at(const tn_items *s, size_t index, tn_chain_slot *ret) { *ret = s->slots[index]; }

int64_t tn_items_bytes(const tn_items *s) { return s->bytes; }
