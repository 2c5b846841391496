/* SPDX-License-Identifier: Apache-2.0
 *
 * motion_minimizer.c: a minimizer at work, on a function whose minimum is known to exist: a curved bowl with
 * neighbours that pull at each other. The host's part of tenon/minimizer.h, by one thread.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <tenon/minimizer.h>

#include "host/base/memory.h"
#include "host/base/take.h"
#include "host/check/motion.h"
#include "host/plugin/slot.h"

enum { HYPER, CLOCK, CONTEXT, CALL, ANSWERS, MEMORY, REPORT, ASK };

#define VECTORS  66
#define ELEMENTS 300
#define FEW      12
#define ASKS     10000

typedef struct {
    tn_motion *m;
    tn_minimizer table;
    uint32_t real;
    int64_t elements;
    char *vector[VECTORS]; /* TN_VECTOR_P, _G, then slots */
    char name[VECTORS][64];
    int32_t kept[VECTORS];
    int32_t vectors;
    double *memory, *memory_before, *report;
    char *p_before;
    int64_t memories, reports;
    double answers[TN_ASK_MAX];
    int32_t is_lost; /* the loss at p as it is now was not finite */
    char fault[128];
} work;

/* ---- the function ---- */

static double get(const work *w, const char *vector, int64_t i)
{
    return i < 0 || i >= w->elements ? 0 : tn_motion_get(w->real, vector, i);
}

static double pull(int64_t i) { return 1 + 0.5 * tn_motion_noise(1, i, 1); }

static double loss_at(const work *w)
{
    double loss = 0;
    for (int64_t i = 0; i < w->elements; i++) {
        double x = get(w, w->vector[TN_VECTOR_P], i), y = x - tn_motion_noise(2, i, 2);
        loss += 0.5 * pull(i) * y * y + 0.05 * x * x * x * x + 0.1 * x * get(w, w->vector[TN_VECTOR_P], i + 1);
    }
    return loss;
}

static void gradient(const work *w)
{
    const char *p = w->vector[TN_VECTOR_P];
    for (int64_t i = 0; i < w->elements; i++) {
        double x = get(w, p, i);
        double g =
            pull(i) * (x - tn_motion_noise(2, i, 2)) + 0.2 * x * x * x + 0.1 * (get(w, p, i - 1) + get(w, p, i + 1));
        tn_motion_set(w->real, w->vector[TN_VECTOR_G], i, g);
    }
}

static void product(const work *w, const char *v, char *to)
{
    for (int64_t i = 0; i < w->elements; i++) {
        double x = get(w, w->vector[TN_VECTOR_P], i);
        tn_motion_set(w->real, to, i,
                      (pull(i) + 0.6 * x * x) * get(w, v, i) + 0.1 * (get(w, v, i - 1) + get(w, v, i + 1)));
    }
}

/* ---- requests ---- */

static int is_vector(const work *w, int32_t v) { return v >= 0 && v < w->vectors; }

static int is_sound(const work *w, const tn_ask *ask)
{
    int sums = ask->what == TN_ASK_DOTS || ask->what == TN_ASK_COMBINE,
        sound = ask->count >= 0 && ask->count <= TN_ASK_MAX;
    if (ask->what < TN_ASK_DOTS || ask->what > TN_ASK_REJECT)
        return 0;
    for (int32_t i = 0; i < ask->count && sums && sound; i++)
        sound = is_vector(w, ask->a[i]) && (ask->what == TN_ASK_COMBINE || is_vector(w, ask->b[i]));
    if (ask->what == TN_ASK_COMBINE)
        sound &= is_vector(w, ask->to) && ask->to != TN_VECTOR_G;
    if (ask->what == TN_ASK_PRODUCT)
        sound &= w->table.products && is_vector(w, ask->to) && ask->to >= TN_VECTOR_FIRST && is_vector(w, ask->a[0]) &&
                 ask->a[0] >= TN_VECTOR_FIRST && ask->a[0] != ask->to;
    return sound;
}

static void dots(work *w, const tn_ask *ask)
{
    for (int32_t i = 0; i < ask->count; i++) {
        w->answers[i] = 0;
        for (int64_t j = 0; j < w->elements; j++)
            w->answers[i] += get(w, w->vector[ask->a[i]], j) * get(w, w->vector[ask->b[i]], j);
    }
}

