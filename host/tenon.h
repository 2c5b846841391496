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

#define TENON_JSON 0x1u /* machine-readable */
#define TENON_ALL  0x2u /* also what is no plugin */

/* What is there: all kinds when `kind` is NULL. *ret is text to be freed with tenon_free. */
TENON_API int32_t tenon_list(tenon *handle, const char *kind, uint32_t flags, char **ret, tn_error *err);
/* Everything about one component, named "kind/name" or "name". *ret is text to be freed with tenon_free. */
TENON_API int32_t tenon_info(tenon *handle, const char *name, uint32_t flags, char **ret, tn_error *err);

typedef struct tenon_run_options {
    uint32_t struct_size;
    uint32_t reserved;
    const char *runs; /* parent of the run's folder; NULL: "runs" */
    /* Sees every record after it was written, on the calling thread; non-zero asks to stop. NULL: none. The record is
     * borrowed for the call. */
    int32_t (*observe)(void *user, const tn_record *record);
    /* Sees the plan before the first update: layers, parameters, memory. NULL: none. */
    void (*describe)(void *user, const char *text, int64_t updates);
    void *user;
} tenon_run_options;

/* Runs an experiment file with overrides ("train.epochs=2") to its end. *ret is the run's folder, set once it exists
 * (also when the run then fails; else NULL), to be freed with tenon_free. TN_E_STOPPED when `observe` asked,
 * TN_E_NUMERIC when the run diverged. Of the processes of one run (`parallel:`) only the first has a folder and is given
 * the plan; `observe` sees the records in each, and where one asks to stop or fails, all end. */
TENON_API int32_t tenon_run(tenon *handle, const char *experiment, const char *const *overrides, size_t override_count,
                            const tenon_run_options *options, char **ret, tn_error *err);

/* The experiment with every default filled in, as YAML, without running it. *ret is to be freed with tenon_free. */
TENON_API int32_t tenon_resolve(tenon *handle, const char *experiment, const char *const *overrides,
                                size_t override_count, char **ret, tn_error *err);

TENON_API void tenon_free(char *text);
TENON_API const char *tenon_version(void);

#ifdef __cplusplus
}
#endif
#endif
