/* SPDX-License-Identifier: Apache-2.0
 *
 * timetable.c: asking for actions, checking them, running them against a clock, and deriving transfers and sets.
 *
 * Steps of all stages have one order: by time, at one time transfers first, then by stage. A transfer's time is the
 * moment at which the receiving stage uses it. Every action and transfer reads only what comes earlier in that order,
 * and each process follows it; so the earliest step that is not done can always be done, and the steps end.
 */
#include "host/parallel/timetable.h"

#include <stdlib.h>
#include <string.h>

#include "host/base/error.h"
#include "host/base/memory.h"

static int32_t no_memory(tn_error *err) { return tn_error_set(err, TN_E_MEMORY, "no memory for a timetable"); }

/* ---- asking ---- */

typedef struct {
    const tn_strategy *table;
    const tn_instance *instance;
    const tn_mesh *mesh;
    tn_timetable *timetable;
    int64_t room;
} asking;

static int32_t ask_stage(asking *a, int32_t stage, tn_error *err)
{
    tn_timetable *s = a->timetable;
    const char *name = a->instance->info->name;
    int64_t at = s->first[stage], count;
    tn_error_clear(err);
    count = a->table->actions(a->instance->hyper, a->mesh, stage, s->micro_batches, s->actions + at, a->room - at, err);
    if (count < 0)
        return tn_error_wrap(err, count > INT32_MIN ? (int32_t)-count : TN_E_PLUGIN, "strategy %s", name);
    if (count > a->room - at)
        return tn_error_set(err, TN_E_PLUGIN, "strategy %s: %lld actions for stage %d and %d micro-batches", name,
                            (long long)count, stage, s->micro_batches);
    s->first[stage + 1] = at + count;
    return TN_OK;
}

/* Forward and backward of each micro-batch once, then perhaps an update. */
static int32_t check_stage(const asking *a, int32_t stage, unsigned char *done, tn_error *err)
{
    const tn_timetable *s = a->timetable;
    const char *name = a->instance->info->name, *wrong = NULL;
    int64_t i, last = s->first[stage + 1];
    int32_t open = 0, ended = 0;
    memset(done, 0, (size_t)s->micro_batches);
    for (i = s->first[stage]; i < last && !wrong; i++) {
        const tn_action *row = &s->actions[i];
        if (row->what == 'W')
            return tn_error_set(err, TN_E_UNSUPPORTED, "strategy %s: action W, which this host does not drive yet",
                                name);
        if (row->stage != stage || (row->what != 'F' && row->what != 'B' && row->what != 'U') || row->micro_batch < 0 ||
            row->micro_batch >= s->micro_batches)
            wrong = "is none of this stage";
        else if (row->what == 'U')
            wrong = i == last - 1 ? NULL : "is not the last";
        else if (done[row->micro_batch] != (row->what == 'B'))
            wrong = row->what == 'F' ? "comes twice" : "does not follow its forward once";
        else {
            done[row->micro_batch]++;
            open += row->what == 'F';
            ended += row->what == 'B';
        }
    }
    if (wrong)
        return tn_error_set(err, TN_E_PLUGIN, "strategy %s: stage %d, row %lld: action '%c' of micro-batch %d %s", name,
                            stage, (long long)(i - 1 - s->first[stage]), s->actions[i - 1].what,
                            s->actions[i - 1].micro_batch, wrong);
    if (open != s->micro_batches || ended != s->micro_batches)
        return tn_error_set(err, TN_E_PLUGIN,
                            "strategy %s: stage %d has %d forward and %d backward of %d micro-batches", name, stage,
                            open, ended, s->micro_batches);
    return TN_OK;
}

/* ---- the clock ---- */

typedef struct {
    const tn_timetable *timetable;
    double *end[2]; /* of forward, of backward: [stage * micro_batches + micro-batch]; < 0: not yet */
    int64_t *next;  /* by stage */
    double *now;    /* by stage */
} clock_state;

/* When everything that the action reads is there; < 0: not known yet. */
static double ready(const clock_state *c, const tn_action *row)
{
    int64_t m = c->timetable->micro_batches, at = row->stage * m + row->micro_batch;
    if (row->what == 'U')
        return 0;
    if (row->what == 'F')
        return row->stage == 0 ? 0 : c->end[0][at - m];
    return row->stage == c->timetable->stages - 1 ? c->end[0][at] : c->end[1][at + m];
}

/* As many actions of a stage as can be timed; returns how many. */
static int64_t advance(clock_state *c, tn_timetable *s, int32_t stage)
{
    int64_t done = 0;
    for (; c->next[stage] < s->first[stage + 1]; c->next[stage]++, done++) {
        const tn_action *row = &s->actions[c->next[stage]];
        double from = ready(c, row);
        if (from < 0)
            break;
        double start = from > c->now[stage] ? from : c->now[stage];
        s->start[c->next[stage]] = start;
        if (row->what == 'U')
            continue;
        int32_t backward = row->what == 'B';
        c->now[stage] = start + (backward ? TN_CLOCK_BACKWARD : TN_CLOCK_FORWARD);
        c->end[backward][(int64_t)stage * s->micro_batches + row->micro_batch] = c->now[stage];
        s->length = c->now[stage] > s->length ? c->now[stage] : s->length;
    }
    return done;
}

