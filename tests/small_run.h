/* SPDX-License-Identifier: Apache-2.0
 *
 * small_run.h: a small experiment on a small set, run under overrides, and what is seen of it.
 */
#ifndef TENON_TESTS_SMALL_RUN_H
#define TENON_TESTS_SMALL_RUN_H

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "host/base/memory.h"
#include "host/train/trainer.h"
#include "tests/small_set.h"

static char file[PATH_MAX + 32];
static tn_registry *registry;

static const char experiment[] = "name: small\n"
                                 "data: {use: idx, folder: %s, batch: 16}\n"
                                 "model: {use: mlp, widths: [24, 12], activation: gelu, normalizer: layernorm}\n"
                                 "loss: {use: cross-entropy}\n"
                                 "update:\n"
                                 "  - {use: clip-norm, max_norm: 1.0}\n"
                                 "  - {use: adamw, as: rule, lr: 1e-2}\n"
                                 "backend: reference\n"
                                 "train: {epochs: 2, seed: 4, threads: 1}\n"
                                 "eval: {split: test, every: 1 epoch}\n";

static inline void setup(void)
{
    char text[PATH_MAX + sizeof experiment];
    make_directory();
    small_set(101, 37);
    snprintf(text, sizeof text, experiment, test_directory);
    snprintf(file, sizeof file, "%s/experiment.yaml", test_directory);
    write_text(file, text);
    registry = test_registry(NULL);
}

static inline void teardown(void)
{
    tn_registry_close(registry);
    remove_directory();
}

/* ---- what a run leaves ---- */

typedef struct {
    tn_experiment *experiment;
    tn_trainer *trainer;
    int64_t updates, skips, evaluations;
    double loss, accuracy, eval_loss, lr[64], last_update, last_epoch;
    double scale[64]; /* loss scales, one an attempt */
    int scales;
    char log[2048];
} outcome;

static inline int32_t watch(void *user, const tn_record *record)
{
    outcome *o = user;
    int train = !strcmp(record->event, "train"), eval = !strcmp(record->event, "eval");
    for (int32_t i = 0; i < record->field_count; i++) {
        const char *name = record->fields[i].name;
        double value = record->fields[i].value;
        if (train && !strcmp(name, "loss"))
            o->loss = value;
        if (train && !strcmp(name, "rule.lr") && o->updates < 64)
            o->lr[o->updates] = value;
        if (!eval && !strcmp(name, "loss_scale") && o->scales < 64)
            o->scale[o->scales++] = value;
        if (eval && !strcmp(name, "test/accuracy"))
            o->accuracy = value;
        if (eval && !strcmp(name, "test/loss"))
            o->eval_loss = value;
    }
    o->updates += train;
    o->skips += !strcmp(record->event, "skip");
    o->evaluations += eval;
    o->last_update = (double)record->update;
    o->last_epoch = record->epoch;
    return 0;
}

static inline void note(void *user, int32_t level, const char *line)
{
    outcome *o = user;
    size_t used = strlen(o->log);
    if (level >= TN_LOG_WARNING)
        snprintf(o->log + used, sizeof o->log - used, "%s\n", line);
}

static inline int32_t open_run(outcome *o, tn_log *log, const char *const *overrides, size_t count, tn_error *err)
{
    memset(o, 0, sizeof *o);
    *log = (tn_log){note, o};
    int32_t status = tn_experiment_read(registry, file, overrides, count, &o->experiment, err);
    tn_trainer_options options = {
        .registry = registry, .experiment = o->experiment, .log = log, .observer = watch, .user = o};
    return status == TN_OK ? tn_trainer_open(&options, &o->trainer, err) : status;
}

static inline void run(outcome *o, const char *const *overrides, size_t count)
{
    tn_error err = {0};
    static tn_log log;
    ck_ok(open_run(o, &log, overrides, count, &err), err);
    ck_ok(tn_trainer_run(o->trainer, &err), err);
}

static inline void open_small(outcome *o, tn_log *log, const char *const *overrides, size_t count)
{
    tn_error err = {0};
    ck_ok(open_run(o, log, overrides, count, &err), err);
}

static inline void step(outcome *o)
{
    tn_error err = {0};
    ck_ok(tn_trainer_step(o->trainer, &err), err);
}

/* Of an arena in the parameters' layout; to be freed with tn_free. */
static inline void *copy(const void *arena, const tn_parameters *all)
{
    size_t size = (size_t)all->elements * (all->real / 8);
    return memcpy(tn_alloc(size, 1), arena, size);
}

static inline void close_run(outcome *o)
{
    tn_trainer_close(o->trainer);
    tn_experiment_free(o->experiment);
}

static inline const tn_parameters *parameters(const outcome *o)
{
    return tn_graph_parameters(tn_trainer_graph(o->trainer));
}

static inline void assert_same_bits(const outcome *a, const outcome *b)
{
    const tn_parameters *x = parameters(a), *y = parameters(b);
    ck_assert_int_eq(x->count, y->count);
    for (int64_t i = 0; i < x->count; i++) {
        size_t size = x->real / 8, at = (size_t)x->at[i] * size;
        ck_assert_msg(!memcmp((char *)x->p + at, (char *)y->p + at, (size_t)x->list[i].n * size), "%s differs",
                      x->list[i].name);
    }
}

static inline double largest_difference(const outcome *a, const outcome *b)
{
    const tn_parameters *x = parameters(a), *y = parameters(b);
    double worst = 0;
    for (int64_t i = 0; i < x->count; i++)
        for (int64_t j = x->at[i]; j < x->at[i] + x->list[i].n; j++) {
            double u = x->real == 64 ? ((double *)x->p)[j] : ((float *)x->p)[j];
            double v = x->real == 64 ? ((double *)y->p)[j] : ((float *)y->p)[j];
            worst = fmax(worst, fabs(u - v));
        }
    return worst;
}

#endif
