/* SPDX-License-Identifier: Apache-2.0
 *
 * host/experiment: the file format and the overrides of docs/experiment.md, every message a user can meet, the resolved
 * text, hostile files, locales and failing memory.
 */
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/base/memory.h"
#include "host/base/text.h"
#include "host/experiment/experiment.h"
#include "tests/comma_locale.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* The least that an experiment needs; each section in a line of its own. */
#define DATA   "data: idx\n"
#define MODEL  "model: mlp\n"
#define LOSS   "loss: cross-entropy\n"
#define UPDATE "update: adamw\n"
#define TRAIN  "train: {epochs: 1}\n"
#define LEAST  DATA MODEL LOSS UPDATE TRAIN

static tn_registry *registry;

static void set_up(void) { registry = test_registry("TENON_TEST_PLUGINS"); }

static void tear_down(void) { tn_registry_close(registry); }

static tn_experiment *parse(const char *text, const char *const *overrides, size_t count)
{
    tn_experiment *e = NULL;
    tn_error err = {0};
    int32_t status = tn_experiment_parse(registry, "exp.yaml", text, strlen(text), overrides, count, &e, &err);
    if (status)
        ck_abort_msg("%d: %s\nin: %s", (int)status, err.msg, text);
    return e;
}

static void check_refused(const char *text, const char *override, const char *message)
{
    tn_experiment *e = (tn_experiment *)&registry;
    tn_error err = {0};
    int32_t status =
        tn_experiment_parse(registry, "exp.yaml", text, strlen(text), &override, override != NULL, &e, &err);
    if (!status || !strstr(err.msg, message))
        ck_abort_msg("%d: '%s'\nis not: %s\nin: %s%s", (int)status, err.msg, message, text, override ? override : "");
    ck_assert_int_eq(err.code, status);
    ck_assert_ptr_eq(e, (tn_experiment *)&registry);
    ck_assert_int_eq(
        tn_experiment_parse(registry, "exp.yaml", text, strlen(text), &override, override != NULL, &e, NULL), status);
}

/* ---- reading ---- */

static tn_experiment *read_example(const char *const *overrides, size_t count)
{
    const char *path = test_path("TENON_TEST_DOCS", "experiments/fashion-mlp.yaml");
    tn_experiment *e = NULL;
    tn_error err = {0};
    ck_ok(tn_experiment_read(registry, path, overrides, count, &e, &err), err);
    ck_assert_str_eq(e->file, path);
    return e;
}

static double real(const tn_instance *instance, const char *row)
{
    return *tn_instance_real(instance, tn_instance_row(instance, row));
}

START_TEST(reads_the_example)
{
    tn_experiment *e = read_example(NULL, 0);
    ck_assert_str_eq(e->name, "fashion-mlp");
    ck_assert_str_eq(e->data->info->name, "idx");
    ck_assert_int_eq(e->batch, 64);
    ck_assert_str_eq(e->model->info->name, "mlp");
    ck_assert_uint_eq(e->model->child_count, 3);
    ck_assert_str_eq(e->model->children[0]->path, "model.normalizer");
    ck_assert_str_eq(e->model->children[1]->info->name, "gelu");
    ck_assert_double_eq(real(e->model->children[2], "p"), 0.1);
    ck_assert_double_eq(real(e->loss, "smoothing"), 0.1);
    ck_assert_uint_eq(e->update_count, 3);
    ck_assert_str_eq(e->update[0]->path, "update.clip-norm");
    ck_assert_str_eq(e->update[1]->handle, "rule");
    ck_assert_str_eq(e->update[1]->path, "update.rule");
    ck_assert_double_eq(real(e->update[1], "lr"), 0.001);
    ck_assert_str_eq(e->update[2]->handle, "ema");
    ck_assert_uint_eq(e->schedule_count, 1);
    ck_assert_ptr_eq(e->schedules[0].target, e->update[1]);
    ck_assert_str_eq(e->schedules[0].row->name, "lr");
    ck_assert_double_eq(e->schedules[0].base, 0.001);
    ck_assert_uint_eq(e->schedules[0].segment_count, 2);
    ck_assert_str_eq(e->schedules[0].segments[0]->path, "schedule.rule.lr.0");
    ck_assert_str_eq(e->schedules[0].segments[1]->info->name, "cosine");
    ck_assert_str_eq(e->backend->info->name, "openblas");
    ck_assert_str_eq(e->collective->path, "parallel.collective");
    ck_assert_uint_eq(e->sink_count, 1);
    ck_assert_str_eq(e->sinks[0]->path, "sinks.jsonl");
    ck_assert_uint_eq(e->real, 32);
    ck_assert_double_eq(e->epochs, 5);
    ck_assert_int_eq(e->steps, 0);
    ck_assert_int_eq(e->accumulate, 1);
    ck_assert_uint_eq(e->seed, 1);
    ck_assert_int_eq(e->threads, 0);
    ck_assert_str_eq(e->eval_split, "test");
    ck_assert_int_eq(e->eval_batch, 256);
    ck_assert_double_eq(e->eval_every.epochs, 1);
    ck_assert_int_eq(e->eval_every.steps, 0);
    ck_assert_int_eq(e->eval_view, 1);
    tn_experiment_free(e);
    tn_experiment_free(NULL);
}
END_TEST

START_TEST(missing_sections_have_defaults)
{
    tn_experiment *e = parse(LEAST, NULL, 0);
    ck_assert_str_eq(e->name, "exp");
    ck_assert_int_eq(e->batch, 64);
    ck_assert_uint_eq(e->update_count, 1);
    ck_assert_uint_eq(e->schedule_count, 0);
    ck_assert_str_eq(e->backend->info->name, "openblas");
    ck_assert_str_eq(e->collective->info->name, "self");
    ck_assert_uint_eq(e->sink_count, 2);
    ck_assert_str_eq(e->sinks[0]->info->name, "jsonl");
    ck_assert_str_eq(e->sinks[1]->info->name, "csv");
    ck_assert_uint_eq(e->real, 32);
    ck_assert_uint_eq(e->seed, 0);
    ck_assert_int_eq(e->accumulate, 1);
    ck_assert_int_eq(e->threads, 0);
    ck_assert_ptr_null(e->eval_split);
    ck_assert_int_eq(e->master, 1);
    ck_assert_ptr_null(e->storage);
    ck_assert_ptr_null(e->state_codec);
    ck_assert_ptr_null(e->loss_scale);
    ck_assert_ptr_null(e->recompute);
    ck_assert_ptr_null(e->update[0]->on);
    ck_assert_double_eq(e->checkpoint_every.epochs, 1);
    ck_assert_int_eq(e->checkpoint_every.steps, 0);
    ck_assert_int_eq(e->checkpoint_keep, 3);
    ck_assert_int_eq(e->checkpoint_best, 1);
    ck_assert_str_eq(e->checkpoint_metric, "loss");
    ck_assert_int_eq(e->checkpoint_mode, 0);
    tn_experiment_free(e);
}
END_TEST

START_TEST(links_say_what_they_are_on)
{
    tn_experiment *e =
        parse(DATA MODEL LOSS "update: [{use: sgd, on: {role: [bias, norm]}}, {use: adamw, on: {name: h.*, "
                              "axes: [2, 4]}}]\n" TRAIN,
              NULL, 0);
    const tn_selector *sgd = e->update[0]->on, *adamw = e->update[1]->on;
    ck_assert_uint_eq(sgd->roles, 1u << TN_ROLE_BIAS | 1u << TN_ROLE_NORM);
    ck_assert_uint_eq(sgd->name_count, 0);
    ck_assert_int_eq(sgd->most_axes, 0);
    ck_assert_uint_eq(adamw->roles, 0);
    ck_assert_uint_eq(adamw->name_count, 1);
    ck_assert_str_eq(adamw->names[0], "h.*");
    ck_assert_int_eq(adamw->least_axes, 2);
    ck_assert_int_eq(adamw->most_axes, 4);
    tn_experiment_free(e);
}
END_TEST

