/* SPDX-License-Identifier: Apache-2.0
 *
 * experiment.h: a YAML file and overrides -> a typed, validated experiment. The notes are enough: no plugin is opened.
 */
#ifndef TENON_HOST_EXPERIMENT_EXPERIMENT_H
#define TENON_HOST_EXPERIMENT_EXPERIMENT_H

#include "host/experiment/instance.h"

/* What drives one hyper-parameter: a sequence of schedulers, each but the last with a row `steps` > 0. */
/* What a scheduler is to its segment. */
#define TN_SEGMENT_ALONE 0 /* the segment */
#define TN_SEGMENT_FIRST 1 /* the first factor of a product */
#define TN_SEGMENT_NEXT  2 /* a factor of the same product as the one before */

typedef struct tn_segment {
    int32_t factor; /* TN_SEGMENT_* */
    int64_t steps;  /* length of the whole segment; 0: the rest of the run */
} tn_segment;

typedef struct tn_schedule {
    tn_instance *target;
    const tn_row *row;      /* of type TN_TYPE_REAL */
    double base;            /* the value the experiment gives */
    tn_instance **segments; /* schedulers in the order of the file, factors of products too; owned */
    tn_segment *lengths;    /* of each */
    size_t segment_count;
} tn_schedule;

/* "every: 1 epoch", "every: 500 steps". */
typedef struct tn_period {
    double epochs; /* 0: not by epochs */
    int64_t steps; /* 0: not by steps */
} tn_period;

typedef struct tn_experiment {
    char *name;
    char *file; /* as given */
    tn_instance *data;
    int64_t batch; /* samples an update, before accumulation: data.batch */
    tn_instance *model;
    tn_instance *loss;
    tn_instance **update; /* links in the order of the file */
    size_t update_count;
    tn_schedule *schedules;
    size_t schedule_count;
    tn_instance *backend;
    tn_instance *collective;
    tn_instance **sinks;
    size_t sink_count;
    uint32_t real;              /* precision: f32 or f64, or {use: f32, storage: bf16, ...} */
    tn_instance *storage;       /* codec of activations, gradients and the parameters that layers see; NULL: none */
    int32_t master;             /* 1: with `storage`, the update has parameters of its own in the real type */
    tn_instance *state_codec;   /* of like-shaped slots; NULL: the real type */
    tn_instance *loss_scale;    /* NULL: 1 */
    tn_instance *recompute;     /* NULL: keep all */
    tn_period checkpoint_every; /* checkpoint: {every: 1 epoch}; nothing: none */
    int64_t checkpoint_keep;    /* the last so many stay; 0: all */
    int64_t checkpoint_best;    /* and so many with the best metric of an evaluation */
    char *checkpoint_metric;    /* of an evaluation, without its split: "loss"; NULL: no checkpoints */
    int32_t checkpoint_mode;    /* 0: less is better, 1: more is */
    double epochs;              /* train.epochs; 0: by steps */
    int64_t steps;              /* train.steps; 0: by epochs */
    int64_t accumulate;         /* micro-batches an update, >= 1 */
    uint64_t seed;
    int64_t threads;      /* 0: all the process may use */
    char *from;           /* train.from: file of the parameters that a new run starts with; NULL: none */
    int32_t check_finite; /* 1: read all gradients first and skip an update where one is not finite */
    int32_t noise_scale;  /* 1: records tell the gradient's noise scale */
    char *eval_split;     /* NULL: no evaluation */
    int64_t eval_batch;   /* 0: as training */
    tn_period eval_every;
    int64_t eval_refresh; /* batches of training that refresh the eval view's statistics; 0: training's own are used */
    int32_t eval_view;    /* 1: the averaged view where the chain has one */
    char *resolved;       /* YAML text of all of the above with every default filled in */
} tn_experiment;

/* Reads `path`, applies `overrides` (Hydra's grammar: key=v, +key=v, ~key, group=name) and validates. Errors name
 * file, line and column with a caret; unknown keys come with the nearest known one. Frees nothing of the registry,
 * which must outlive the experiment. The caller frees it with tn_experiment_free. [main] */
int32_t tn_experiment_read(tn_registry *registry, const char *path, const char *const *overrides, size_t override_count,
                           tn_experiment **ret, tn_error *err);
/* The same from `size` bytes in memory; `file` is for messages and the default name. [main] */
int32_t tn_experiment_parse(tn_registry *registry, const char *file, const char *bytes, size_t size,
                            const char *const *overrides, size_t override_count, tn_experiment **ret, tn_error *err);
#define TN_EXPERIMENT_MAX (1 << 20) /* bytes; a larger file is refused */
/* The instance and the row of type real that `name`, "rule.lr", means to a schedule. `label` begins errors.
 * TN_E_INVALID with the nearest name. [main] */
int32_t tn_schedule_find(const tn_experiment *experiment, const char *label, const char *name, tn_instance **ret_target,
                         const tn_row **ret_row, tn_error *err);
/* Takes the schedule of a row away, if it has one: the row stays what it is set to. `resolved` stays as it was. [main]
 */
void tn_experiment_unschedule(tn_experiment *experiment, const tn_instance *target, const tn_row *row);
/* Accepts NULL and half-built ones. */
void tn_experiment_free(tn_experiment *experiment);

#endif