static void combine(const work *w, const tn_ask *ask)
{
    for (int64_t j = 0; j < w->elements; j++) {
        double sum = 0;
        for (int32_t i = 0; i < ask->count; i++)
            sum += ask->factor[i] * get(w, w->vector[ask->a[i]], j);
        tn_motion_set(w->real, w->vector[ask->to], j, sum);
    }
}

static void evaluate(work *w)
{
    tn_mix mix = w->m->options.mix;
    gradient(w);
    w->answers[0] = loss_at(w);
    if (mix == TN_MIX_NONE || w->m->steps == 0)
        return;
    w->answers[0] = tn_motion_mixed(w->real, mix);
    w->is_lost = !isfinite(w->answers[0]);
    tn_motion_set(w->real, w->vector[TN_VECTOR_G], w->elements / 2, w->answers[0]);
}

/* 1 when the step is over. */
static int answer(work *w, const tn_ask *ask)
{
    if (!is_sound(w, ask)) {
        snprintf(w->fault, sizeof w->fault, "its request %d is none; see rule update-runs", ask->what);
        return 1;
    }
    switch (ask->what) {
    case TN_ASK_DOTS:
        dots(w, ask);
        return 0;
    case TN_ASK_COMBINE:
        combine(w, ask);
        w->is_lost &= ask->to != TN_VECTOR_P;
        return 0;
    case TN_ASK_EVALUATE:
        evaluate(w);
        return 0;
    case TN_ASK_PRODUCT:
        product(w, w->vector[ask->a[0]], w->vector[ask->to]);
        return 0;
    }
    if (ask->what == TN_ASK_COMMIT && w->is_lost)
        snprintf(w->fault, sizeof w->fault, "it commits where the loss is none; go back or reject");
    return 1;
}

/* ---- a step ---- */

static void advance(work *w, int32_t first, tn_ask *ask)
{
    tn_motion *m = w->m;
    const tn_clock clock = tn_motion_clock(m);
    const tn_context context = tn_motion_context(m);
    size_t memory = (size_t)w->memories * sizeof(double), reports = (size_t)w->reports * sizeof(double);
    *ask = (tn_ask){.struct_size = sizeof *ask};
    tn_advance call = {.struct_size = sizeof call, .first = first, .elements = w->elements};
    call.hyper = tn_motion_in(m, 0, HYPER, "hyper", m->instance->hyper, m->instance->hyper_size, 8);
    call.clock = tn_motion_in(m, 0, CLOCK, "the clock", &clock, sizeof clock, 8);
    call.context = tn_motion_in(m, 0, CONTEXT, "the context", &context, sizeof context, 8);
    call.answers = tn_motion_in(m, 0, ANSWERS, "answers", w->answers, sizeof w->answers, 8);
    call.memory = tn_motion_out(m, 0, MEMORY, "memory", w->memory, memory, 8);
    call.report = tn_motion_out(m, 0, REPORT, "report", w->report, reports, 8);
    tn_ask *to = tn_motion_out(m, 0, ASK, "the request", ask, sizeof *ask, 8);
    const tn_advance *lent = tn_motion_in(m, 0, CALL, "the call", &call, sizeof call, 8);
    tn_motion_enter(m, 0, "advance");
    w->table.advance(lent, to);
    tn_motion_leave(m, 0, "advance", 1);
    memcpy(w->memory, call.memory, memory);
    memcpy(w->report, call.report, reports);
    *ask = *to;
}

static void go_back(work *w)
{
    memcpy(w->vector[TN_VECTOR_P], w->p_before, (size_t)w->elements * (w->real / 8));
    memcpy(w->memory, w->memory_before, (size_t)w->memories * sizeof(double));
}

static void step(tn_motion *m)
{
    work *w = m->own;
    tn_ask ask;
    int32_t asks = 0, over = 0;
    memcpy(w->p_before, w->vector[TN_VECTOR_P], (size_t)w->elements * (w->real / 8));
    memcpy(w->memory_before, w->memory, (size_t)w->memories * sizeof(double));
    memset(w->answers, 0, sizeof w->answers);
    gradient(w);
    w->answers[0] = loss_at(w);
    w->is_lost = 0;
    while (!over && asks < ASKS) {
        advance(w, asks++ == 0, &ask);
        over = answer(w, &ask);
    }
    if (!over)
        snprintf(w->fault, sizeof w->fault, "step %lld does not end within %d requests", (long long)m->steps, ASKS);
    m->skipped = !over || ask.what != TN_ASK_COMMIT;
    if (m->skipped)
        go_back(w);
}

