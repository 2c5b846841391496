/* SPDX-License-Identifier: Apache-2.0
 *
 * schedule.c: schedules: the values for the next update.
 */
#include "host/train/schedule.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

#include "host/base/error.h"
#include "host/base/memory.h"

typedef struct {
    const tn_schedule *schedule;
    tn_scheduler *tables; /* one a scheduler */
    int64_t *starts;      /* update at which each one's segment begins */
    double **slots;       /* one block a scheduler, NULL where it keeps nothing */
    char *name;
    double *place; /* in the target's hyper struct */
    double lo, hi; /* seen when looking ahead */
} driver;

struct tn_schedules {
    double epoch, window, batch; /* samples of a pass, of an update in the mean, and of one that is whole */
    int64_t pass;                /* updates of a pass */
    driver *list;
    size_t count;
    int64_t horizon;
};

static size_t slot_count(const tn_instance *segment)
{
    return json_array_size(json_object_get(segment->info->facts, "slots"));
}

static int32_t open_segments(tn_registry *registry, driver *d, tn_error *err)
{
    int64_t start = 0;
    for (size_t i = 0; i < d->schedule->segment_count; i++) {
        const tn_instance *segment = d->schedule->segments[i];
        int32_t status = tn_instance_load(segment, registry, &d->tables[i], sizeof d->tables[i], err);
        if (status != TN_OK)
            return status;
        if (!d->tables[i].value)
            return tn_error_set(err, TN_E_PLUGIN, "scheduler %s: its table lacks value", segment->info->name);
        size_t slots = slot_count(segment);
        d->slots[i] = slots ? tn_alloc(slots, sizeof **d->slots) : NULL;
        if (slots && !d->slots[i])
            return tn_error_set(err, TN_E_MEMORY, "no memory for the schedules");
        int follows = d->schedule->lengths[i].factor == TN_SEGMENT_NEXT;
        d->starts[i] = follows ? d->starts[i - 1] : start;
        if (!follows && __builtin_add_overflow(start, d->schedule->lengths[i].steps, &start))
            return tn_error_set(err, TN_E_INVALID, "schedule %s: the steps of its parts are more than 2^63 in all",
                                d->name);
    }
    return TN_OK;
}

/* The schedulers first .. end of the segment that a step of the run falls into: one, or the factors of a product. */
static size_t find_segment(const driver *d, int64_t step, size_t *ret_end)
{
    const tn_segment *lengths = d->schedule->lengths;
    size_t i = d->schedule->segment_count - 1;
    while (i > 0 && d->starts[i] > step)
        i--;
    *ret_end = i + 1;
    while (lengths[i].factor == TN_SEGMENT_NEXT)
        i--;
    return i;
}

/* A position of the run as scheduler i sees it. */
static tn_position seen_by(const tn_schedules *schedules, const driver *d, size_t i, const tn_position *position)
{
    int64_t steps = d->schedule->lengths[i].steps, left = schedules->horizon - d->starts[i];
    tn_position at = *position;
    at.struct_size = sizeof at;
    at.base = d->schedule->lengths[i].factor == TN_SEGMENT_ALONE ? d->schedule->base : 1;
    at.step -= d->starts[i];
    at.horizon = steps > 0 ? steps : left > 0 ? left : 1;
    at.batch = schedules->batch;
    at.pass = schedules->pass;
    return at;
}

static double value_at(const tn_schedules *schedules, const driver *d, const tn_position *position)
{
    size_t end, i = find_segment(d, position->step, &end);
    double value = d->schedule->lengths[i].factor == TN_SEGMENT_ALONE ? 1 : d->schedule->base;
    for (; i < end; i++) {
        tn_position at = seen_by(schedules, d, i, position);
        value *= d->tables[i].value(d->schedule->segments[i]->hyper, &at, d->slots[i]);
    }
    return value;
}

