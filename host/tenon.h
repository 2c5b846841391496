/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon.h: the C API of libtenon. The `tenon` program uses nothing else.
 *
 * A handle may be used by one thread at a time; several handles at once are independent. The library changes no global
 * of the process: no locale, no signal handler, no environment. Errors are a status TN_E_* and a tn_error whose
 * message is whole sentences for people; the caller allocates it.
 */
#ifndef TENON_H
#define TENON_H

#include <stddef.h>
#include <tenon/base.h>
#include <tenon/sink.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TENON_API __attribute__((visibility("default")))

/* The plugins this process can see. */
typedef struct tenon tenon;

typedef struct tenon_options {
    uint32_t struct_size;
    uint32_t reserved;
    /* Takes one line of log; level 0 debug, 1 info, 2 warning. From any thread of a run. NULL: silence. */
    void (*log)(void *user, int32_t level, const char *line);
    void *user;
} tenon_options;

/* Scans the search path: TENON_PLUGIN_PATH, the user's folder, the folders beside this library. Reads notes only; no
 * plugin is mapped. `options` may be NULL. Close with tenon_close. */
TENON_API int32_t tenon_open(const tenon_options *options, tenon **ret, tn_error *err);
/* Accepts NULL. Plugins that were used stay mapped until the process ends. */
TENON_API void tenon_close(tenon *handle);

#define TENON_JSON  0x1u  /* machine-readable */
#define TENON_ALL   0x2u  /* also what is no plugin */
#define TENON_NAMES 0x8u  /* of tenon_list: kind/name of what is found, one a line */
#define TENON_FORCE 0x10u /* of tenon_install: also over what is there */

/* What is there: all kinds when `kind` is NULL. *ret is text to be freed with tenon_free. */
TENON_API int32_t tenon_list(tenon *handle, const char *kind, uint32_t flags, char **ret, tn_error *err);
/* Everything about one component, named "kind/name" or "name". *ret is text to be freed with tenon_free. */
TENON_API int32_t tenon_info(tenon *handle, const char *name, uint32_t flags, char **ret, tn_error *err);

#define TENON_STOP       0x1 /* end after this update, with a checkpoint */
#define TENON_CHECKPOINT 0x2 /* write a checkpoint after this update, and go on */

typedef struct tenon_run_options {
    uint32_t struct_size;
    uint32_t reserved;
    const char *runs; /* parent of the run's folder; NULL: "runs" */
    /* Sees every record after it was written, on the calling thread; returns what it asks for: 0, or TENON_STOP and
     * TENON_CHECKPOINT together or alone. NULL: none. The record is borrowed for the call. */
    int32_t (*observe)(void *user, const tn_record *record);
    /* Sees the plan before the first update: layers, parameters, memory. NULL: none. */
    void (*describe)(void *user, const char *text, int64_t updates);
    void *user;
} tenon_run_options;

/* Runs an experiment file with overrides ("train.epochs=2") to its end. *ret is the run's folder, set once it exists
 * (also when the run then fails; else NULL), to be freed with tenon_free. TN_E_STOPPED when `observe` asked,
 * TN_E_NUMERIC when the run diverged. Of the processes of one run (`parallel:`) only the first has a folder and is
 * given the plan; `observe` sees the records in each, and where one asks to stop or fails, all end. */
TENON_API int32_t tenon_run(tenon *handle, const char *experiment, const char *const *overrides, size_t override_count,
                            const tenon_run_options *options, char **ret, tn_error *err);

/* Goes on with the run in `folder` from its last checkpoint that is whole to its end, bit for bit as if it had never
 * stopped; records behind the checkpoint are written again. The log warns of each checkpoint that is damaged. Overrides
 * may change what decides no bit, such as train.threads; others are refused. `options->runs` is not read.
 * TN_E_NOT_FOUND where there is no checkpoint; else as tenon_run. All processes of a run call it with one folder. */
TENON_API int32_t tenon_resume(tenon *handle, const char *folder, const char *const *overrides, size_t override_count,
                               const tenon_run_options *options, tn_error *err);

/* The experiment with every default filled in, as YAML, without running it. *ret is to be freed with tenon_free. */
TENON_API int32_t tenon_resolve(tenon *handle, const char *experiment, const char *const *overrides,
                                size_t override_count, char **ret, tn_error *err);

