/* SPDX-License-Identifier: Apache-2.0
 *
 * rules_graph_parts.c: layers that processes share: forms of tensor parallelism, rounds, and what a tap promises.
 */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/check/lone.h"
#include "host/check/rules_graph.h"

#define PARTS 2

static double unit_of(const tn_lone *lone) { return lone->instance->info->real == 64 ? 1e-10 : 1e-4; }

static bool is_near(const tn_lone *lone, double got, double wanted)
{
    return fabs(got - wanted) <= unit_of(lone) * fmax(1, fabs(wanted));
}

/* ---- a tap: y = x W^T + b ---- */

static double product(const tn_lone *lone, int64_t row, int64_t out, int64_t in)
{
    double sum = lone->parameters > 1 ? tn_lone_get(&lone->parameter[1], out) : 0;
    for (int64_t i = 0; i < in; i++)
        sum += tn_lone_get(&lone->x[0], row * in + i) * tn_lone_get(&lone->parameter[0], out * in + i);
    return sum;
}

static void visit_tap(tn_lone *lone)
{
    if (strcmp(tn_fact_text(lone->instance->info->facts, "tap", ""), "linear") != 0)
        return;
    int64_t in = lone->x[0].shape[lone->x[0].view.ndim - 1], out = lone->y.shape[lone->y.view.ndim - 1];
    if (!lone->keeps_input || lone->parameters < 1 || tn_lone_count(&lone->parameter[0]) != in * out ||
        (lone->parameters > 1 && tn_lone_count(&lone->parameter[1]) != out)) {
        tn_lone_fail(lone,
                     "its note says tap \"linear\": needed a weight of [out, in] and perhaps a bias of [out], and "
                     "keeps \"input\"");
        return;
    }
    tn_lone_forward(lone, TN_TRAIN, 0);
    for (int64_t i = 0; i < tn_lone_count(&lone->y) && !tn_lone_is_done(lone); i++) {
        double wanted = product(lone, i / out, i % out, in);
        if (!is_near(lone, tn_lone_get(&lone->y, i), wanted))
            tn_lone_fail(lone, "its note says tap \"linear\", and y[%lld] is %.9g, by x W^T + b %.9g", (long long)i,
                         tn_lone_get(&lone->y, i), wanted);
    }
}

void tn_check_layer_tap(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_lone_each(subject, finding, &(tn_lone_use){.visit = visit_tap, .all = true});
}

/* ---- forms: the layer in parts ---- */

typedef struct {
    const json_t *form;
    const char *name, *x, *y;
    tn_lone *whole;
    tn_lone *part[PARTS];
    tn_instance *instance;
} division;

/* Element i of a part's tensor lies where in the whole one, which is cut along `axis` (-1: not at all). */
static int64_t place_of(const tn_lone_tensor *part, int32_t axis, int32_t which, int64_t i)
{
    int64_t inner = 1, extent;
    if (axis < 0)
        return i;
    for (int32_t k = axis + 1; k < part->view.ndim; k++)
        inner *= part->shape[k];
    extent = part->shape[axis];
    int64_t outer = i / (extent * inner), at = i / inner % extent;
    return (outer * extent * PARTS + which * extent + at) * inner + i % inner;
}

static void copy_part(const tn_lone_tensor *whole, tn_lone_tensor *part, int32_t axis, int32_t which)
{
    for (int64_t i = 0; i < tn_lone_count(part); i++)
        tn_lone_set(part, i, tn_lone_get(whole, place_of(part, axis, which, i)));
}

static int32_t last_axis(const tn_lone_tensor *t, const char *how)
{
    return strcmp(how, "last") == 0 ? t->view.ndim - 1 : -1;
}

/* Axis of a parameter; -1: it only adds to y. */
static int32_t axis_of(const division *d, int32_t parameter)
{
    const json_t *axis = json_array_get(json_object_get(d->form, "parameters"), (size_t)parameter);
    return json_is_integer(axis) ? (int32_t)json_integer_value(axis) : -1;
}

static void fill_part(division *d, int32_t which)
{
    tn_lone *part = d->part[which];
    copy_part(&d->whole->x[0], &part->x[0], last_axis(&part->x[0], d->x), which);
    copy_part(&d->whole->dy, &part->dy, last_axis(&part->dy, d->y), which);
    for (int32_t k = 0; k < part->parameters; k++) {
        copy_part(&d->whole->parameter[k], &part->parameter[k], axis_of(d, k), which);
        for (int64_t i = 0; axis_of(d, k) < 0 && which > 0 && i < tn_lone_count(&part->parameter[k]); i++)
            tn_lone_set(&part->parameter[k], i, 0);
    }
}