/* What a file and an override say, as a part of the resolved text. */
static const struct {
    const char *text, *override, *resolved;
} accepted[] = {
    {LEAST, NULL, "data: {use: idx, batch: 64, set: \"fashion-mnist\""},
    {LEAST "name: no\n", NULL, "name: \"no\"\n"},
    {LEAST "name: \"\xc5\xbc\xc3\xb3\xc5\x82w \\\"x\\\"\"\n", NULL, "name: \"\xc5\xbc\xc3\xb3\xc5\x82w \\\"x\\\"\"\n"},
    {"\xef\xbb\xbf# a mark of the byte order\r\n" LEAST, NULL, "loss: {use: cross-entropy, smoothing: 0}"},
    {"---\n" LEAST "...\n", NULL, "epochs: 1,"},
    {LEAST "sinks: none\n", NULL, "sinks: none\n"},
    {LEAST "sinks: []\n", NULL, "sinks: none\n"},
    {LEAST "sinks: {use: jsonl}\n", NULL, "sinks:\n  - {use: jsonl}\n"},
    {LEAST "eval: none\n", NULL, "eval: none\n"},
    {LEAST "eval: {}\n", NULL, "eval: {split: \"test\", every: 1 epoch, batch: 0, view: eval, refresh: 0}\n"},
    {LEAST "eval: {every: 0.5 epochs, view: train}\n", NULL, "every: 0.5 epochs, batch: 0, view: train, refresh: 0}"},
    {LEAST "eval: {every: 1 step}\n", NULL, "every: 1 steps"},
    {LEAST "eval: {every: \"500  steps\"}\n", NULL, "every: 500 steps"},
    {LEAST "precision: f64\n", NULL, "precision: f64\n"},
    {LEAST "precision: {}\n", NULL, "precision: f32\n"},
    {LEAST "precision: {use: f64, storage: none, master: true}\n", NULL, "precision: f64\n"},
    {LEAST "precision: {storage: coded}\n", NULL,
     "precision: {use: f32, storage: {use: coded, block: 64}, master: true, state: none, loss_scale: none}\n"},
    {LEAST "precision: {use: f64, storage: {use: coded, block: 8}, master: false, state: coded, loss-scale: stepped}\n",
     NULL,
     "precision: {use: f64, storage: {use: coded, block: 8}, master: false, state: {use: coded, block: 64}, "
     "loss_scale: {use: stepped, growth: 2}}\n"},
    {LEAST, "precision.loss_scale=stepped",
     "precision: {use: f32, storage: none, master: true, state: none, loss_scale: {use: stepped, growth: 2}}\n"},
    {LEAST "precision: f64\n", "precision.state.use=coded",
     "precision: {use: f64, storage: none, master: true, state: "},
    {LEAST "precision: {loss_scale: stepped}\nschedule: {precision.loss_scale.growth: linear}\n", NULL,
     "schedule:\n  precision.loss_scale.growth:\n    - {use: linear"},
    {LEAST "recompute: none\n", NULL, "recompute: none\nparallel"},
    {LEAST "recompute: kept\n", NULL, "recompute: {use: kept}\n"},
    {LEAST "checkpoint: none\n", NULL, "checkpoint: none\n"},
    {LEAST "checkpoint: {}\n", NULL, "checkpoint: {every: 1 epoch, keep: 3, best: 1, metric: \"loss\", mode: min}\n"},
    {LEAST "checkpoint: {every: 20 steps, keep: 0, best: 2, metric: accuracy, mode: max}\n", NULL,
     "checkpoint: {every: 20 steps, keep: 0, best: 2, metric: \"accuracy\", mode: max}\n"},
    {LEAST, NULL, "checkpoint: {every: 1 epoch, keep: 3, best: 1, metric: \"loss\", mode: min}\n"},
    {LEAST, "checkpoint=none", "checkpoint: none\n"},
    {LEAST, "train.from=runs/a b/x.safetensors", "check_finite: true, from: \"runs/a b/x.safetensors\"}\n"},
    {LEAST, NULL, "sinks:\n  - {use: jsonl}\n  - {use: csv}\n"},
    {LEAST "eval: {refresh: 50}\n", NULL, "view: eval, refresh: 50}\n"},
    /* on: */
    {DATA MODEL LOSS "update: [sgd, {use: adamw, on: {role: bias}}]\n" TRAIN, NULL,
     "- {use: adamw, on: {role: [bias]}, lr"},
    {DATA MODEL LOSS "update: {use: sgd, on: {axes: 2, name: [\"a.?\", b*], role: [head, norm, other]}}\n" TRAIN, NULL,
     "- {use: sgd, on: {role: [other, norm, head], name: [\"a.?\", \"b*\"], axes: 2}, lr"},
    {DATA MODEL LOSS "update: {use: sgd, as: x, on: {name: h.*, axes: [0, 8]}}\n" TRAIN, NULL,
     "- {use: sgd, as: x, on: {name: [\"h.*\"], axes: [0, 8]}, lr"},
    {DATA MODEL LOSS "update: {use: sgd, on: none}\n" TRAIN, NULL, "- {use: sgd, lr"},
    {DATA MODEL LOSS "update: {use: adamw, as: x, on: {role: bias}, lr: 3}\n" TRAIN, "update.x=sgd",
     "- {use: sgd, as: x, on: {role: [bias]}, lr: 0.001"},
    {DATA MODEL LOSS "update: {use: adamw, on: {role: bias}}\n" TRAIN, "update.adamw.on.role=[norm, bias]",
     "- {use: adamw, on: {role: [bias, norm]}, lr"},
    {LEAST "backend: {use: reference}\n", NULL, "backend: {use: reference}\n"},
    {LEAST "schedule: none\n", NULL, "schedule: none\n"},
    {LEAST "schedule: {adamw.weight-decay: constant}\n", NULL,
     "schedule:\n  adamw.weight_decay:\n    - {use: constant"},
    {LEAST "schedule: {update.adamw.lr: [cosine]}\n", NULL, "schedule:\n  adamw.lr:\n    - {use: cosine"},
    {LEAST "schedule: {adamw.lr: {product: [linear, {use: cosine, end: 0.5}]}}\n", NULL,
     "schedule:\n  adamw.lr:\n    - {product: [{use: linear"},
    {LEAST
     "schedule: {adamw.lr: [{product: [linear, bare], steps: 7}, {use: linear, steps: 3}, {product: [cosine]}]}\n",
     NULL, "}], steps: 7}\n    - {use: linear"},
    {LEAST "schedule: {loss.smoothing: linear, model.regularizer.p: {use: cosine}}\n", "model.regularizer=dropout",
     "schedule:\n  loss.smoothing:\n    - {use: linear"},
    {DATA MODEL LOSS UPDATE "train: {steps: 10, seed: 9223372036854775807}\n", NULL,
     "train: {steps: 10, accumulate: 1, seed: 9223372036854775807, threads: 0, noise_scale: false, check_finite: "
     "true}"},
    {DATA "model: {use: mlp, normalizer: none, activation: gelu}\n" LOSS UPDATE TRAIN, NULL,
     "normalizer: none, activation: {use: gelu}"},
    {DATA "model: {use: mlp, activation: {}}\n" LOSS UPDATE TRAIN, NULL, "activation: {use: relu}"},
    {DATA MODEL LOSS "update: [average/twin, {use: transform/twin, as: t}]\n" TRAIN, NULL,
     "- {use: average/twin}\n  - {use: transform/twin, as: t}\n"},
    {DATA MODEL LOSS "update: [adamw, {use: adamw, as: other}]\n" TRAIN, NULL, "- {use: adamw, as: other, lr"},
    {DATA MODEL LOSS "update: {use: adamw, weight-decay: 1}\n" TRAIN, NULL, "weight_decay: 1, decay: torch}"},
    /* anchors, aliases and merge keys */
    {DATA MODEL LOSS
     "update: [{use: adamw, as: a, <<: &x {lr: 1, eps: 2}}, {<<: *x, use: adamw, as: b, eps: 3}]\n" TRAIN,
     NULL, "as: b, lr: 1, beta1: 0.9, beta2: 0.999, eps: 3"},
    {DATA MODEL LOSS "update: {<<: [{use: sgd, lr: 2}, {lr: 3, momentum: 0.5}]}\n" TRAIN, NULL,
     "{use: sgd, lr: 2, momentum: 0.5"},
    {DATA "model: {use: mlp, widths: &w [3, 4]}\n" LOSS UPDATE "train: {steps: 1}\nname: &n abc\neval: {split: *n}\n",
     NULL, "eval: {split: \"abc\""},
    /* overrides */
    {LEAST, "data.batch=32", "batch: 32"},
    {LEAST, "data.batch=0x20", "batch: 32"},
    {LEAST, "update.adamw.lr=3e-4", "lr: 0.0003"},
    {LEAST, "update.0.lr=3e-4", "lr: 0.0003"},
    {LEAST, "update.adamw.weight-decay=0", "weight_decay: 0, decay: torch}"},
    {LEAST, "+update.adamw.lr=1", "lr: 1,"},
    {LEAST, "update.adamw=sgd", "update:\n  - {use: sgd, lr"},
    {DATA MODEL LOSS "update: {use: adamw, as: rule, lr: 7}\n" TRAIN, "update.rule=sgd",
     "update:\n  - {use: sgd, as: rule, lr: 0.001,"},
    {DATA MODEL LOSS "update: {use: adamw, as: rule, lr: 7}\n" TRAIN, "update.rule={use: sgd, lr: 0.1, momentum: 0.9}",
     "update:\n  - {use: sgd, as: rule, lr: 0.1, momentum: 0.9,"},
    {DATA MODEL LOSS "update: {use: adamw, as: rule}\n" TRAIN, "update.rule={use: sgd, as: other}",
     "- {use: sgd, as: other,"},
    {LEAST, "+update={use: ema, decay: 0.5}", "weight_decay: 0.01, decay: torch}\n  - {use: ema, decay: 0.5,"},
    {LEAST, "+update=[clip-norm, ema]", "- {use: clip-norm, max_norm: 1}\n  - {use: ema"},
    {LEAST, "update=[clip-norm, sgd]", "update:\n  - {use: clip-norm, max_norm: 1}\n  - {use: sgd"},
    {LEAST, "update=sgd", "update:\n  - {use: sgd"},
    {DATA MODEL LOSS "update: [adamw, ema]\n" TRAIN, "~update.ema", "weight_decay: 0.01, decay: torch}\nschedule"},
    {DATA MODEL LOSS "update: [ema, adamw]\n" TRAIN, "~update.0", "update:\n  - {use: adamw"},
    {LEAST, "model.normalizer=batchnorm", "normalizer: {use: batchnorm, eps"},
    {LEAST, "model.normalizer={use: batchnorm, eps: 1}", "normalizer: {use: batchnorm, eps: 1,"},
    {DATA "model: {use: mlp, normalizer: {use: layernorm, eps: 1}}\n" LOSS UPDATE TRAIN, "model.normalizer=layernorm",
     "eps: 1e-05"},
    {DATA "model: {use: mlp, normalizer: {use: layernorm, eps: 1}}\n" LOSS UPDATE TRAIN, "model.normalizer=none",
     "normalizer: none"},
    {DATA "model: {use: mlp, normalizer: layernorm}\n" LOSS UPDATE TRAIN, "model.normalizer.eps=1",
     "layernorm, eps: 1,"},
    {DATA "model: {use: mlp, widths: [7]}\n" LOSS UPDATE TRAIN, "model.widths=[5, 6]", "widths: [5, 6]"},
    {DATA "model: {use: mlp, widths: [7]}\n" LOSS UPDATE TRAIN, "+model.widths=8", "widths: [7, 8]"},
    {DATA "model: {use: mlp, widths: [7]}\n" LOSS UPDATE TRAIN, "model.widths.0=8", "widths: [8]"},
    {DATA "model: {use: mlp, widths: [7]}\n" LOSS UPDATE TRAIN, "~model.widths", "widths: [256, 128]"},
    {LEAST, "backend=reference", "backend: {use: reference}"},
    {LEAST, "data={use: idx, set: x}", "batch: 64, set: \"x\""},
    {"data: {use: idx, batch: 5}\n" MODEL LOSS UPDATE TRAIN, "data=idx", "data: {use: idx, batch: 5"},
    {LEAST, "train.epochs=0.5", "epochs: 0.5"},
    {LEAST, "train.steps=7", "train: {steps: 7,"},
    {LEAST, "train={steps: 7}", "train: {steps: 7,"},
    {LEAST, "name=a=b", "name: \"a=b\""},
    {LEAST, "name='a: b'", "name: \"a: b\""},
    {LEAST, "+eval.split=valid", "eval: {split: \"valid\", every"},
    {LEAST "eval: none\n", "eval.split=valid", "eval: {split: \"valid\", every"},
    {LEAST "eval: {}\n", "~eval", "eval: none"},
    {LEAST, "parallel.collective=self", "parallel: {collective: {use: self}}"},
    {LEAST, "schedule.adamw.lr={use: cosine, end: 1e-5}", "schedule:\n  adamw.lr:\n    - {use: cosine, end: 1e-05"},
    {LEAST "schedule: {adamw.lr: [{use: linear, steps: 5}, cosine]}\n", "schedule.adamw.lr.0.steps=9", "steps: 9"},
    {LEAST "schedule: {adamw.lr: [{use: linear, steps: 5}, cosine]}\n", "schedule.adamw.lr.cosine.end=9",
     "{use: cosine, end: 9"},
    {LEAST "schedule: {adamw.lr: cosine}\n", "schedule.adamw.lr.end=9", "{use: cosine, end: 9"},
    {LEAST "schedule: {adamw.lr: cosine}\n", "~schedule", "schedule: none"},
    {LEAST "schedule: {adamw.lr: {product: [cosine]}}\n", "schedule.adamw.lr.product.cosine.end=9", "end: 9"},
    {LEAST "schedule: {adamw.lr: [{product: [cosine, linear]}]}\n", "schedule.adamw.lr.0.product.1=cosine",
     "{product: [{use: cosine"},
    {LEAST "schedule: {adamw.lr: cosine}\n", "~schedule.adamw.lr", "schedule: none"},
};

