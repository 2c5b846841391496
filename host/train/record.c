/* SPDX-License-Identifier: Apache-2.0
 *
 * record.c: what goes to the sinks and the observer.
 */
#include <time.h>

#include "host/base/error.h"
#include "host/base/memory.h"
#include "host/train/internal.h"

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const char *const noise_names[] = {"noise_scale", "noise_scale.gradient", "noise_scale.noise"};

int32_t tn_record_plan(tn_trainer *t, tn_error *err)
{
    double ignored;
    const tn_report *reports;
    size_t report_count = tn_chain_reports(t->chain, &reports), n = 0;
    t->columns =
        tn_alloc(2 * t->metric_count + tn_schedules_count(t->schedules) + report_count + 7, sizeof *t->columns);
    if (!t->columns)
        return tn_error_set(err, TN_E_MEMORY, "no memory for the run");
    t->columns[n++] = "loss";
    for (size_t i = 0; i < t->metric_count; i++)
        t->columns[n++] = t->metrics[i];
    for (size_t i = 0; i < tn_schedules_count(t->schedules); i++)
        t->columns[n++] = tn_schedules_at(t->schedules, i, &ignored);
    if (t->e->loss_scale)
        t->columns[n++] = "loss_scale";
    for (size_t i = 0; i < sizeof noise_names / sizeof *noise_names && t->e->noise_scale; i++)
        t->columns[n++] = noise_names[i];
    for (size_t i = 0; i < report_count; i++)
        t->columns[n++] = reports[i].name;
    for (size_t i = 0; t->e->eval_split && i <= t->metric_count; i++)
        t->columns[n++] = t->eval_names[i];
    t->columns[n++] = "skipped";
    t->column_count = n;
    return TN_OK;
}

int32_t tn_record_open(tn_trainer *t, const char *folder, const int64_t *lengths, tn_error *err)
{
    const tn_sinks_options options = {.registry = t->options.registry,
                                      .instances = t->e->sinks,
                                      .count = t->e->sink_count,
                                      .folder = folder,
                                      .lengths = lengths,
                                      .columns = t->columns,
                                      .column_count = t->column_count};
    return tn_sinks_open(&options, &t->sinks, err);
}

int32_t tn_record_send(tn_trainer *t, const char *event, size_t field_count, tn_error *err)
{
    tn_record r = {.struct_size = sizeof r,
                   .field_count = (int32_t)field_count,
                   .event = event,
                   .update = *tn_chain_update(t->chain),
                   .attempt = t->attempt,
                   .epoch = t->samples / (double)t->train.split.samples,
                   .time = now(),
                   .fields = t->fields,
                   .columns = t->columns,
                   .column_count = (int64_t)t->column_count};
    int32_t status = t->sinks ? tn_sinks_record(t->sinks, &r, err) : TN_OK;
    int32_t asked = status == TN_OK && t->options.observer ? t->options.observer(t->options.user, &r) : 0;
    t->stop |= (asked & TN_ASK_STOP) != 0;
    t->save |= (asked & TN_ASK_CHECKPOINT) != 0;
    return status;
}

size_t tn_record_add(tn_trainer *t, size_t count, const char *name, double value)
{
    t->fields[count] = (tn_field){name, value};
    return count + 1;
}

int32_t tn_record_update(tn_trainer *t, const tn_exact *sums, const tn_step_result *result, tn_error *err)
{
    double count = tn_exact_value(&sums[TN_SUM_COUNT]), value;
    const tn_report *reports;
    size_t n = tn_record_add(t, 0, "loss", tn_exact_value(&sums[TN_SUM_LOSS]) / count);
    for (size_t i = 0; i < t->metric_count; i++)
        n = tn_record_add(t, n, t->metrics[i], tn_exact_value(&sums[TN_SUM_FIRST + i]) / count);
    for (size_t i = 0; i < tn_schedules_count(t->schedules); i++) {
        const char *name = tn_schedules_at(t->schedules, i, &value);
        n = tn_record_add(t, n, name, value);
    }
    if (t->e->loss_scale)
        n = tn_record_add(t, n, "loss_scale", t->loss_scale);
    if (t->e->noise_scale) {
        n = tn_record_add(t, n, noise_names[0], tn_noise_scale(&t->noise.means));
        n = tn_record_add(t, n, noise_names[1], t->noise.now.gradient);
        n = tn_record_add(t, n, noise_names[2], t->noise.now.noise);
    }
    size_t report_count = tn_chain_reports(t->chain, &reports);
    for (size_t i = 0; i < report_count; i++)
        n = tn_record_add(t, n, reports[i].name, reports[i].value);
    return tn_record_send(t, result->committed ? "train" : "skip", n, err);
}
