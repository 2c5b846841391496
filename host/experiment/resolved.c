/* SPDX-License-Identifier: Apache-2.0
 *
 * resolved.c: an experiment as YAML text with every default filled in. Sections are block style, components flow.
 */
#include "host/experiment/resolved.h"

#include <stdio.h>

#include "host/experiment/build.h"
#include "host/experiment/schedule.h"
#include "host/experiment/value.h"

static void print_row(const tn_instance *instance, const tn_row *row, tn_text *text);

/* "{use: NAME" and what `host` holds, which begins with ", ". */
static void print_component(const tn_instance *instance, const char *host, tn_text *text)
{
    const tn_component_info *info = instance->info;
    tn_text_addf(text, "{use: %s%s%s%s", instance->kind_given ? info->kind : "", instance->kind_given ? "/" : "",
                 info->name, host);
    for (size_t i = 0; i < info->row_count; i++)
        print_row(instance, &info->rows[i], text);
    tn_text_char(text, '}');
}

static void print_row(const tn_instance *instance, const tn_row *row, tn_text *text)
{
    tn_text_addf(text, ", %s: ", row->name);
    if (row->type != TN_TYPE_COMPONENT) {
        tn_value_print(row, (const char *)instance->hyper + row->offset, text);
        return;
    }
    int64_t child = tn_instance_integer(instance, row);
    if (child < 0)
        tn_text_add(text, "none");
    else
        print_component(instance->children[child], "", text);
}

static void print_data(const tn_experiment *e, tn_text *text)
{
    char batch[40];
    snprintf(batch, sizeof batch, ", batch: %lld", (long long)e->batch);
    tn_text_add(text, "data: ");
    print_component(e->data, batch, text);
}

static void print_update(const tn_experiment *e, tn_text *text)
{
    tn_text_add(text, "\nupdate:");
    for (size_t i = 0; i < e->update_count; i++) {
        const tn_instance *link = e->update[i];
        tn_text own = {0};
        if (!tn_name_equal(link->handle, link->info->name))
            tn_text_addf(&own, ", as: %s", link->handle);
        if (link->on) {
            tn_text_add(&own, ", on: ");
            tn_selector_print(link->on, &own);
        }
        tn_text_add(text, "\n  - ");
        print_component(link, tn_text_string(&own), text);
        text->failed |= own.failed;
        tn_text_free(&own);
    }
}

static void print_segment(const tn_schedule *schedule, size_t k, tn_text *text)
{
    const tn_segment *segment = &schedule->lengths[k];
    int ends = k + 1 == schedule->segment_count || schedule->lengths[k + 1].factor != TN_SEGMENT_NEXT;
    tn_text_add(text, segment->factor == TN_SEGMENT_NEXT ? ", " : "\n    - ");
    if (segment->factor == TN_SEGMENT_FIRST)
        tn_text_add(text, "{product: [");
    print_component(schedule->segments[k], "", text);
    if (segment->factor != TN_SEGMENT_ALONE && ends)
        tn_text_addf(text, "], steps: %lld}", (long long)segment->steps);
}

static void print_schedules(const tn_experiment *e, tn_text *text)
{
    tn_text_add(text, e->schedule_count ? "\nschedule:" : "\nschedule: none");
    for (size_t i = 0; i < e->schedule_count; i++) {
        const tn_schedule *schedule = &e->schedules[i];
        tn_text_addf(text, "\n  %s.%s:", tn_instance_call(schedule->target), schedule->row->name);
        for (size_t k = 0; k < schedule->segment_count; k++)
            print_segment(schedule, k, text);
    }
}

static void print_sinks(const tn_experiment *e, tn_text *text)
{
    tn_text_add(text, e->sink_count ? "\nsinks:" : "\nsinks: none");
    for (size_t i = 0; i < e->sink_count; i++) {
        tn_text_add(text, "\n  - ");
        print_component(e->sinks[i], "", text);
    }
}