START_TEST(takes_what_the_format_allows)
{
    for (size_t i = 0; i < COUNT(accepted); i++) {
        tn_experiment *e = parse(accepted[i].text, &accepted[i].override, accepted[i].override != NULL);
        if (!strstr(e->resolved, accepted[i].resolved))
            ck_abort_msg("'%s' is not in:\n%s\nfrom: %s%s", accepted[i].resolved, e->resolved, accepted[i].text,
                         accepted[i].override ? accepted[i].override : "");
        tn_experiment_free(e);
    }
}
END_TEST

START_TEST(overrides_apply_in_order)
{
    const char *overrides[] = {"+update=ema", "update.ema.decay=0.5", "update.adamw=sgd", "update.sgd.lr=2",
                               "~update.ema", "train.steps=5",        "train.steps=6"};
    tn_experiment *e = parse(LEAST, overrides, COUNT(overrides));
    ck_assert_uint_eq(e->update_count, 1);
    ck_assert_double_eq(real(e->update[0], "lr"), 2);
    ck_assert_double_eq(e->epochs, 0);
    ck_assert_int_eq(e->steps, 6);
    tn_experiment_free(e);
    const char *both[] = {"train.steps=5", "train.epochs=6"};
    tn_error err = {0};
    ck_assert_int_eq(tn_experiment_parse(registry, "x", LEAST, strlen(LEAST), both, 2, &e, &err), TN_E_INVALID);
    ck_assert_ptr_nonnull(strstr(err.msg, "not both"));
}
END_TEST

/* ---- the page ---- */

static char *read_page(void)
{
    char *page = tn_alloc(1 << 16, 1);
    FILE *file = fopen(test_path("TENON_TEST_DOCS", "experiment.md"), "r");
    ck_assert_ptr_nonnull(file);
    size_t size = fread(page, 1, (1 << 16) - 1, file);
    ck_assert_uint_gt(size, 1000);
    ck_assert_uint_lt(size, (1 << 16) - 1);
    fclose(file);
    return page;
}

/* The next block of that language from `*at` on, cut out; NULL after the last. */
static char *next_block(char **at, const char *fence)
{
    char *start = strstr(*at, fence);
    if (!start)
        return NULL;
    start += strlen(fence);
    char *end = strstr(start, "\n```");
    ck_assert_ptr_nonnull(end);
    *at = end + 4;
    return tn_strndup(start, (size_t)(end + 1 - start));
}

/* Sections that a block leaves out come from LEAST. */
START_TEST(the_examples_of_the_page_work)
{
    static const char *const lines[] = {DATA, MODEL, LOSS, UPDATE, TRAIN};
    char *page = read_page(), *at = page, *block;
    int blocks = 0;
    for (; (block = next_block(&at, "```yaml\n")); blocks++) {
        tn_text text = {0};
        tn_text_add(&text, block);
        for (size_t i = 0; i < COUNT(lines); i++) {
            char key[16] = "\n";
            strncat(key, lines[i], strcspn(lines[i], ":") + 1);
            if (strncmp(block, key + 1, strlen(key + 1)) != 0 && !strstr(block, key))
                tn_text_add(&text, lines[i]);
        }
        tn_experiment_free(parse(tn_text_string(&text), NULL, 0));
        tn_text_free(&text);
        tn_free(block);
    }
    ck_assert_int_ge(blocks, 8);
    tn_free(page);
}
END_TEST