static int32_t check_value(const driver *d, int64_t step, double value, tn_error *err)
{
    if (!tn_instance_fits(d->schedule->target, value))
        return tn_error_set(err, TN_E_INVALID, "schedule %s: update %lld would get %g, which is 0 or inf in f32",
                            d->name, (long long)step + 1, value);
    if (tn_range_holds(&d->schedule->row->range, value))
        return TN_OK;
    return tn_error_set(err, TN_E_INVALID, "schedule %s: update %lld would get %g, outside the range %s", d->name,
                        (long long)step + 1, value, d->schedule->row->range_text);
}

static int32_t look_at(const tn_schedules *s, driver *d, int64_t step, tn_error *err)
{
    double samples = (double)step * s->window;
    tn_position position = {.step = step, .epoch = samples / s->epoch, .samples = samples, .tokens = samples};
    double value = value_at(s, d, &position);
    d->lo = value < d->lo ? value : d->lo;
    d->hi = value > d->hi ? value : d->hi;
    return check_value(d, step, value, err);
}

static int32_t look_ahead(const tn_schedules *s, driver *d, tn_error *err)
{
    int64_t stride = s->horizon / 100000 + 1, looks = (s->horizon - 1) / stride + 1;
    int32_t status = TN_OK;
    d->lo = HUGE_VAL;
    d->hi = -HUGE_VAL;
    for (int64_t i = 0; i < looks && status == TN_OK; i++)
        status = look_at(s, d, i * stride, err);
    for (size_t i = 0; i < d->schedule->segment_count && status == TN_OK; i++)
        if (d->starts[i] < s->horizon) {
            status = look_at(s, d, d->starts[i], err);
            if (status == TN_OK && d->starts[i] > 0)
                status = look_at(s, d, d->starts[i] - 1, err);
        }
    return status == TN_OK ? look_at(s, d, s->horizon - 1, err) : status;
}

static int32_t open_driver(tn_registry *registry, const tn_schedule *schedule, driver *d, tn_error *err)
{
    d->schedule = schedule;
    d->tables = tn_alloc(schedule->segment_count + 1, sizeof *d->tables);
    d->starts = tn_alloc(schedule->segment_count + 1, sizeof *d->starts);
    d->slots = tn_alloc(schedule->segment_count + 1, sizeof *d->slots);
    d->name = tn_format("%s.%s", schedule->target->handle, schedule->row->name);
    d->place = tn_instance_real(schedule->target, schedule->row);
    if (!d->tables || !d->starts || !d->slots || !d->name)
        return tn_error_set(err, TN_E_MEMORY, "no memory for the schedules");
    return open_segments(registry, d, err);
}

int32_t tn_schedules_open(tn_registry *registry, const tn_experiment *experiment, int64_t horizon, double epoch,
                          int64_t pass, tn_schedules **ret, tn_error *err)
{
    tn_schedules *schedules = tn_alloc(1, sizeof *schedules);
    if (!schedules || !(schedules->list = tn_alloc(experiment->schedule_count + 1, sizeof *schedules->list))) {
        tn_free(schedules);
        return tn_error_set(err, TN_E_MEMORY, "no memory for the schedules");
    }
    schedules->horizon = horizon;
    schedules->epoch = epoch;
    schedules->pass = pass;
    schedules->window = epoch / (double)pass;
    schedules->batch = (double)experiment->batch * (double)experiment->accumulate;
    int32_t status = TN_OK;
    for (; schedules->count < experiment->schedule_count && status == TN_OK; schedules->count++)
        status =
            open_driver(registry, &experiment->schedules[schedules->count], &schedules->list[schedules->count], err);
    for (size_t i = 0; i < schedules->count && status == TN_OK; i++)
        status = look_ahead(schedules, &schedules->list[i], err);
    if (status != TN_OK)
        tn_schedules_close(schedules);
    else
        *ret = schedules;
    return status;
}

