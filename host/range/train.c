/* SPDX-License-Identifier: Apache-2.0
 *
 * train.c: the ramp of an experiment: its rows, and its own updates.
 */
#include <math.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/range/ramp.h"

/* ---- rows ---- */

static const tn_row *rate_of(const tn_instance *link)
{
    const tn_row *row = tn_instance_row(link, "lr");
    return row && row->type == TN_TYPE_REAL ? row : NULL;
}

static int32_t add_row(tn_experiment *e, const tn_instance *target, const tn_row *row, tn_ramp_rows *rows,
                       tn_error *err)
{
    double own = *tn_instance_real(target, row), first = own;
    if (rows->count)
        first = *tn_instance_real(rows->list[0].target, rows->list[0].row);
    if (rows->count && !(isfinite(own / first) && own / first > 0))
        return tn_error_set(err, TN_E_INVALID,
                            "%s.lr is %g and %s.lr %g, which has no ratio above 0 to it; name the row of the ramp: "
                            "--row %s.lr",
                            rows->list[0].target->handle, first, target->handle, own, target->handle);
    rows->list[rows->count++] = (tn_ramp_row){target, row, own == first ? 1 : own / first};
    tn_experiment_unschedule(e, target, row);
    return TN_OK;
}

static int32_t add_all(tn_experiment *e, tn_ramp_rows *rows, tn_error *err)
{
    int32_t status = TN_OK;
    for (size_t i = 0; i < e->update_count && status == TN_OK; i++)
        if (rate_of(e->update[i]))
            status = add_row(e, e->update[i], rate_of(e->update[i]), rows, err);
    if (status == TN_OK && !rows->count)
        return tn_error_set(err, TN_E_INVALID, "%s: no link of update has a row lr; name another one: --row HANDLE.ROW",
                            e->name);
    return status;
}

/* What the ramp would give a row lies in its range and is a number of its type. */
static int32_t check_row(const tn_ramp_row *r, const tn_ramp_settings *settings, tn_error *err)
{
    const double ends[] = {settings->from * r->factor, settings->to * r->factor};
    for (int i = 0; i < 2; i++) {
        if (!tn_range_holds(&r->row->range, ends[i]))
            return tn_error_set(err, TN_E_INVALID, "%s.%s would get %g, outside its range %s; needed other ends",
                                r->target->handle, r->row->name, ends[i], r->row->range_text);
        if (!tn_instance_fits(r->target, ends[i]))
            return tn_error_set(err, TN_E_INVALID, "%s.%s would get %g, which is 0 or inf in f32; needed other ends",
                                r->target->handle, r->row->name, ends[i]);
    }
    return TN_OK;
}

int32_t tn_ramp_rows_find(tn_experiment *e, const char *name, const tn_ramp_settings *settings, tn_ramp_rows *ret,
                          tn_error *err)
{
    tn_ramp_rows rows = {.list = tn_alloc(e->update_count + 1, sizeof *rows.list)};
    tn_instance *target;
    const tn_row *row;
    int32_t status = rows.list ? TN_OK : tn_error_set(err, TN_E_MEMORY, "no memory for the rows of a ramp");
    if (status == TN_OK && name)
        status = tn_schedule_find(e, "--row", name, &target, &row, err);
    if (status == TN_OK)
        status = name ? add_row(e, target, row, &rows, err) : add_all(e, &rows, err);
    for (size_t i = 0; i < rows.count && status == TN_OK; i++)
        status = check_row(&rows.list[i], settings, err);
    if (status == TN_OK)
        *ret = rows;
    else
        tn_ramp_rows_free(&rows);
    return status;
}

void tn_ramp_rows_free(tn_ramp_rows *rows)
{
    tn_free(rows->list);
    *rows = (tn_ramp_rows){0};
}

static void set(const tn_ramp_rows *rows, double rate)
{
    for (size_t i = 0; i < rows->count; i++)
        *tn_instance_real(rows->list[i].target, rows->list[i].row) = rate * rows->list[i].factor;
}

/* ---- updates ---- */

int32_t tn_ramp_observe(void *user, const tn_record *record)
{
    tn_ramp_watch *watch = user;
    for (int32_t i = 0; i < record->field_count; i++)
        if (strcmp(record->fields[i].name, "loss") == 0)
            watch->loss = record->fields[i].value;
    watch->committed = strcmp(record->event, "train") == 0;
    return watch->next ? watch->next(watch->user, record) : 0;
}

/* Links plan their state once: for all rates alike? */
static int32_t check_state(tn_trainer *trainer, const tn_ramp_rows *rows, const tn_ramp_settings *settings,
                           tn_error *err)
{
    const double ends[] = {settings->from, settings->to};
    int32_t status = TN_OK;
    for (int end = 0; end < 2; end++) {
        set(rows, ends[end]);
        for (size_t i = 0; i < rows->count && status == TN_OK; i++)
            status = tn_chain_check_plan(tn_trainer_chain(trainer), rows->list[i].target, err);
    }
    return status;
}

/* An attempt that became no update, as a gradient was not finite, is made again with other samples at the same rate. */
int32_t tn_ramp_train(tn_trainer *trainer, const tn_ramp_rows *rows, tn_ramp_watch *watch, tn_ramp *ramp, tn_error *err)
{
    int32_t status = check_state(trainer, rows, &ramp->settings, err);
    while (status == TN_OK && ramp->ended == TN_RAMP_GOES_ON) {
        if (tn_trainer_stops(trainer))
            return tn_error_set(err, TN_E_STOPPED, "stopped on request after %lld of %lld updates of the ramp",
                                (long long)ramp->count, (long long)ramp->settings.steps);
        set(rows, tn_ramp_rate(&ramp->settings, ramp->count));
        status = tn_trainer_step(trainer, err);
        if (status == TN_E_NUMERIC) {
            ramp->ended = TN_RAMP_DIVERGED;
            tn_error_clear(err);
            return TN_OK;
        }
        if (status == TN_OK && (watch->committed || !isfinite(watch->loss)))
            tn_ramp_add(ramp, watch->loss);
    }
    return status;
}