START_TEST(the_overrides_of_the_page_work)
{
    char *page = read_page(), *at = page, *left = NULL;
    char *example = next_block(&at, "```yaml\n"), *list = next_block(&at, "```overrides\n");
    tn_experiment *plain = read_example(NULL, 0), *printed = parse(example, NULL, 0);
    int count = 0;
    ck_assert_str_eq(printed->resolved, plain->resolved);
    for (char *line = strtok_r(list, "\n", &left); line; line = strtok_r(NULL, "\n", &left), count++) {
        char *end = strstr(line, "   ");
        if (end)
            *end = 0;
        tn_experiment *e = parse(example, (const char *const *)&line, 1);
        ck_assert_str_ne(e->resolved, plain->resolved);
        tn_experiment_free(e);
    }
    ck_assert_int_eq(count, 14);
    tn_experiment_free(printed);
    tn_experiment_free(plain);
    tn_free(example);
    tn_free(list);
    tn_free(page);
}
END_TEST

/* ---- the resolved text ---- */

/* Rows hold the same: all bytes but pointers, which are followed. */
static void check_same(const tn_instance *a, const tn_instance *b)
{
    ck_assert_str_eq(a->path, b->path);
    ck_assert_str_eq(a->handle, b->handle);
    ck_assert_ptr_eq(a->info, b->info);
    for (size_t i = 0; i < a->info->row_count; i++) {
        const tn_row *row = &a->info->rows[i];
        const char *va = (const char *)a->hyper + row->offset, *vb = (const char *)b->hyper + row->offset;
        if (row->type == TN_TYPE_TEXT) {
            ck_assert_str_eq(*(char *const *)va, *(char *const *)vb);
        } else if (row->type == TN_TYPE_INTEGERS) {
            const tn_integers *la = (const tn_integers *)va, *lb = (const tn_integers *)vb;
            ck_assert_int_eq(la->count, lb->count);
            if (la->count)
                ck_assert_mem_eq(la->values, lb->values, (size_t)la->count * sizeof *la->values);
        } else {
            ck_assert_mem_eq(va, vb, row->size);
        }
    }
    ck_assert_uint_eq(a->child_count, b->child_count);
    for (size_t i = 0; i < a->child_count; i++)
        check_same(a->children[i], b->children[i]);
    ck_assert_int_eq(!a->on, !b->on);
    if (!a->on)
        return;
    ck_assert_uint_eq(a->on->roles, b->on->roles);
    ck_assert_int_eq(a->on->least_axes, b->on->least_axes);
    ck_assert_int_eq(a->on->most_axes, b->on->most_axes);
    ck_assert_uint_eq(a->on->name_count, b->on->name_count);
    for (size_t i = 0; i < a->on->name_count; i++)
        ck_assert_str_eq(a->on->names[i], b->on->names[i]);
}

static void check_same_or_none(const tn_instance *a, const tn_instance *b)
{
    ck_assert_int_eq(!a, !b);
    if (a)
        check_same(a, b);
}

static void check_round_trip(const tn_experiment *e)
{
    tn_experiment *again = parse(e->resolved, NULL, 0);
    ck_assert_str_eq(again->resolved, e->resolved);
    ck_assert_str_eq(again->name, e->name);
    check_same(again->data, e->data);
    check_same(again->model, e->model);
    check_same(again->loss, e->loss);
    check_same(again->backend, e->backend);
    check_same(again->collective, e->collective);
    ck_assert_uint_eq(again->update_count, e->update_count);
    for (size_t i = 0; i < e->update_count; i++)
        check_same(again->update[i], e->update[i]);
    ck_assert_uint_eq(again->sink_count, e->sink_count);
    ck_assert_uint_eq(again->schedule_count, e->schedule_count);
    for (size_t i = 0; i < e->schedule_count; i++) {
        ck_assert_uint_eq(again->schedules[i].segment_count, e->schedules[i].segment_count);
        ck_assert_str_eq(again->schedules[i].target->path, e->schedules[i].target->path);
        ck_assert_ptr_eq(again->schedules[i].row, e->schedules[i].row);
        for (size_t k = 0; k < e->schedules[i].segment_count; k++) {
            check_same(again->schedules[i].segments[k], e->schedules[i].segments[k]);
            ck_assert_int_eq(again->schedules[i].lengths[k].factor, e->schedules[i].lengths[k].factor);
            ck_assert_int_eq(again->schedules[i].lengths[k].steps, e->schedules[i].lengths[k].steps);
        }
    }
    ck_assert_mem_eq(&again->epochs, &e->epochs, sizeof e->epochs);
    ck_assert_int_eq(again->steps, e->steps);
    ck_assert_uint_eq(again->seed, e->seed);
    ck_assert_mem_eq(&again->eval_every, &e->eval_every, sizeof e->eval_every);
    ck_assert_int_eq(again->eval_batch, e->eval_batch);
    ck_assert_int_eq(again->eval_view, e->eval_view);
    ck_assert_int_eq(again->eval_refresh, e->eval_refresh);
    ck_assert_mem_eq(&again->checkpoint_every, &e->checkpoint_every, sizeof e->checkpoint_every);
    ck_assert_int_eq(again->checkpoint_keep, e->checkpoint_keep);
    ck_assert_int_eq(again->checkpoint_best, e->checkpoint_best);
    ck_assert_pstr_eq(again->checkpoint_metric, e->checkpoint_metric);
    ck_assert_int_eq(again->checkpoint_mode, e->checkpoint_mode);
    ck_assert_uint_eq(again->real, e->real);
    ck_assert_int_eq(again->master, e->master);
    check_same_or_none(again->storage, e->storage);
    check_same_or_none(again->state_codec, e->state_codec);
    check_same_or_none(again->loss_scale, e->loss_scale);
    check_same_or_none(again->recompute, e->recompute);
    tn_experiment_free(again);
}

START_TEST(the_resolved_text_reads_back)
{
    for (size_t i = 0; i < COUNT(accepted); i++) {
        tn_experiment *e = parse(accepted[i].text, &accepted[i].override, accepted[i].override != NULL);
        check_round_trip(e);
        tn_experiment_free(e);
    }
    tn_experiment *e = read_example(NULL, 0);
    check_round_trip(e);
    tn_experiment_free(e);
}
END_TEST

START_TEST(hard_values_read_back)
{
    const char *link =
        "update.rows={use: rows, step: 0.1000000000000000055511151231257827, any_real: nan, unit: 5e-324, "
        "large: -9223372036854775808, mode: fan-in, label: \"\\x01 \\t\\n\\\\ \\x7f \\u0085 \\u2028 \\ufeff "
        "\\U0001F600 # : {\", sizes: [], empty: [1, -1], first: none, second: dropout, third: none}";
    const char *overrides[] = {"update=rows",
                               link,
                               "update.rows.any_real=-0",
                               "name=\"~\"",
                               "eval={split: \"a: b\", every: 1e-3 epochs}",
                               "train.epochs=1e300"};
    tn_experiment *e = parse(LEAST, overrides, COUNT(overrides));
    ck_assert_double_eq(real(e->update[0], "unit"), 5e-324);
    ck_assert(signbit(real(e->update[0], "any_real")));
    check_round_trip(e);
    tn_experiment_free(e);
    overrides[2] = "update.rows.any_real=inf";
    e = parse(LEAST, overrides, COUNT(overrides));
    check_round_trip(e);
    tn_experiment_free(e);
}
END_TEST

/* ---- refusals ---- */