/* ---- updates of tensors that the caller owns ----
 *
 * One handle is one optimizer: a chain of links (a rule, clipping, averages, ...) and its state, for a fixed list of
 * tensors. A step reads and writes them where they are; nothing is flattened or copied but what is not contiguous.
 * Pointers may change from step to step. An update may be used by one thread at a time; its threads are its own. */
typedef struct tenon_update tenon_update;

typedef struct tenon_tensor {
    uint32_t struct_size;
    int32_t role;            /* TN_ROLE_* of tenon/parameter.h, for links with `on: {role: ...}` */
    const char *name;        /* state is kept under it; all different; copied */
    void *data;              /* its elements, of any alignment. No two tensors share memory */
    tn_dtype dtype;          /* f32, f64, f16 or bf16, the same for all; links compute in f64 for f64, else in f32 */
    tn_dtype gradient_dtype; /* the same for all; 0: as dtype */
    int32_t ndim;            /* 0 to 8 */
    int32_t reserved;
    const int64_t *shape;   /* copied */
    const int64_t *strides; /* in elements, not negative; NULL: row-major; copied */
} tenon_tensor;

typedef struct tenon_update_options {
    uint32_t struct_size;
    int32_t threads;      /* that a step runs on, the calling one counted in; 0: one for each CPU of the process */
    uint64_t seed;        /* of random numbers */
    int32_t check_finite; /* 1: skip a step with a gradient that is not finite even when no link looks */
    int32_t reserved;
    const char *state;    /* codec of state tensors: "blockwise8", "bf16"; NULL: in f32 or f64 */
    const char *rounding; /* of f16 and bf16 tensors: "nearest" or "stochastic"; NULL: nearest */
    const char *backend;  /* matrix products for rules such as muon: "openblas"; NULL: none, such rules are refused */
} tenon_update_options;

/* `links` is YAML as under `update:` in an experiment: "adamw", "[{use: clip-norm, max_norm: 1}, {use: adamw, lr:
 * 3e-4}, ema]". Tensors lie struct_size bytes apart. `options` may be NULL. All state is allocated here; steps allocate
 * nothing, but for scratch the first time that a tensor's gradient is not contiguous. The handle must outlive the
 * update. Close with tenon_update_close. */
TENON_API int32_t tenon_update_open(tenon *handle, const char *links, const tenon_tensor *tensors, size_t count,
                                    const tenon_update_options *options, tenon_update **ret, tn_error *err);
/* Accepts NULL. */
TENON_API void tenon_update_close(tenon_update *update);

typedef struct tenon_step {
    uint32_t struct_size;
    uint32_t reserved;
    void *const *p; /* where each tensor's elements are now, with the strides of its opening; NULL: as before */
    /* Each tensor's gradient, of its shape. An entry NULL: there is none, the tensor, its state and its clock stay. */
    const void *const *g;
    const int64_t *const *g_strides; /* each gradient's, in elements; NULL or an entry NULL: row-major */
    double scale;                    /* each gradient is read as scale * g; 0: 1 */
    double loss;                     /* the mean loss, for links that ask for it */
} tenon_step;

typedef struct tenon_step_result {
    uint32_t struct_size; /* set by the caller */
    int32_t committed;    /* 0: skipped, as a gradient is not finite: then nothing but `attempts` changed */
    int64_t bad;          /* when skipped: the first tensor with such a gradient, else -1 */
    int64_t updates;      /* committed so far */
    int64_t attempts;     /* made so far */
} tenon_step_result;

/* One step. `ret` may be NULL. */
TENON_API int32_t tenon_update_step(tenon_update *update, const tenon_step *step, tenon_step_result *ret,
                                    tn_error *err);

/* Hyper-parameters of type real: "adamw.lr". A value outside the row's range, or one that would need other state than
 * there is, is refused and changes nothing. */
TENON_API int32_t tenon_update_set(tenon_update *update, const char *name, double value, tn_error *err);
TENON_API int32_t tenon_update_get(tenon_update *update, const char *name, double *ret, tn_error *err);

/* What links report of the last step, such as "clip-norm.norm"; NaN where nothing was. How many there are; at(index)
 * returns the name, which lives as long as the update. */
TENON_API size_t tenon_update_report_count(const tenon_update *update);
TENON_API const char *tenon_update_report_at(const tenon_update *update, size_t index, double *ret);

