/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon_eval.c: the part of the C API that evaluates what a run has learnt.
 */
#include <fenv.h>
#include <math.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/base/take.h"
#include "host/experiment/experiment.h"
#include "host/handle.h"
#include "host/train/trainer.h"

#define OVERRIDES_MAX 12

/* The run's experiment, on one process, without what a run leaves or goes through. */
typedef struct {
    const char *list[OVERRIDES_MAX];
    char *texts[OVERRIDES_MAX]; /* those to be freed */
    size_t count, text_count;
    int32_t failed;
} overrides;

static void add(overrides *o, const char *text) { o->list[o->count++] = text; }

static void add_made(overrides *o, char *text)
{
    o->failed |= !text;
    o->texts[o->text_count++] = text;
    add(o, text);
}

/* A text in YAML, whatever is in it. */
static void add_text(overrides *o, const char *key, const char *value)
{
    tn_text text = {0};
    tn_text_addf(&text, "%s=", key);
    tn_text_json(&text, value);
    add_made(o, tn_text_take(&text));
    tn_text_free(&text);
}

static void free_overrides(overrides *o)
{
    for (size_t i = 0; i < o->text_count; i++)
        tn_free(o->texts[i]);
}

static int32_t make_overrides(const tenon_eval_options *options, const tn_experiment *plain, overrides *ret,
                              tn_error *err)
{
    static const char *const always[] = {"parallel={collective: self}", "sinks=none", "checkpoint=none",
                                         "schedule=none"};
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        add(ret, always[i]);
    if (plain->from)
        add(ret, "~train.from");
    if (plain->noise_scale)
        add(ret, "train.noise_scale=false"); /* which one process may have no gradients for */
    if (options->split)
        add_text(ret, "eval.split", options->split);
    if (options->view)
        add_text(ret, "eval.view", options->view);
    if (options->view && strcmp(options->view, "train") == 0)
        add(ret, "eval.refresh=0"); /* which is for averaged parameters */
    if (options->threads > 0)
        add_made(ret, tn_format("train.threads=%d", options->threads));
    return ret->failed ? tn_error_set(err, TN_E_MEMORY, "no memory for an evaluation") : TN_OK;
}

/* Which overrides are needed depends on what the experiment says. */
static int32_t read_experiment(tenon *handle, const char *path, const tenon_eval_options *options, tn_experiment **ret,
                               tn_error *err)
{
    tn_experiment *plain;
    overrides o = {0};
    tenon_eval_options asked = *options;
    int32_t status = tn_experiment_read(handle->registry, path, NULL, 0, &plain, err);
    if (status != TN_OK)
        return status;
    if (!asked.split && !plain->eval_split)
        asked.split = "test";
    status = make_overrides(&asked, plain, &o, err);
    tn_experiment_free(plain);
    if (status == TN_OK)
        status = tn_experiment_read(handle->registry, path, o.list, o.count, ret, err);
    free_overrides(&o);
    return status;
}

/* ---- what is found ---- */

typedef struct {
    const char *folder, *checkpoint, *view;
    int32_t json;
    tn_text *text;
} report;

static void add_value(const tn_field *field, int json, tn_text *text)
{
    if (!json) {
        tn_text_addf(text, "%-14s %.4f\n", field->name, field->value);
        return;
    }
    tn_text_char(text, ',');
    tn_text_json(text, field->name);
    tn_text_addf(text, isfinite(field->value) ? ":" : ":\"");
    tn_text_real(text, field->value);
    tn_text_add(text, isfinite(field->value) ? "" : "\"");
}

static void add_pair(tn_text *text, const char *before, const char *key, const char *value)
{
    tn_text_addf(text, "%s\"%s\":", before, key);
    tn_text_json(text, value);
}

static int32_t observe(void *user, const tn_record *record)
{
    const report *r = user;
    if (r->json) {
        add_pair(r->text, "{", "folder", r->folder);
        add_pair(r->text, ",", "checkpoint", r->checkpoint);
        tn_text_addf(r->text, ",\"attempt\":%lld,\"updates\":%lld,\"epoch\":", (long long)record->attempt,
                     (long long)record->update);
        tn_text_real(r->text, record->epoch);
        add_pair(r->text, ",", "view", r->view);
    }
    for (int32_t i = 0; i < record->field_count; i++)
        add_value(&record->fields[i], r->json, r->text);
    if (r->json)
        tn_text_add(r->text, "}\n");
    else
        tn_text_addf(r->text, "%-14s %s, after %lld updates\n%-14s %s\n", "parameters",
                     strcmp(r->view, "eval") ? "as they are" : "averaged", (long long)record->update, "checkpoint",
                     r->checkpoint);
    return 0;
}

static int32_t evaluate(tn_trainer *trainer, const tn_experiment *experiment, report *r, tn_error *err)
{
    char *checkpoint;
    int32_t status = tn_checkpoint_load(trainer, r->folder, &checkpoint, err);
    if (status != TN_OK)
        return status;
    int averaged = experiment->eval_view &&
                   tn_chain_view(tn_trainer_chain(trainer)) != tn_graph_parameters(tn_trainer_graph(trainer))->p;
    r->view = averaged ? "eval" : "train";
    r->checkpoint = checkpoint;
    status = tn_trainer_evaluate(trainer, err);
    tn_free(checkpoint);
    return status;
}

static int32_t open_and_evaluate(tenon *handle, const tn_experiment *experiment, report *r, tn_error *err)
{
    tn_trainer *trainer;
    fenv_t own;
    const tn_trainer_options open = {
        .registry = handle->registry, .experiment = experiment, .log = &handle->log, .observer = observe, .user = r};
    fegetenv(&own); /* as a run has it, whatever the caller has set for itself */
    fesetenv(FE_DFL_ENV);
    int32_t status = tn_trainer_open(&open, &trainer, err);
    if (status == TN_OK) {
        status = evaluate(trainer, experiment, r, err);
        tn_trainer_close(trainer);
    }
    fesetenv(&own);
    return status;
}

int32_t tenon_eval(tenon *handle, const char *folder, const tenon_eval_options *options, char **ret, tn_error *err)
{
    tenon_eval_options taken = {.struct_size = sizeof taken};
    tn_experiment *experiment;
    tn_text text = {0};
    char *path;
    int32_t status = tn_handle_experiment_of(folder, &path, err);
    if (status != TN_OK)
        return status;
    if (options)
        tn_take(&taken, sizeof taken, options);
    status = read_experiment(handle, path, &taken, &experiment, err);
    tn_free(path);
    if (status != TN_OK)
        return status;
    report r = {.folder = folder, .json = (taken.flags & TENON_JSON) != 0, .text = &text};
    status = open_and_evaluate(handle, experiment, &r, err);
    tn_experiment_free(experiment);
    return tn_handle_give(&text, status, ret, err);
}