START_TEST(refuses_with_the_place_and_a_remedy)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {DATA MODEL LOSS "update:\n  - {use: adamw, learning_rte: 0.5}\n" TRAIN,
         "exp.yaml:5:18: unknown key 'learning_rte' of optimizer 'adamw'; known: use, as, on, lr, beta1, beta2, eps, "
         "weight_decay, decay\n"
         "    - {use: adamw, learning_rte: 0.5}\n                   ^"},
        {DATA MODEL LOSS "update: {use: adamw, weight_decai: 0.5}\n" TRAIN,
         "exp.yaml:4:22: unknown key 'weight_decai' of optimizer 'adamw'; did you mean 'weight_decay'?"},
        {DATA MODEL LOSS "update: {use: adamw, momentum: 0.5}\n" TRAIN, "unknown key 'momentum' of optimizer 'adamw'"},
        {LEAST "trian: 1\n", "exp.yaml:6:1: unknown key 'trian' of the experiment; did you mean 'train'?"},
        {LEAST "lr: 1\n", "exp.yaml:6:1: unknown key 'lr' of the experiment"},
        {DATA MODEL LOSS UPDATE "train: {epochs: 1, lr: 1}\n",
         "exp.yaml:5:20: unknown key 'lr' of train; known: epochs, steps, accumulate, seed, threads"},
        {DATA MODEL LOSS "update: {use: adamw, lr: 1, beta1: 0, lr: 2}\n" TRAIN,
         "exp.yaml:4:39: 'lr' is given twice, first in line 4"},
        {DATA MODEL LOSS "update: {use: adamw, weight-decay: 1, weight_decay: 2}\n" TRAIN,
         "'weight_decay' is given twice"},
        {LEAST "model: mlp\n", "exp.yaml:6:1: 'model' is given twice, first in line 2"},
        {MODEL LOSS UPDATE TRAIN, "exp.yaml: there is no section 'data'"},
        {DATA LOSS UPDATE TRAIN, "no section 'model'"},
        {DATA MODEL UPDATE TRAIN, "no section 'loss'"},
        {DATA MODEL LOSS TRAIN, "no section 'update'"},
        {DATA MODEL LOSS UPDATE, "no section 'train'"},
        {"", "an experiment is a mapping with the sections data, model, loss, update and train; found nothing"},
        {"# only words\n", "found nothing"},
        {"[a]\n", "found a list"},
        {"abc", "found 'abc'"},
        {DATA MODEL LOSS UPDATE "train: {seed: 1}\n", "exp.yaml:5:8: train needs 'epochs' or 'steps'"},
        {DATA MODEL LOSS UPDATE "train: {epochs: 1, steps: 1}\n",
         "exp.yaml:5:20: train takes 'epochs' or 'steps', not both"},
        {DATA MODEL LOSS UPDATE "train: 5\n", "train takes a mapping; found '5'"},
        {DATA MODEL LOSS UPDATE "train: {epochs: inf}\n",
         "'epochs' of train (real) takes a number in (0, inf); found 'inf'"},
        {DATA MODEL LOSS UPDATE "train: {epochs: 0}\n", "found '0'"},
        {DATA MODEL LOSS UPDATE "train: {steps: 1.5}\n",
         "'steps' of train (integer) takes an integer in [1, inf); found '1.5'"},
        {DATA MODEL LOSS UPDATE "train: {epochs: 1, threads: 1025}\n", "takes an integer in [0, 1024]"},
        {DATA MODEL LOSS UPDATE "train: {epochs: 1, seed: -1}\n", "found '-1'"},
        {DATA MODEL LOSS UPDATE "train: {epochs: \"1\"}\n", "found the text \"1\"; remove the quotes"},
        {DATA MODEL "loss: adamw\n" UPDATE TRAIN,
         "exp.yaml:3:7: 'adamw' is a component of kind optimizer, not loss; known: cross-entropy"},
        {DATA MODEL "loss: cross-entopy\n" UPDATE TRAIN,
         "no loss is called 'cross-entopy'; did you mean 'cross-entropy'?"},
        {DATA MODEL "loss: {smoothing: 0.1}\n" UPDATE TRAIN, "exp.yaml:3:7: needs 'use:' with the name of a loss"},
        {DATA MODEL "loss:\n" UPDATE TRAIN, "needs the name of a loss, or a mapping with 'use:'; found nothing"},
        {DATA MODEL "loss: [cross-entropy]\n" UPDATE TRAIN, "found a list"},
        {DATA MODEL "loss: none\n" UPDATE TRAIN, "no loss is called 'none'"},
        {DATA MODEL "loss: {use: cross-entropy, as: x}\n" UPDATE TRAIN, "unknown key 'as' of loss"},
        {DATA MODEL LOSS "update: relu\n" TRAIN,
         "'relu' is a component of kind activation, not optimizer, transform, average or wrapper"},
        {DATA MODEL LOSS "update: twin\n" TRAIN,
         "'twin' is both transform and average; write transform/twin or average/twin"},
        {DATA MODEL LOSS "update: optimizer/ema\n" TRAIN,
         "no optimizer, transform, average or wrapper is called 'optimizer/ema'"},
        {DATA MODEL LOSS "update: []\n" TRAIN, "update needs a link"},
        {DATA MODEL LOSS "update: none\n" TRAIN, "update needs a link"},
        {DATA MODEL LOSS "update: [adamw, adamw]\n" TRAIN,
         "exp.yaml:4:17: two links are called 'adamw'; give one another name with 'as:'"},
        {DATA MODEL LOSS "update: [adamw, {use: sgd, as: adamw}]\n" TRAIN,
         "exp.yaml:4:32: two links are called 'adamw'"},
        {DATA MODEL LOSS "update: {use: sgd, as: a.b}\n" TRAIN, "'a.b' can not name a link"},
        {DATA MODEL LOSS "update: {use: sgd, as: 12}\n" TRAIN, "not digits alone"},
        {DATA MODEL LOSS "update: {use: sgd, as: [x]}\n" TRAIN, "'as' takes a name"},
        {DATA MODEL LOSS "update: {use: sgd, as: loss}\n" TRAIN, "'loss' is a section"},
        {"data: greedy\n" MODEL LOSS UPDATE TRAIN, "declares a row 'batch', which is a key of the experiment itself"},
        {"data: {use: idx, batch: 0}\n" MODEL LOSS UPDATE TRAIN,
         "'batch' of data (integer) takes an integer in [1, 2147483647]; found '0'"},
        {DATA "model: endless\n" LOSS UPDATE TRAIN, "more than 16 components within one another"},
        {DATA "model: {use: mlp, widths: [1, 0]}\n" LOSS UPDATE TRAIN,
         "exp.yaml:2:31: 'widths' of model 'mlp' (integers) takes a list of integers, each in [1, inf); found '0'"},
        {DATA "model: {use: mlp, activation: {use: gelu, p: 1}}\n" LOSS UPDATE TRAIN,
         "unknown key 'p' of activation 'gelu'"},
        {LEAST "precision: fp32\n", "'precision' (choice) takes one of f32 | f64; found 'fp32'; did you mean 'f32'?"},
        {LEAST "precision: {use: fp32}\n",
         "'use' of precision (choice) takes one of f32 | f64; found 'fp32'; did you mean 'f32'?"},
        {LEAST "precision: {storrage: coded}\n",
         "exp.yaml:6:13: unknown key 'storrage' of precision; did you mean 'storage'?"},
        {LEAST "precision: {storage: stepped}\n",
         "exp.yaml:6:22: 'stepped' is a component of kind loss-scale, not codec; known: "},
        {LEAST "precision: {storage: {block: 1}}\n", "needs 'use:' with the name of a codec"},
        {LEAST "precision: {state: {use: coded, block: 0}}\n", "'block' of codec 'coded' (integer)"},
        {LEAST "precision: {loss_scale: coded}\n", "is a component of kind codec, not loss-scale"},
        {LEAST "precision: {master: false}\n",
         "exp.yaml:6:21: 'master' of precision is false, so 'storage' must name what parameters are kept in"},
        {LEAST "precision: [f32]\n", "'precision' (choice) takes one of f32 | f64; found a list"},
        {LEAST "recompute: kep\n", "exp.yaml:6:12: no recompute is called 'kep'; did you mean 'kept'?"},
        {LEAST "checkpoint: 1 epoch\n", "checkpoint takes a mapping; found '1 epoch'"},
        {LEAST "checkpoint: {evry: 1 epoch}\n", "unknown key 'evry' of checkpoint; did you mean 'every'?"},
        {LEAST "checkpoint: {keep: -1}\n", "'keep' of checkpoint (integer) takes an integer in [0, inf); found '-1'"},
        {LEAST "checkpoint: {mode: less}\n", "'mode' of checkpoint (choice) takes one of min | max; found 'less'"},
        {LEAST "checkpoint: {every: 2 weeks}\n",
         "exp.yaml:6:21: 'every' of checkpoint takes a period such as '1 epoch', '0.5 epochs' or '500 steps'; found"},
        {LEAST "eval: {refresh: -1}\n", "'refresh' of eval (integer) takes an integer in [0, 2147483647]; found '-1'"},
        {LEAST "eval: {view: train, refresh: 5}\n", "exp.yaml:6:30: 'refresh' of eval is for the view 'eval'"},
        {DATA MODEL LOSS "update: {use: sgd, on: {rolle: bias}}\n" TRAIN,
         "exp.yaml:4:25: unknown key 'rolle' of on; did you mean 'role'?"},
        {DATA MODEL LOSS "update: {use: sgd, on: {role: [bias, gain]}}\n" TRAIN,
         "exp.yaml:4:38: on: no parameter has the role 'gain'; known: other, weight, bias, norm, embedding, head"},
        {DATA MODEL LOSS "update: {use: sgd, on: {role: biass}}\n" TRAIN, "did you mean 'bias'?"},
        {DATA MODEL LOSS "update: {use: sgd, on: {role: []}}\n" TRAIN, "'role' of on takes a role or a list of roles"},
        {DATA MODEL LOSS "update: {use: sgd, on: {role: {a: b}}}\n" TRAIN, "found a mapping"},
        {DATA MODEL LOSS "update: {use: sgd, on: {name: []}}\n" TRAIN, "'name' of on takes a parameter's name"},
        {DATA MODEL LOSS "update: {use: sgd, on: {name: [a, \"\"]}}\n" TRAIN,
         "exp.yaml:4:36: 'name' of on takes names"},
        {DATA MODEL LOSS "update: {use: sgd, on: {name: [[a]]}}\n" TRAIN, "found a list"},
        {DATA MODEL LOSS "update: {use: sgd, on: {axes: 0}}\n" TRAIN,
         "'axes' of on takes how many axes a parameter has, 1 to 8, or [least, most]; found '0'"},
        {DATA MODEL LOSS "update: {use: sgd, on: {axes: 9}}\n" TRAIN, "'axes' of on"},
        {DATA MODEL LOSS "update: {use: sgd, on: {axes: [3, 2]}}\n" TRAIN, "'axes' of on"},
        {DATA MODEL LOSS "update: {use: sgd, on: {axes: [-1, 2]}}\n" TRAIN, "'axes' of on"},
        {DATA MODEL LOSS "update: {use: sgd, on: {axes: [1, 2, 3]}}\n" TRAIN, "'axes' of on"},
        {DATA MODEL LOSS "update: {use: sgd, on: {axes: two}}\n" TRAIN, "'axes' of on"},
        {DATA MODEL LOSS "update: {use: sgd, on: {}}\n" TRAIN, "found an empty one"},
        {DATA MODEL LOSS "update: {use: sgd, on: bias}\n" TRAIN,
         "exp.yaml:4:24: on takes a mapping with role, name or axes, such as {role: [norm, bias]}; found 'bias'"},
        {DATA MODEL LOSS "update: {use: sgd, as: checkpoint}\n" TRAIN, "'checkpoint' is a section"},
        {LEAST "name: a/b\n", "without '/'"},
        {LEAST "name: .a\n", "not beginning with '.'"},
        {LEAST "name: \"\"\n", "1 to 100 bytes"},
        {LEAST "name: [a]\n", "'name' (text) takes text; found a list"},
        {LEAST "parallel: self\n", "parallel takes a mapping; found 'self'"},
        {LEAST "parallel: {mesh: 1}\n", "unknown key 'mesh' of parallel; known: collective"},
        {LEAST "sinks: [jsonl, jsonl]\n", "the sink 'jsonl' is given twice"},
        {LEAST "sinks: [[jsonl]]\n", "needs the name of a sink"},
        {LEAST "eval: test\n", "eval takes a mapping; found 'test'"},
        {LEAST "eval: {every: 1}\n",
         "exp.yaml:6:15: 'every' of eval takes a period such as '1 epoch', '0.5 epochs' or '500 steps'; found '1'"},
        {LEAST "eval: {every: 0 steps}\n", "a period"},
        {LEAST "eval: {every: -1 epochs}\n", "a period"},
        {LEAST "eval: {every: inf epochs}\n", "a period"},
        {LEAST "eval: {every: 1.5 steps}\n", "a period"},
        {LEAST "eval: {every: steps}\n", "a period"},
        {LEAST "eval: {every: 3 days}\n", "a period"},
        {LEAST "eval: {every: 1 epoch 2}\n", "a period"},
        {LEAST "eval: {view: best}\n", "one of train | eval"},
        {LEAST "schedule: [cosine]\n", "schedule takes a mapping of HANDLE.ROW to schedulers; found a list"},
        {LEAST "schedule: {lr: cosine}\n", "exp.yaml:6:12: schedule: needed HANDLE.ROW, such as adamw.lr; found 'lr'"},
        {LEAST "schedule: {adamw.: cosine}\n", "needed HANDLE.ROW"},
        {LEAST "schedule: {.lr: cosine}\n", "needed HANDLE.ROW"},
        {LEAST "schedule: {adam.lr: cosine}\n", "schedule: nothing is called 'adam'; did you mean 'adamw'?"},
        {LEAST "schedule: {adamw.rl: cosine}\n", "schedule: optimizer 'adamw' has no row 'rl'"},
        {LEAST "schedule: {model.widths: cosine}\n",
         "'widths' of model 'mlp' is integers and stays as it is; only real rows change"},
        {LEAST "schedule: {adamw.lr: cosine, update.adamw.lr: cosine}\n", "is scheduled twice"},
        {LEAST "schedule: {adamw.lr: []}\n", "'adamw.lr' needs a scheduler"},
        {LEAST "schedule: {adamw.lr: [cosine, linear]}\n",
         "scheduler 'cosine' needs 'steps' > 0, since another follows"},
        {LEAST "schedule: {adamw.lr: [bare, cosine]}\n",
         "scheduler 'bare' has no row 'steps', so it can only be the last"},
        {LEAST "schedule: {adamw.lr: {product: cosine}}\n", "a product takes a list of schedulers; found 'cosine'"},
        {LEAST "schedule: {adamw.lr: [{product: []}]}\n", "a product takes a list of schedulers; found"},
        {LEAST "schedule: {adamw.lr: {product: [cosine], step: 3}}\n",
         "exp.yaml:6:42: unknown key 'step' of a product; did you mean 'steps'?"},
        {LEAST "schedule: {adamw.lr: {product: [cosine], steps: -3}}\n",
         "'steps' of a product (integer) takes an integer in [0, inf); found '-3'"},
        {LEAST "schedule: {adamw.lr: [{product: [{use: linear, steps: 4}]}, cosine]}\n",
         "exp.yaml:6:23: schedule: a product needs 'steps' > 0, since another scheduler follows"},
        {LEAST "schedule: {adamw.lr: {product: [cosine, {product: [cosine]}]}}\n",
         "exp.yaml:6:41: schedule: a factor is a scheduler, not a product; write all factors in one list"},
        {LEAST "schedule: {adamw.lr: cosin}\n", "no scheduler is called 'cosin'; did you mean 'cosine'?"},
        {LEAST "schedule: {adamw.lr: [{use: linear, steps: 5}, 0.1]}\n", "no scheduler is called '0.1'"},
        /* YAML */
        {DATA "model: {use: mlp\n" LOSS UPDATE TRAIN, "not valid YAML: "},
        {LEAST "name: \"x\n", "exp.yaml:6:8: not valid YAML: double-quoted scalar without closing quote"},
        {LEAST "\tname: x\n", "not valid YAML"},
        {LEAST "---\n" LEAST, "a second document"},
        {LEAST "name: !!str x\n", "exp.yaml:6:13: tags (!...) mean nothing here"},
        {LEAST "? [a]\n: b\n", "a key must be a name"},
        {LEAST "? \n: b\n", "a key must be a name"},
        {"%YAML 9.1\n---\n" LEAST, "not valid YAML 1.2"},
        {LEAST "name: *x\n", "exp.yaml:6:8: the alias *x has no anchor before it"},
        {LEAST "name: &x [*x]\n", "the alias *x is within what it names"},
        {LEAST "schedule: &x\n  <<: *x\n", "the alias *x is within what it names"},
        {LEAST "schedule:\n  <<: 1\n  <<: 2\n", "'<<' is given twice"},
        {LEAST "<<: 1\n", "<< takes a mapping or a list of mappings"},
        {LEAST "<<: [1]\n", "<< takes a mapping"},
        {LEAST "name: \"a\\0b\"\n", "NUL"},
        {LEAST "name: \xff\n", "exp.yaml:6:7: 0xFF is not UTF-8"},
        {LEAST "name: \xc3", "0xC3 is not UTF-8"},
        {LEAST "# \xed\xa0\x80\n", "0xED is not UTF-8"},
        {LEAST "# \xc0\x80\n", "not UTF-8"},
        {LEAST "# \xf4\x90\x80\x80\n", "not UTF-8"},
        {"\x7f"
         "ELF\x01\x02",
         "0x01 is a control character"},
        {LEAST "name: a\x1b[0m\n", "control character"},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        check_refused(cases[i].text, NULL, cases[i].message);
    check_refused(LEAST, "+sinks={use: jsonl}", "the sink 'jsonl' is given twice");
}
END_TEST