static int32_t run_clock(clock_state *c, tn_timetable *s, const char *name, tn_error *err)
{
    for (int64_t left = s->first[s->stages], done; left > 0; left -= done) {
        done = 0;
        for (int32_t stage = 0; stage < s->stages; stage++)
            done += advance(c, s, stage);
        int32_t stuck = 0;
        while (!done && c->next[stuck] == s->first[stuck + 1])
            stuck++;
        if (!done)
            return tn_error_set(
                err, TN_E_PLUGIN,
                "strategy %s: the stages wait for each other: stage %d at action '%c' of micro-batch %d", name, stuck,
                s->actions[c->next[stuck]].what, s->actions[c->next[stuck]].micro_batch);
    }
    return TN_OK;
}

static int32_t time_actions(tn_timetable *s, const char *name, tn_error *err)
{
    size_t cells = (size_t)s->stages * (size_t)s->micro_batches, stages = (size_t)s->stages;
    clock_state c = {.timetable = s,
                     .end = {tn_alloc(cells, sizeof(double)), tn_alloc(cells, sizeof(double))},
                     .next = tn_alloc(stages, sizeof *c.next),
                     .now = tn_alloc(stages, sizeof *c.now)};
    s->start = tn_alloc((size_t)s->first[s->stages], sizeof *s->start);
    int32_t status = c.end[0] && c.end[1] && c.next && c.now && s->start ? TN_OK : no_memory(err);
    for (size_t i = 0; i < cells && status == TN_OK; i++)
        c.end[0][i] = c.end[1][i] = -1;
    for (int32_t i = 0; i < s->stages && status == TN_OK; i++)
        c.next[i] = s->first[i];
    if (status == TN_OK)
        status = run_clock(&c, s, name, err);
    tn_free(c.end[0]);
    tn_free(c.end[1]);
    tn_free(c.next);
    tn_free(c.now);
    return status;
}

/* ---- life ---- */

static int32_t fill(asking *a, tn_error *err)
{
    unsigned char *done = tn_alloc((size_t)a->timetable->micro_batches, 1);
    int32_t status = done ? TN_OK : no_memory(err);
    for (int32_t stage = 0; stage < a->timetable->stages && status == TN_OK; stage++) {
        status = ask_stage(a, stage, err);
        if (status == TN_OK)
            status = check_stage(a, stage, done, err);
    }
    tn_free(done);
    return status == TN_OK ? time_actions(a->timetable, a->instance->info->name, err) : status;
}

static int32_t find(const tn_strategies *strategies, asking *ret, tn_error *err)
{
    for (size_t i = 0; i < strategies->count; i++)
        if (strategies->table[i].actions) {
            ret->table = &strategies->table[i];
            ret->instance = strategies->instance[i];
            return TN_OK;
        }
    return tn_error_set(err, TN_E_INVALID,
                        "the mesh's `pipeline` is %d, but no strategy offers stages and actions; name one, such as "
                        "pipeline-1f1b",
                        ret->mesh->pipeline);
}

int32_t tn_timetable_create(const tn_strategies *strategies, const tn_mesh *mesh, int32_t micro_batches,
                            tn_timetable **ret, tn_error *err)
{
    asking a = {.mesh = mesh};
    if (micro_batches < 1)
        return tn_error_set(err, TN_E_INVALID, "%d micro-batches, needed at least 1", micro_batches);
    int32_t status = find(strategies, &a, err);
    if (status != TN_OK)
        return status;
    tn_timetable *s = a.timetable = tn_alloc(1, sizeof *s);
    if (!s)
        return no_memory(err);
    s->stages = mesh->pipeline;
    s->micro_batches = micro_batches;
    a.room = (2 * (int64_t)micro_batches + 1) * s->stages;
    s->first = tn_alloc((size_t)s->stages + 1, sizeof *s->first);
    s->actions = tn_alloc((size_t)a.room, sizeof *s->actions);
    status = s->first && s->actions ? fill(&a, err) : no_memory(err);
    if (status != TN_OK) {
        tn_timetable_destroy(s);
        return status;
    }
    *ret = s;
    return TN_OK;
}

void tn_timetable_destroy(tn_timetable *timetable)
{
    if (!timetable)
        return;
    tn_free(timetable->first);
    tn_free(timetable->actions);
    tn_free(timetable->start);
    tn_free(timetable);
}

/* ---- looking at it ---- */

double tn_timetable_bubble(const tn_timetable *timetable, int32_t stage)
{
    double busy = 0;
    for (int64_t i = timetable->first[stage]; i < timetable->first[stage + 1]; i++)
        busy += timetable->actions[i].what == 'F'   ? TN_CLOCK_FORWARD
                : timetable->actions[i].what == 'B' ? TN_CLOCK_BACKWARD
                                                    : 0;
    return 1 - busy / timetable->length;
}