/* ---- opening ---- */

static int32_t plan_slot(void *host, const tn_slot *slot)
{
    work *w = host;
    tn_slot taken = {0};
    if (slot)
        tn_take(&taken, sizeof taken, slot);
    int32_t flags = slot ? tn_slot_flags(taken.flags) : -1;
    if (w->vectors == VECTORS || flags < 0 || !taken.name || !taken.shape || strcmp(taken.shape, "like") != 0)
        return TN_E_PLUGIN;
    snprintf(w->name[w->vectors], sizeof *w->name, "%s", taken.name);
    w->kept[w->vectors++] = !(flags & TN_SLOT_TRANSIENT);
    return TN_OK;
}

static int32_t plan_memory(void *host, int64_t count)
{
    work *w = host;
    if (count < 0 || count > 1 << 20)
        return TN_E_PLUGIN;
    w->memories = count > w->memories ? count : w->memories;
    return TN_OK;
}

static int32_t allocate(work *w, tn_error *err)
{
    size_t bytes = (size_t)w->elements * (w->real / 8);
    bool whole = true;
    for (int32_t v = 0; v < w->vectors; v++)
        whole &= (w->vector[v] = tn_alloc(bytes, 1)) != NULL;
    w->p_before = tn_alloc(bytes, 1);
    w->memory = tn_alloc((size_t)w->memories, sizeof(double));
    w->memory_before = tn_alloc((size_t)w->memories, sizeof(double));
    w->report = tn_alloc((size_t)w->reports, sizeof(double));
    whole = whole && w->p_before && w->memory && w->memory_before && w->report;
    return whole ? TN_OK : tn_error_set(err, TN_E_MEMORY, "no memory for a component at work");
}

static int32_t show(work *w, tn_error *err)
{
    int32_t status = TN_OK;
    size_t bytes = (size_t)w->elements * (w->real / 8);
    for (int32_t v = 0; v < w->vectors && status == TN_OK; v++)
        if (v != TN_VECTOR_G && w->kept[v] &&
            !tn_motion_span(w->m, w->vector[v], bytes, (int32_t)w->real, 1, err, "%s", w->name[v]))
            status = TN_E_MEMORY;
    if (status == TN_OK &&
        (!tn_motion_span(w->m, w->memory, (size_t)w->memories * sizeof(double), 64, 1, err, "memory") ||
         !tn_motion_span(w->m, w->report, (size_t)w->reports * sizeof(double), 64, 0, err, "reports")))
        status = TN_E_MEMORY;
    return status;
}

static int32_t open(tn_motion *m, tn_error *err)
{
    work *w = m->own = tn_alloc(1, sizeof *w);
    if (!w)
        return tn_error_set(err, TN_E_MEMORY, "no memory for a component at work");
    *w = (work){.m = m, .real = m->instance->real, .vectors = TN_VECTOR_FIRST, .kept = {1, 0}, .name = {"p", "g"}};
    w->elements = m->options.small ? FEW : ELEMENTS;
    w->reports = (int64_t)json_array_size(json_object_get(m->subject->info->facts, "reports"));
    int32_t status = tn_registry_load(m->subject->registry, m->subject->entry, &w->table, sizeof w->table, err);
    if (status == TN_OK && (!w->table.plan || !w->table.advance))
        return tn_error_set(err, TN_E_PLUGIN, "it has no plan or no advance; see rule update-runs");
    const tn_minimizer_planner planner = {sizeof planner, 0, w, plan_slot, plan_memory};
    if (status == TN_OK)
        status = w->table.plan(m->instance->hyper, &planner, err);
    if (status == TN_OK)
        status = allocate(w, err);
    for (int64_t i = 0; i < w->elements && status == TN_OK; i++)
        tn_motion_set(w->real, w->vector[TN_VECTOR_P], i, tn_motion_noise(0, i, 0));
    return status ? status : show(w, err);
}

static void close(tn_motion *m)
{
    work *w = m->own;
    for (int32_t v = 0; w && v < w->vectors; v++)
        tn_free(w->vector[v]);
    if (w) {
        tn_free(w->p_before);
        tn_free(w->memory);
        tn_free(w->memory_before);
        tn_free(w->report);
    }
    tn_free(w);
}

const char *tn_motion_minimizer_fault(const tn_motion *m) { return ((const work *)m->own)->fault; }

const tn_motion_kind tn_motion_minimizer = {open, step, close};