START_TEST(refused_overrides_name_themselves)
{
    static const struct {
        const char *override, *message;
    } cases[] = {
        {"update.adamw.learning_rte=0.5",
         "override 'update.adamw.learning_rte=0.5': unknown key 'learning_rte' of optimizer 'adamw'"},
        {"+update.adamw.weight_decai=0.5", "did you mean 'weight_decay'?"},
        {"update.adam.lr=1", "override 'update.adam.lr=1': 'adam' is not there; a list's elements go by name or by "
                             "index; did you mean 'adamw'?"},
        {"update.1.lr=1", "'1' is not there"},
        {"modle=mlp", "unknown key 'modle' of the experiment; did you mean 'model'?"},
        {"model=mpl", "override 'model=mpl': no model is called 'mpl'; did you mean 'mlp'?"},
        {"model.normalizer=gelu", "'gelu' is a component of kind activation, not normalizer"},
        {"update.adamw.lr=\"1e-3\"",
         "'lr' of optimizer 'adamw' (real) takes a number in [0, inf); found the text \"1e-3\""},
        {"update.adamw.lr=", "found nothing"},
        {"update.adamw.lr=[", "override 'update.adamw.lr=[': not valid YAML"},
        {"update.adamw.lr=1 2", "found '1 2'"},
        {"update.adamw.lr={a: 1}", "found a mapping"},
        {"~nothing", "override '~nothing': 'nothing' is not there"},
        {"~update.ema", "'ema' is not there"},
        {"~update.adamw.lr", "'lr' is not there"},
        {"~data.batch", "'batch' is not there"},
        {"~loss", "no section 'loss'"},
        {"~update.0", "needs a link"},
        {"~data=idx", "needed key=value, +key=value or ~key"},
        {"data", "needed key=value"},
        {"", "needed key=value"},
        {"=1", "needed key=value"},
        {"+=1", "needed key=value"},
        {"~", "needed key=value"},
        {"+", "needed key=value"},
        {"a..b=1", "needed key=value"},
        {".a=1", "needed key=value"},
        {"a.=1", "needed key=value"},
        {"train.epochs.x=3",
         "override 'train.epochs.x=3': 'epochs' of train (real) takes a number in (0, inf); found a mapping"},
        {"schedule.adam.lr=cosine", "override 'schedule.adam.lr=cosine': schedule: nothing is called 'adam'"},
        {"schedule.adamw.lr=[cosine, linear]", "needs 'steps' > 0"},
        {"update={a: 1, a: 2}", "'a' is given twice"},
        {"name=\xff", "0xFF is not UTF-8"},
        {"+update=adamw", "two links are called 'adamw'"},
        {"update.adamw=x", "override 'update.adamw=x': no optimizer"},
        {"data=~", "no data is called '~'"},
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        check_refused(LEAST, cases[i].override, cases[i].message);
}
END_TEST

START_TEST(long_lines_keep_the_essential_part)
{
    tn_text text = {0};
    tn_text_add(&text, LEAST "name: {");
    for (int i = 0; i < 200; i++)
        tn_text_addf(&text, "\xc5\xbc%d: 1, ", i);
    tn_text_add(&text, "*alias}\n");
    check_refused(tn_text_string(&text), NULL, ": the alias *alias has no anchor before it\n  ...");
    tn_experiment *e;
    tn_error err = {0};
    char file[3000], *caret;
    memset(file, 'd', sizeof file - 1);
    strcpy(file + sizeof file - 10, "/exp.yaml");
    ck_assert_int_ne(tn_experiment_parse(registry, file, text.data, text.size, NULL, 0, &e, &err), TN_OK);
    ck_assert_mem_eq(err.msg, "...dddd", 7);
    ck_assert_ptr_nonnull(strstr(err.msg, "/exp.yaml:6:"));
    ck_assert_ptr_nonnull(strstr(err.msg, "the alias *alias has no anchor"));
    /* the caret stands below the character */
    caret = strrchr(err.msg, '\n') + 1;
    char *line = caret - 2;
    while (line[-1] != '\n')
        line--;
    size_t columns = 0;
    for (char *c = line; *c != '*'; c++)
        columns += (*c & 0xC0) != 0x80;
    ck_assert_uint_eq(strlen(caret), columns + 1 + (caret[columns] != '^'));
    tn_text_free(&text);
    /* a long value and a long override are cut too */
    tn_text_add(&text, "update.adamw.lr=");
    for (int i = 0; i < 4000; i++)
        tn_text_add(&text, "\xc5\xbc");
    check_refused(LEAST, tn_text_string(&text),
                  "...: 'lr' of optimizer 'adamw' (real) takes a number in [0, inf); found '");
    tn_text_free(&text);
}
END_TEST

/* ---- hostile files ---- */

/* `part` is a format that may use its number (%1$d) and the one before (%2$d). */
static void check_repeated(const char *part, int times, const char *message)
{
    tn_text text = {0};
    tn_text_add(&text, LEAST);
    for (int i = 0; i < times; i++)
        tn_text_addf(&text, part, i, i - 1);
    check_refused(tn_text_string(&text), NULL, message);
    tn_text_free(&text);
}

#pragma GCC diagnostic ignored "-Wformat-extra-args"
START_TEST(hostile_files_end_soon)
{
    check_repeated("[", 100000, "exp.yaml:");
    check_repeated("{a: ", 100000, "exp.yaml:");
    check_repeated("? ", 100000, "levels deep");
    check_repeated("x: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: "
                   "{a: {a: {a: {a: "
                   "{a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: "
                   "{a: {a: {a: {a: "
                   "{a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: {a: ",
                   1, "more than 64 levels deep");
    check_repeated("k%1$d: 1\n", 100000, "more than 256 keys in one mapping");
    check_repeated("- %1$d\n", 100000, "exp.yaml:");
    check_repeated("%1$d: &a%1$d x\n", 200, "unknown key '0'");
    check_repeated("%1$d: [&a%1$d x, &b%1$d x]\n", 200, "more than 256 anchors");
    check_repeated("%1$d: &a%1$d [x, x, x, x]\na%1$d: &a%1$d [*a%1$d]\n", 1, "is within what it names");
    check_repeated("%1$d: &a%1$d [*a%2$d, *a%2$d, *a%2$d, *a%2$d]\n", 1, "the alias *a-1 has no anchor");
    check_repeated("? &a-1 x\n: 1\n%1$d: &a%1$d [*a%2$d, *a%2$d, *a%2$d, *a%2$d]\n", 1, "unknown key");
}
END_TEST

START_TEST(aliases_do_not_multiply)
{
    tn_text text = {0};
    tn_text_add(&text, LEAST "a: &a0 [x, x]\n");
    for (int i = 1; i < 100; i++)
        tn_text_addf(&text, "a%d: &a%d [*a%d, *a%d, *a%d, *a%d]\n", i, i, i - 1, i - 1, i - 1, i - 1);
    check_refused(tn_text_string(&text), NULL, "more than 65536 values; aliases count each time");
    tn_text_free(&text);
    tn_text_add(&text, LEAST "a: &a0 [x]\n");
    for (int i = 1; i < 100; i++)
        tn_text_addf(&text, "a%d: &a%d [*a%d]\n", i, i, i - 1);
    check_refused(tn_text_string(&text), NULL, "more than 64 levels deep");
    tn_text_free(&text);
    tn_text_add(&text, LEAST "x: [");
    for (int i = 0; i < 100000; i++)
        tn_text_add(&text, "1,");
    tn_text_add(&text, "]\n");
    check_refused(tn_text_string(&text), NULL, "more than 65536 values");
    tn_text_free(&text);
    tn_text_add(&text, LEAST);
    for (int k = 0; k < 3; k++) {
        tn_text_addf(&text, "x%d: &x%d {", k, k);
        for (int i = 0; i < 200; i++)
            tn_text_addf(&text, "k%d-%d: 1, ", k, i);
        tn_text_add(&text, "}\n");
    }
    tn_text_add(&text, "y: {<<: [*x0, *x1, *x2]}\n");
    check_refused(tn_text_string(&text), NULL, "more than 256 keys in one mapping");
    tn_text_free(&text);
}
END_TEST

/* ---- files ---- */

static void set_up_files(void)
{
    set_up();
    make_directory();
}

static void tear_down_files(void)
{
    remove_directory();
    tear_down();
}

static void check_file(const char *path, int32_t code, const char *message)
{
    tn_experiment *e = NULL;
    tn_error err = {0};
    ck_assert_int_eq(tn_experiment_read(registry, path, NULL, 0, &e, &err), code);
    if (!strstr(err.msg, message))
        ck_abort_msg("'%s' is not: %s", err.msg, message);
    ck_assert_ptr_null(e);
}

START_TEST(refuses_what_is_no_file)
{
    const char *path = in_test("fifo");
    check_file("/nonexistent/a.yaml", TN_E_NOT_FOUND, "/nonexistent/a.yaml: can not open: No such file or directory");
    check_file(test_directory, TN_E_INVALID, "a directory; needed a regular file");
    check_file("/dev/zero", TN_E_INVALID, "/dev/zero: a device, FIFO or socket; needed a regular file");
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    check_file(path, TN_E_INVALID, "a device, FIFO or socket");
    path = in_test("secret.yaml");
    write_text(path, LEAST);
    ck_assert_int_eq(chmod(path, 0), 0);
    if (geteuid() != 0)
        check_file(path, TN_E_IO, "can not open: Permission denied");
    path = in_test("loop");
    ck_assert_int_eq(symlink("loop", path), 0);
    check_file(path, TN_E_IO, "can not open: Too many levels of symbolic links");
}
END_TEST

START_TEST(the_size_has_a_limit)
{
    const char *path = in_test("large.yaml");
    size_t size = TN_EXPERIMENT_MAX + 1;
    char *text = tn_alloc(size, 1);
    ck_assert_ptr_nonnull(text);
    memcpy(text, LEAST, strlen(LEAST));
    memset(text + strlen(LEAST), '\n', size - strlen(LEAST));
    write_bytes(path, text, size);
    check_file(path, TN_E_INVALID, "large.yaml: 1048577 bytes; at most 1048576 are read");
    write_bytes(path, text, size - 1);
    tn_experiment *e;
    tn_error err = {0};
    ck_ok(tn_experiment_read(registry, path, NULL, 0, &e, &err), err);
    ck_assert_str_eq(e->name, "large");
    tn_experiment_free(e);
    write_bytes(path, "a: \0b\n", 6);
    check_file(path, TN_E_INVALID, "large.yaml:1:4: 0x00 is a control character");
    write_bytes(path, "", 0);
    check_file(path, TN_E_INVALID, "found nothing");
    tn_free(text);
}
END_TEST

/* Names of files are bytes; what becomes text of the experiment is UTF-8. */
START_TEST(any_path_will_do)
{
    static const struct {
        const char *file, *name;
    } cases[] = {
        {"dir with space \xc5\xbc\xc3\xb3\xc5\x82w \xe6\xbc\xa2\xe5\xad\x97 \xce\xa9.yaml",
         "dir with space \xc5\xbc\xc3\xb3\xc5\x82w \xe6\xbc\xa2\xe5\xad\x97 \xce\xa9"},
        {"a\nb.yml", "a-b"},
        {"a\xff\xc5.yaml", "a--"},
        {".yaml", "-yaml"},
        {"plain", "plain"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *path = in_test(cases[i].file);
        tn_experiment *e;
        tn_error err = {0};
        write_text(path, LEAST);
        ck_ok(tn_experiment_read(registry, path, NULL, 0, &e, &err), err);
        ck_assert_str_eq(e->file, path);
        ck_assert_str_eq(e->name, cases[i].name);
        check_round_trip(e);
        tn_experiment_free(e);
        write_text(path, LEAST "x: 1\n");
        check_file(path, TN_E_INVALID, path);
    }
}
END_TEST

START_TEST(a_long_path_is_whole)
{
    char name[256] = "";
    memset(name, 'x', 240);
    strcpy(name + 240, ".yaml");
    const char *path = in_test(name);
    write_text(path, LEAST);
    tn_experiment *e;
    tn_error err = {0};
    ck_ok(tn_experiment_read(registry, path, NULL, 0, &e, &err), err);
    ck_assert_str_eq(e->file, path);
    ck_assert_uint_eq(strlen(e->name), 100);
    check_round_trip(e);
    tn_experiment_free(e);
}
END_TEST

/* ---- locale and memory ---- */

START_TEST(a_comma_locale_changes_nothing)
{
    char number[16];
    const char *overrides[] = {"update.rule.lr=0.125", "update.ema.decay=1e-3", "train.steps=1000000",
                               "eval.every=0.5 epochs"};
    tn_experiment *plain = read_example(overrides, COUNT(overrides));
    use_locale("tenon_comma", ",");
    snprintf(number, sizeof number, "%.1f", 0.5);
    ck_assert_str_eq(number, "0,5");
    tn_experiment *e = read_example(overrides, COUNT(overrides));
    ck_assert_double_eq(real(e->update[1], "lr"), 0.125);
    ck_assert_double_eq(real(e->update[2], "decay"), 0.001);
    ck_assert_str_eq(e->resolved, plain->resolved);
    check_round_trip(e);
    tn_experiment_free(e);
    tn_experiment_free(plain);
}
END_TEST

START_TEST(every_allocation_may_fail)
{
    const char *overrides[] = {"update.rule=sgd",
                               "+update={use: rows, label: x}",
                               "model.activation=relu",
                               "~eval",
                               "name=x",
                               "schedule.rows.step=cosine",
                               "train.steps=5",
                               "+update.ema.on={name: [a, b], role: bias}",
                               "update.ema={use: clip-norm, as: other}",
                               "precision={storage: coded, loss_scale: stepped}",
                               "recompute=kept",
                               "checkpoint={}"};
    const char *path = test_path("TENON_TEST_DOCS", "experiments/fashion-mlp.yaml");
    int64_t failures = 0;
    for (int reached = 1; reached; failures += reached) {
        tn_experiment *e = NULL;
        tn_error err = {0};
        int64_t before = tn_memory_count();
        tn_memory_fail_at(failures);
        int32_t status = tn_experiment_read(registry, path, overrides, COUNT(overrides), &e, &err);
        reached = tn_memory_count() - before > failures;
        tn_memory_fail_at(-1);
        if (status != (reached ? TN_E_MEMORY : TN_OK))
            ck_abort_msg("allocation %d: %d: %s", (int)failures, (int)status, err.msg);
        ck_assert_int_eq(err.code, status);
        tn_experiment_free(e);
    }
    ck_assert_int_gt(failures, 200);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("experiment");
    TCase *texts = tcase_create("texts"), *files = tcase_create("files");
    tcase_add_checked_fixture(texts, set_up, tear_down);
    tcase_set_timeout(texts, 60);
    tcase_add_test(texts, reads_the_example);
    tcase_add_test(texts, missing_sections_have_defaults);
    tcase_add_test(texts, links_say_what_they_are_on);
    tcase_add_test(texts, takes_what_the_format_allows);
    tcase_add_test(texts, overrides_apply_in_order);
    tcase_add_test(texts, the_examples_of_the_page_work);
    tcase_add_test(texts, the_overrides_of_the_page_work);
    tcase_add_test(texts, the_resolved_text_reads_back);
    tcase_add_test(texts, hard_values_read_back);
    tcase_add_test(texts, refuses_with_the_place_and_a_remedy);
    tcase_add_test(texts, refused_overrides_name_themselves);
    tcase_add_test(texts, long_lines_keep_the_essential_part);
    tcase_add_test(texts, hostile_files_end_soon);
    tcase_add_test(texts, aliases_do_not_multiply);
    tcase_add_test(texts, every_allocation_may_fail);
    suite_add_tcase(suite, texts);
    tcase_add_checked_fixture(files, set_up_files, tear_down_files);
    tcase_set_timeout(files, 60);
    tcase_add_test(files, refuses_what_is_no_file);
    tcase_add_test(files, the_size_has_a_limit);
    tcase_add_test(files, any_path_will_do);
    tcase_add_test(files, a_long_path_is_whole);
    tcase_add_test(files, a_comma_locale_changes_nothing);
    suite_add_tcase(suite, files);
    return test_main(suite);
}