/* The parts' numbers are those of the whole; `adds`: they add up to it. */
static void compare_parts(division *d, const tn_lone_tensor *whole, tn_lone_tensor *const part[PARTS], int32_t axis,
                          bool adds, const char *name)
{
    for (int32_t p = 0; p < PARTS; p++)
        for (int64_t i = 0; i < tn_lone_count(part[p]) && !tn_lone_is_done(d->whole); i++) {
            double got = tn_lone_get(part[p], i), wanted = tn_lone_get(whole, place_of(part[p], axis, p, i));
            for (int32_t q = 0; adds && q < PARTS; q++)
                got += q == p ? 0 : tn_lone_get(part[q], i);
            if (!is_near(d->whole, got, wanted))
                tn_lone_fail(d->whole,
                             "in form %s, shared by %d processes, %s[%lld] of process %d is %s%.9g; whole it is "
                             "%.9g",
                             d->name, PARTS, name, (long long)i, p, adds ? "with the others " : "", got, wanted);
        }
}

static void compare_all(division *d)
{
    tn_lone *whole = d->whole, *const *part = d->part;
    tn_lone_tensor *y[PARTS] = {&part[0]->y, &part[1]->y}, *dx[PARTS] = {&part[0]->dx[0], &part[1]->dx[0]};
    bool is_partial = strcmp(d->y, "partial") == 0, cuts_x = strcmp(d->x, "last") == 0;
    compare_parts(d, &whole->y, y, last_axis(y[0], d->y), is_partial, "y");
    compare_parts(d, &whole->dx[0], dx, last_axis(dx[0], d->x), !cuts_x && strcmp(d->y, "whole") != 0, "dx");
    for (int32_t k = 0; k < whole->parameters && !tn_lone_is_done(whole); k++) {
        tn_lone_tensor *gradient[PARTS] = {&part[0]->gradient[k], &part[1]->gradient[k]};
        compare_parts(d, &whole->gradient[k], gradient, axis_of(d, k), false, whole->parameter_name[k]);
    }
}

/* Divides what the form's `rows` name. False where that leaves a rest. */
static bool divide_rows(division *d)
{
    size_t i;
    const json_t *row;
    tn_error err;
    json_array_foreach(json_object_get(d->form, "rows"), i, row) {
        char text[32];
        const tn_row *known = tn_instance_row(d->instance, json_string_value(row));
        int64_t value = known ? tn_instance_integer(d->instance, known) : 1;
        if (!known || value % PARTS)
            return false;
        snprintf(text, sizeof text, "%lld", (long long)(value / PARTS));
        if (tn_instance_set(d->instance, d->whole->subject->registry, known->name, text, &err) != TN_OK)
            return false;
    }
    return true;
}

static bool fits(const division *d)
{
    const tn_lone *whole = d->whole, *part = d->part[0];
    bool same = part->parameters == whole->parameters && part->inputs == 1;
    for (int32_t k = 0; same && k < part->parameters; k++)
        same =
            tn_lone_count(&part->parameter[k]) * (axis_of(d, k) < 0 ? 1 : PARTS) == tn_lone_count(&whole->parameter[k]);
    return same && tn_lone_count(&part->y) * (strcmp(d->y, "last") == 0 ? PARTS : 1) == tn_lone_count(&whole->y);
}

static void run_parts(division *d)
{
    for (int32_t p = 0; p < PARTS; p++) {
        d->part[p]->subject = d->whole->subject;
        d->part[p]->finding = d->whole->finding;
        fill_part(d, p);
        tn_lone_forward(d->part[p], TN_TRAIN | TN_FREEZE, 0);
        tn_lone_backward(d->part[p], TN_TRAIN | TN_FREEZE | TN_WANT_DX | TN_WANT_DW, 0);
    }
    compare_all(d);
}

static void open_parts(division *d)
{
    static tn_lone parts[PARTS];
    tn_lone *whole = d->whole;
    int64_t shape[TN_MAX_DIMS];
    int32_t last = whole->x[0].view.ndim - 1, count = 0;
    tn_error err = {0};
    memcpy(shape, whole->x[0].shape, sizeof shape);
    if (strcmp(d->x, "last") == 0 && shape[last] % PARTS)
        return;
    shape[last] /= strcmp(d->x, "last") == 0 ? PARTS : 1;
    while (count < PARTS && tn_lone_open(whole->table, d->instance, &(tn_lone_use){0}, 1, last + 1, shape,
                                         &parts[count], &err) == TN_OK) {
        d->part[count] = &parts[count];
        count++;
    }
    if (count < PARTS)
        tn_lone_fail(whole, "form %s of its note can not be planned in %d parts: %s", d->name, PARTS, err.msg);
    else if (!fits(d))
        tn_lone_fail(whole, "form %s of its note cuts parameters or y in a way that infer of a part does not plan",
                     d->name);
    else
        run_parts(d);
    for (int32_t p = 0; p < count; p++)
        tn_lone_close(&parts[p]);
}