static void print_train(const tn_experiment *e, tn_text *text)
{
    tn_text_add(text, "\ntrain: {");
    if (e->steps) {
        tn_text_addf(text, "steps: %lld", (long long)e->steps);
    } else {
        tn_text_add(text, "epochs: ");
        tn_text_real(text, e->epochs);
    }
    tn_text_addf(text, ", accumulate: %lld, seed: %llu, threads: %lld, noise_scale: %s, check_finite: %s",
                 (long long)e->accumulate, (unsigned long long)e->seed, (long long)e->threads,
                 e->noise_scale ? "true" : "false", e->check_finite ? "true" : "false");
    if (e->from) {
        tn_text_add(text, ", from: ");
        tn_text_json(text, e->from);
    }
    tn_text_char(text, '}');
}

static void print_period(const tn_period *period, tn_text *text)
{
    if (period->steps) {
        tn_text_addf(text, "%lld steps", (long long)period->steps);
        return;
    }
    tn_text_real(text, period->epochs);
    tn_text_add(text, period->epochs == 1 ? " epoch" : " epochs");
}

static void print_eval(const tn_experiment *e, tn_text *text)
{
    if (!e->eval_split) {
        tn_text_add(text, "\neval: none");
        return;
    }
    tn_text_add(text, "\neval: {split: ");
    tn_text_json(text, e->eval_split);
    tn_text_add(text, ", every: ");
    print_period(&e->eval_every, text);
    tn_text_addf(text, ", batch: %lld, view: %s, refresh: %lld}", (long long)e->eval_batch,
                 e->eval_view ? "eval" : "train", (long long)e->eval_refresh);
}

static void print_checkpoint(const tn_experiment *e, tn_text *text)
{
    if (!e->checkpoint_metric) {
        tn_text_add(text, "\ncheckpoint: none\n");
        return;
    }
    tn_text_add(text, "\ncheckpoint: {every: ");
    print_period(&e->checkpoint_every, text);
    tn_text_addf(text, ", keep: %lld, best: %lld, metric: ", (long long)e->checkpoint_keep,
                 (long long)e->checkpoint_best);
    tn_text_json(text, e->checkpoint_metric);
    tn_text_addf(text, ", mode: %s}\n", e->checkpoint_mode ? "max" : "min");
}

static void print_optional(const char *key, const tn_instance *instance, tn_text *text)
{
    tn_text_add(text, key);
    if (instance)
        print_component(instance, "", text);
    else
        tn_text_add(text, "none");
}

static void print_precision(const tn_experiment *e, tn_text *text)
{
    if (!e->storage && !e->state_codec && !e->loss_scale) {
        tn_text_addf(text, "\nprecision: f%u", e->real);
        return;
    }
    tn_text_addf(text, "\nprecision: {use: f%u", e->real);
    print_optional(", storage: ", e->storage, text);
    tn_text_addf(text, ", master: %s", e->master ? "true" : "false");
    print_optional(", state: ", e->state_codec, text);
    print_optional(", loss_scale: ", e->loss_scale, text);
    tn_text_char(text, '}');
}

void tn_resolved_print(const tn_experiment *e, tn_text *text)
{
    tn_text_add(text, "name: ");
    tn_text_json(text, e->name);
    tn_text_char(text, '\n');
    print_data(e, text);
    tn_text_add(text, "\nmodel: ");
    print_component(e->model, "", text);
    tn_text_add(text, "\nloss: ");
    print_component(e->loss, "", text);
    print_update(e, text);
    print_schedules(e, text);
    tn_text_add(text, "\nbackend: ");
    print_component(e->backend, "", text);
    print_precision(e, text);
    print_optional("\nrecompute: ", e->recompute, text);
    tn_text_add(text, "\nparallel: {collective: ");
    print_component(e->collective, "", text);
    tn_text_char(text, '}');
    print_sinks(e, text);
    print_train(e, text);
    print_eval(e, text);
    print_checkpoint(e, text);
}