int32_t tn_timetable_in_flight(const tn_timetable *timetable, int32_t stage)
{
    int32_t now = 0, most = 0;
    for (int64_t i = timetable->first[stage]; i < timetable->first[stage + 1]; i++) {
        now += timetable->actions[i].what == 'F' ? 1 : timetable->actions[i].what == 'B' ? -1 : 0;
        most = now > most ? now : most;
    }
    return most;
}

uint64_t tn_timetable_hash(const tn_timetable *timetable)
{
    uint64_t hash = 14695981039346656037u ^ (uint64_t)timetable->stages << 32 ^ (uint64_t)timetable->micro_batches;
    for (int64_t i = 0; i < timetable->first[timetable->stages]; i++) {
        const tn_action *a = &timetable->actions[i];
        hash = (hash ^ (uint64_t)a->stage) * 1099511628211u;
        hash = (hash ^ ((uint64_t)a->what << 32 | (uint32_t)a->micro_batch)) * 1099511628211u;
    }
    return hash;
}

/* ---- the steps of a stage ---- */

static int by_time(const void *a, const void *b)
{
    const tn_pipeline_step *x = a, *y = b;
    int32_t x_acts = x->what_kind == TN_DO_ACTION, y_acts = y->what_kind == TN_DO_ACTION;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    if (x_acts != y_acts)
        return x_acts - y_acts;
    /* All transfers of one stage at one time, in an order that both sides see alike: by the receiver, held in `set`. */
    return x->set != y->set ? x->set - y->set : (x->what == 'U') - (y->what == 'U');
}

static void add_actions(const tn_timetable *s, int32_t stage, tn_pipeline_step *steps, int64_t *count)
{
    for (int64_t i = s->first[stage]; i < s->first[stage + 1]; i++)
        steps[(*count)++] = (tn_pipeline_step){
            .what = s->actions[i].what, .micro_batch = s->actions[i].micro_batch, .peer = -1, .time = s->start[i]};
}

/* What `stage` receives from a neighbour, as seen by `me`, which is one of the two. */
static void add_transfers(const tn_timetable *s, int32_t stage, int32_t what, int32_t me, tn_pipeline_step *steps,
                          int64_t *count)
{
    int32_t from = what == 'F' ? stage - 1 : stage + 1;
    if (stage < 0 || stage >= s->stages || from < 0 || from >= s->stages)
        return;
    for (int64_t i = s->first[stage]; i < s->first[stage + 1]; i++)
        if (s->actions[i].what == what)
            steps[(*count)++] = (tn_pipeline_step){.what_kind = me == stage ? TN_DO_RECEIVE : TN_DO_SEND,
                                                   .what = what,
                                                   .micro_batch = s->actions[i].micro_batch,
                                                   .peer = me == stage ? from : stage,
                                                   .set = stage,
                                                   .time = s->start[i]};
}

/* A set is taken by the first step of a micro-batch's forward and is free again after the last of its backward. */
static int32_t assign_sets(const tn_timetable *s, int32_t stage, tn_pipeline_step *steps, int64_t count, tn_error *err)
{
    int32_t sets = 0;
    int32_t *set_of = tn_alloc((size_t)s->micro_batches, sizeof *set_of); /* + 1; 0: none */
    unsigned char *busy = tn_alloc((size_t)s->micro_batches, sizeof *busy);
    for (int64_t i = 0; i < count && set_of && busy; i++) {
        int32_t m = steps[i].micro_batch, set = 0;
        steps[i].set = -1;
        if (steps[i].what == 'U')
            continue;
        while (!set_of[m] && busy[set])
            set++;
        if (!set_of[m])
            set_of[m] = set + 1;
        steps[i].set = set_of[m] - 1;
        busy[steps[i].set] = !(steps[i].what == 'B' && steps[i].what_kind == (stage > 0 ? TN_DO_SEND : TN_DO_ACTION));
        sets = steps[i].set + 1 > sets ? steps[i].set + 1 : sets;
    }
    tn_free(set_of);
    tn_free(busy);
    return sets ? sets : -no_memory(err);
}

int32_t tn_timetable_steps(const tn_timetable *timetable, int32_t stage, tn_pipeline_step **ret, int64_t *ret_count,
                           int32_t *ret_sets, tn_error *err)
{
    int64_t count = 0, room = 6 * (int64_t)timetable->micro_batches + 1;
    tn_pipeline_step *steps = tn_alloc((size_t)room, sizeof *steps);
    if (!steps)
        return no_memory(err);
    add_actions(timetable, stage, steps, &count);
    add_transfers(timetable, stage, 'F', stage, steps, &count);
    add_transfers(timetable, stage, 'B', stage, steps, &count);
    add_transfers(timetable, stage + 1, 'F', stage, steps, &count);
    add_transfers(timetable, stage - 1, 'B', stage, steps, &count);
    qsort(steps, (size_t)count, sizeof *steps, by_time);
    int32_t sets = assign_sets(timetable, stage, steps, count, err);
    if (sets < 0) {
        tn_free(steps);
        return -sets;
    }
    *ret = steps;
    *ret_count = count;
    *ret_sets = sets;
    return TN_OK;
}