void tn_schedules_close(tn_schedules *schedules)
{
    if (!schedules)
        return;
    for (size_t i = 0; i < schedules->count; i++) {
        for (size_t s = 0; schedules->list[i].slots && s < schedules->list[i].schedule->segment_count; s++)
            tn_free(schedules->list[i].slots[s]);
        tn_free(schedules->list[i].slots);
        tn_free(schedules->list[i].tables);
        tn_free(schedules->list[i].starts);
        tn_free(schedules->list[i].name);
    }
    tn_free(schedules->list);
    tn_free(schedules);
}

int32_t tn_schedules_apply(tn_schedules *schedules, const tn_position *position, tn_error *err)
{
    for (size_t i = 0; i < schedules->count; i++) {
        const driver *d = &schedules->list[i];
        double value = value_at(schedules, d, position);
        int32_t status = check_value(d, position->step, value, err);
        if (status != TN_OK)
            return status;
        *d->place = value;
    }
    return TN_OK;
}

size_t tn_schedules_count(const tn_schedules *schedules) { return schedules->count; }

const char *tn_schedules_at(const tn_schedules *schedules, size_t index, double *ret)
{
    *ret = *schedules->list[index].place;
    return schedules->list[index].name;
}

const char *tn_schedules_state(const tn_schedules *schedules, size_t index, size_t *ret_segment, double **ret_slots,
                               size_t *ret_count)
{
    for (size_t i = 0; i < schedules->count; i++)
        for (size_t s = 0; s < schedules->list[i].schedule->segment_count; s++) {
            const driver *d = &schedules->list[i];
            if (!d->slots[s] || index-- > 0)
                continue;
            *ret_segment = s;
            *ret_slots = d->slots[s];
            *ret_count = slot_count(d->schedule->segments[s]);
            return d->name;
        }
    return NULL;
}

void tn_schedules_bounds(const tn_schedules *schedules, size_t index, double *ret_lo, double *ret_hi)
{
    *ret_lo = schedules->list[index].lo;
    *ret_hi = schedules->list[index].hi;
}

/* "loss" of "test/loss". */
static const char *short_name(const char *field)
{
    const char *slash = strrchr(field, '/');
    return slash ? slash + 1 : field;
}

static const char *watched(const tn_instance *segment)
{
    const tn_row *row = tn_instance_row(segment, "metric");
    return row && row->type == TN_TYPE_TEXT ? *(const char *const *)((const char *)segment->hyper + row->offset)
                                            : "loss";
}

int32_t tn_schedules_check_metrics(const tn_schedules *schedules, const char *const *names, size_t count, tn_error *err)
{
    for (size_t i = 0; i < schedules->count; i++)
        for (size_t s = 0; s < schedules->list[i].schedule->segment_count; s++) {
            const driver *d = &schedules->list[i];
            size_t n = 0;
            while (n < count && strcmp(short_name(names[n]), watched(d->schedule->segments[s])) != 0)
                n++;
            if (d->tables[s].observe && n == count)
                return tn_error_set(err, TN_E_INVALID, "schedule %s: %s watches the metric '%s', which %s; %s", d->name,
                                    d->schedule->segments[s]->info->name, watched(d->schedule->segments[s]),
                                    count ? "evaluations do not have" : "no evaluation gives",
                                    count ? "see the names in an evaluation's record" : "add eval: {split: test}");
        }
    return TN_OK;
}

static void observe(const tn_schedules *schedules, driver *d, size_t i, const tn_position *position,
                    const tn_field *fields, size_t count)
{
    tn_position at = seen_by(schedules, d, i, position);
    for (size_t n = 0; n < count && d->tables[i].observe; n++)
        if (strcmp(short_name(fields[n].name), watched(d->schedule->segments[i])) == 0)
            d->tables[i].observe(d->schedule->segments[i]->hyper, &at, fields[n].value, d->slots[i]);
}

void tn_schedules_observe(tn_schedules *schedules, const tn_position *position, const tn_field *fields, size_t count)
{
    for (size_t i = 0; i < schedules->count; i++) {
        driver *d = &schedules->list[i];
        size_t end, k = find_segment(d, position->step, &end);
        for (; k < end; k++)
            observe(schedules, d, k, position, fields, count);
    }
}