/* One piece of state, in the update's own memory: read to save it, written to restore it, between steps. */
typedef struct tenon_state {
    uint32_t struct_size;            /* set by the caller */
    int32_t bits;                    /* of an element as stored; block scales of a codec follow the elements */
    const char *link, *slot, *shape; /* "adamw", "m", "like"; live as long as the update */
    int64_t tensor;                  /* index, or -1 for state of the link as a whole */
    int64_t elements, bytes;
    void *data;
    int32_t persistent; /* 0: nothing that needs saving */
    int32_t reserved;
} tenon_state;
TENON_API size_t tenon_update_state_count(const tenon_update *update);
TENON_API void tenon_update_state_at(const tenon_update *update, size_t index, tenon_state *ret);
/* count + 2 numbers: each tensor's committed updates, then updates and attempts of the whole. Part of the state. */
TENON_API void tenon_update_clocks(const tenon_update *update, int64_t *ret);
TENON_API int32_t tenon_update_set_clocks(tenon_update *update, const int64_t *clocks, tn_error *err);

/* ---- how fast it is ---- */

#define TENON_COSTS 0x4u /* of `update`: what the chain's promises cost, instead */

typedef struct tenon_bench_options {
    uint32_t struct_size;
    uint32_t flags;            /* TENON_JSON; of `update` TENON_ALL, every link that is found, and TENON_COSTS */
    int64_t elements;          /* of the largest array; 0: as many as the bench takes by itself */
    int32_t threads;           /* 0: one for each CPU of the process */
    int32_t rounds;            /* of which medians are taken; 0: 21 */
    const char *const *chains; /* of `update`: links as tenon_update_open takes them, or "clip-norm,adamw,ema" */
    size_t chain_count;        /* 0: two usual ones */
    const char *backend;       /* of matrix products; NULL: "openblas" */
} tenon_bench_options;

/* Measures this machine and the host on it, in turn, in one process: `what` is "memory", "update", "gemm" or "layer".
 * A share is of what the machine gave for the same work in the same rounds. Takes seconds to minutes and, by itself, up
 * to half of the memory that is free. `options` may be NULL. *ret is text to be freed with tenon_free. For matrix
 * products OPENBLAS_NUM_THREADS must be 1, as for runs. */
TENON_API int32_t tenon_bench(tenon *handle, const char *what, const tenon_bench_options *options, char **ret,
                              tn_error *err);

/* ---- which learning rate ---- */

#define TENON_LINEAR 0x20u /* of tenon_range: rates in equal differences, not in equal ratios */

#define TENON_UNSMOOTHED -1.0

typedef struct tenon_range_options {
    uint32_t struct_size;
    uint32_t flags;  /* TENON_JSON, TENON_LINEAR */
    double from, to; /* the first and the last rate; 0: 1e-7 and 10 */
    int64_t steps;   /* updates; 0: 100 */
    double smooth;   /* weight of the losses before in their mean, [0, 1); 0: 0.98; TENON_UNSMOOTHED: none */
    double stop;     /* ends above so many times the least smoothed loss; 0: 4; inf: never */
    const char *row; /* which to raise, as in `schedule:`; NULL: lr of every link, in the experiment's ratios */
    const char *svg; /* a file to write or replace; NULL: none */
    int32_t columns; /* of the plot in characters, 40 to 400; 0: 72 */
    int32_t reserved;
    /* As of tenon_run_options. TENON_STOP ends without a result. */
    int32_t (*observe)(void *user, const tn_record *record);
    void *user;
} tenon_range_options;

/* The learning-rate range test (Smith, arXiv:1506.01186): makes a few updates of an experiment while its rate rises
 * from one to the next, and tells where the loss fell most and where it was least. Schedules of that rate are left out,
 * all else is the experiment's. No folder is made. Divergence is an end as any other. `options` may be NULL. *ret is a
 * text about it with a plot, to be freed with tenon_free; of several processes only the first has one, others get "".
 * TN_E_STOPPED when `observe` asked. */
TENON_API int32_t tenon_range(tenon *handle, const char *experiment, const char *const *overrides,
                              size_t override_count, const tenon_range_options *options, char **ret, tn_error *err);

/* ---- what became of a run ---- */

typedef struct tenon_eval_options {
    uint32_t struct_size;
    uint32_t flags;    /* TENON_JSON */
    const char *split; /* of the data; NULL: the experiment's, "test" where it has none */
    const char *view;  /* "eval", "train"; NULL: as in the experiment */
    int32_t threads;   /* 0: as in the experiment */
    int32_t reserved;
} tenon_eval_options;