static void try_form(tn_lone *lone, const json_t *form)
{
    division d = {.form = form,
                  .name = tn_fact_text(form, "name", "?"),
                  .x = tn_fact_text(form, "x", "whole"),
                  .y = tn_fact_text(form, "y", "whole"),
                  .whole = lone};
    const tn_entry_info *entry = lone->subject->entry;
    tn_error err;
    if (tn_instance_create(lone->subject->registry, entry->kind, entry->name, entry->real, entry->name, NULL, 0,
                           &d.instance, &err) != TN_OK)
        return;
    memcpy(d.instance->hyper, lone->instance->hyper, lone->instance->hyper_size);
    if (divide_rows(&d))
        open_parts(&d);
    tn_instance_free(d.instance);
}

static void visit_split(tn_lone *lone)
{
    size_t i;
    const json_t *form;
    if (lone->inputs != 1 || !json_object_get(lone->instance->info->facts, "split") || !tn_lone_may(lone, TN_TRAIN))
        return;
    tn_lone_forward(lone, TN_TRAIN | TN_FREEZE, 0);
    tn_lone_backward(lone, TN_TRAIN | TN_FREEZE | TN_WANT_DX | TN_WANT_DW, 0);
    json_array_foreach(json_object_get(lone->instance->info->facts, "split"), i, form)
        if (!tn_lone_is_done(lone))
            try_form(lone, form);
}

void tn_check_layer_split(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_lone_each(subject, finding, &(tn_lone_use){.visit = visit_split, .all = true});
}

/* ---- rounds: a batch that two processes share ---- */

static void take_rows(const tn_lone_tensor *whole, tn_lone_tensor *half, int64_t first)
{
    int64_t row = tn_lone_count(whole) / whole->shape[0];
    for (int64_t i = 0; i < tn_lone_count(half); i++)
        tn_lone_set(half, i, tn_lone_get(whole, first * row + i));
}

static void compare_rows(tn_lone *whole, const tn_lone_tensor *all, const tn_lone_tensor *half, int64_t first,
                         const char *name)
{
    int64_t row = tn_lone_count(all) / all->shape[0];
    for (int64_t i = 0; i < tn_lone_count(half) && !tn_lone_is_done(whole); i++) {
        double got = tn_lone_get(half, i), wanted = tn_lone_get(all, first * row + i);
        if (!is_near(whole, got, wanted))
            tn_lone_fail(whole, "where two processes share the batch %s[%lld] is %.9g, in one process %.9g", name,
                         (long long)(first * row + i), got, wanted);
    }
}

static bool open_half(const tn_lone *whole, int64_t first, int64_t rows, tn_lone *half)
{
    int64_t shape[TN_MAX_DIMS];
    tn_error err;
    memcpy(shape, whole->x[0].shape, sizeof shape);
    shape[0] = rows;
    if (tn_lone_open(whole->table, whole->instance, &(tn_lone_use){0}, whole->inputs, whole->x[0].view.ndim, shape,
                     half, &err) != TN_OK)
        return false;
    half->subject = whole->subject;
    half->finding = whole->finding;
    for (int32_t i = 0; i < whole->inputs; i++)
        take_rows(&whole->x[i], &half->x[i], first);
    for (int32_t k = 0; k < whole->parameters; k++)
        take_rows(&whole->parameter[k], &half->parameter[k], 0);
    take_rows(&whole->dy, &half->dy, first);
    return true;
}

static void run_halves(tn_lone *whole, tn_lone *halves, int64_t middle)
{
    uint32_t flags = TN_TRAIN | TN_FREEZE;
    halves[0].partner = &halves[1];
    halves[1].partner = &halves[0];
    for (int h = 0; h < 2; h++) {
        tn_lone_forward(&halves[h], flags, 0);
        compare_rows(whole, &whole->y, &halves[h].y, h * middle, "y");
    }
    for (int h = 0; h < 2; h++) {
        tn_lone_backward(&halves[h], flags | TN_WANT_DX | TN_WANT_DW, 0);
        for (int32_t i = 0; i < whole->inputs; i++)
            compare_rows(whole, &whole->dx[i], &halves[h].dx[i], h * middle, "dx");
    }
}

static void visit_rounds(tn_lone *lone)
{
    static tn_lone halves[2];
    int64_t middle = lone->planned / 2;
    if (!lone->rounds.count || lone->planned < 3 || !tn_lone_may(lone, TN_TRAIN) ||
        lone->rounds.count(lone->hyper.data, &lone->x[0].view, TN_TRAIN) <= 0)
        return;
    tn_lone_forward(lone, TN_TRAIN | TN_FREEZE, 0);
    tn_lone_backward(lone, TN_TRAIN | TN_FREEZE | TN_WANT_DX | TN_WANT_DW, 0);
    if (!open_half(lone, 0, middle, &halves[0]))
        return;
    if (open_half(lone, middle, lone->planned - middle, &halves[1])) {
        run_halves(lone, halves, middle);
        tn_lone_close(&halves[1]);
    }
    tn_lone_close(&halves[0]);
}

void tn_check_layer_rounds(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_lone_each(subject, finding, &(tn_lone_use){.visit = visit_rounds, .all = true});
}