/* Evaluates the newest checkpoint that is whole in the folder of a run, on one process; writes nothing there. `options`
 * may be NULL. *ret is text to be freed with tenon_free. TN_E_NOT_FOUND where there is no checkpoint. */
TENON_API int32_t tenon_eval(tenon *handle, const char *folder, const tenon_eval_options *options, char **ret,
                             tn_error *err);

typedef struct tenon_export_options {
    uint32_t struct_size;
    uint32_t flags;   /* TENON_JSON */
    const char *file; /* to write, or to replace; NULL: model.safetensors in the run's folder */
    const char *view; /* "eval", "train"; NULL: "eval" */
} tenon_export_options;

/* Writes the parameters in the newest checkpoint that is whole of a run's folder, or in one checkpoint, to a
 * safetensors file: under their names, in f32 or f64, with the running statistics of layers; the experiment is in its
 * metadata. Neither data nor any plugin's code is needed, but for a codec that parameters are stored by. `options` may
 * be NULL. *ret is a text about it, to be freed with tenon_free. */
TENON_API int32_t tenon_export(tenon *handle, const char *run, const tenon_export_options *options, char **ret,
                               tn_error *err);

/* ---- this machine ---- */

/* Checks a plugin file as loading does, without running its code, and copies it into the user's plugin folder, whole or
 * not at all. Refused without TENON_FORCE, with TN_E_INVALID: what is there under the file's name, and components that
 * are found elsewhere. flags: TENON_JSON too. *ret is a text about it, to be freed with tenon_free. */
TENON_API int32_t tenon_install(tenon *handle, const char *file, uint32_t flags, char **ret, tn_error *err);

/* Looks for the usual trouble. `runs`: where runs are to be; NULL: "runs". flags: TENON_JSON. *ret is a text that says
 * what was found and what mends it, to be freed with tenon_free; *ret_wrong how many things need mending. Maps backends
 * and the CUDA driver. */
TENON_API int32_t tenon_doctor(tenon *handle, const char *runs, uint32_t flags, int32_t *ret_wrong, char **ret,
                               tn_error *err);

/* ---- a plugin to begin with, and is it right? ---- */

typedef struct tenon_new_options {
    uint32_t struct_size;
    uint32_t flags;       /* TENON_JSON */
    const char *language; /* "c", "c++"; NULL: "c" */
    const char *folder;   /* to be made; NULL: ./NAME */
} tenon_new_options;

/* Makes a folder with a small technique of a kind under a name of your own: source, build, test, README. Whole or not
 * at all. TN_E_INVALID, with the reason, for a name that will not do and for a folder that is there and not empty,
 * TN_E_NOT_FOUND for a kind or language without a template. `options` may be NULL, and so may `handle`. *ret is a text
 * that says what to do next, to be freed with tenon_free. */
TENON_API int32_t tenon_new(tenon *handle, const char *kind, const char *name, const tenon_new_options *options,
                            char **ret, tn_error *err);

typedef struct tenon_check_options {
    uint32_t struct_size;
    uint32_t flags;          /* TENON_JSON */
    const char *against;     /* an earlier build of the file, to compare with; NULL: none */
    const char *const *only; /* ids of rules */
    size_t only_count;       /* 0: all rules */
    int32_t timeout_s;       /* of each rule on each component; 0: 60 */
    int32_t memory_mib;      /* of address space of each; 0: 4096 */
} tenon_check_options;

/* Runs every rule that applies on the plugin in `file`, each in a process of its own: a plugin that crashes or hangs is
 * a finding. `options` may be NULL. *ret is a text about it, to be freed with tenon_free, *ret_failed the number of
 * findings against the plugin. TN_E_PLUGIN if the file is none, TN_E_INVALID for an unknown id or a file that this
 * process has loaded. Forks. */
TENON_API int32_t tenon_check(tenon *handle, const char *file, const tenon_check_options *options, int32_t *ret_failed,
                              char **ret, tn_error *err);
/* The rules, each with its id and what it requires. flags: TENON_JSON. *ret is to be freed with tenon_free. */
TENON_API int32_t tenon_check_rules(tenon *handle, uint32_t flags, char **ret, tn_error *err);

/* For "did you mean": the nearest of the words, or NULL where none is near. Entries may be NULL. */
TENON_API const char *tenon_nearest(const char *word, const char *const *words, size_t count);

TENON_API void tenon_free(char *text);
TENON_API const char *tenon_version(void);

#ifdef __cplusplus
}
#endif
#endif
