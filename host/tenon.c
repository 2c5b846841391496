/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon.c: the C API of libtenon: each call put together from the parts behind it.
 */
#include "host/tenon.h"

#include <errno.h>
#include <fenv.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "host/base/error.h"
#include "host/base/memory.h"
#include "host/base/take.h"
#include "host/base/text.h"
#include "host/experiment/experiment.h"
#include "host/handle.h"
#include "host/store/environment.h"
#include "host/store/folder.h"
#include "host/store/runlog.h"
#include "host/train/trainer.h"

#ifndef TENON_VERSION
#define TENON_VERSION "unknown"
#endif

int32_t tenon_open(const tenon_options *options, tenon **ret, tn_error *err)
{
    tenon *handle = tn_alloc(1, sizeof *handle);
    if (!handle)
        return tn_error_set(err, TN_E_MEMORY, "no memory for the library's handle");
    if (options) {
        tenon_options taken;
        tn_take(&taken, sizeof taken, options);
        handle->log = (tn_log){taken.log, taken.user};
    }
    int32_t status = tn_registry_open(&handle->log, &handle->registry, err);
    if (status != TN_OK)
        tenon_close(handle);
    else
        *ret = handle;
    return status;
}

void tenon_close(tenon *handle)
{
    if (!handle)
        return;
    tn_registry_close(handle->registry);
    tn_free(handle);
}

int32_t tenon_list(tenon *handle, const char *kind, uint32_t flags, char **ret, tn_error *err)
{
    tn_text text = {0};
    int all = (flags & TENON_ALL) != 0;
    int32_t status = flags & TENON_NAMES  ? tn_registry_list_names(handle->registry, kind, &text, err)
                     : flags & TENON_JSON ? tn_registry_list_json(handle->registry, kind, all, &text, err)
                                          : tn_registry_list_text(handle->registry, kind, all, &text, err);
    return tn_handle_give(&text, status, ret, err);
}

int32_t tenon_info(tenon *handle, const char *name, uint32_t flags, char **ret, tn_error *err)
{
    tn_text text = {0};
    const tn_entry_info *entry;
    const char *slash = strchr(name, '/');
    char *kind = slash ? tn_strndup(name, (size_t)(slash - name)) : NULL;
    if (slash && !kind)
        return tn_error_set(err, TN_E_MEMORY, "no memory for a name");
    int32_t status = tn_registry_find(handle->registry, kind, slash ? slash + 1 : name, NULL, 0, &entry, err);
    tn_free(kind);
    if (status == TN_OK)
        status = flags & TENON_JSON ? tn_registry_info_json(handle->registry, entry, &text, err)
                                    : tn_registry_info_text(handle->registry, entry, &text, err);
    return tn_handle_give(&text, status, ret, err);
}

/* ---- run ---- */

static int32_t copy_input(const char *folder, const char *path, tn_error *err)
{
    char buffer[4096];
    tn_text text = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got;
    if (fd < 0)
        return tn_error_set(err, TN_E_IO, "%s: can not read: %s", path, strerror(errno));
    while ((got = read(fd, buffer, sizeof buffer)) > 0)
        tn_text_addn(&text, buffer, (size_t)got);
    int32_t status = got < 0 ? tn_error_set(err, TN_E_IO, "%s: can not read: %s", path, strerror(errno))
                             : tn_text_status(&text, err);
    close(fd);
    if (status == TN_OK)
        status = tn_folder_write(folder, "experiment.yaml", text.data ? text.data : "", text.size, err);
    tn_text_free(&text);
    return status;
}

static int32_t write_inputs(const char *folder, const char *path, const tn_experiment *experiment,
                            const char *const *overrides, size_t override_count, tn_error *err)
{
    tn_text text = {0};
    for (size_t i = 0; i < override_count; i++)
        tn_text_addf(&text, "%s\n", overrides[i]);
    int32_t status = tn_text_status(&text, err);
    if (status == TN_OK)
        status = copy_input(folder, path, err);
    if (status == TN_OK)
        status = tn_folder_write(folder, "overrides.txt", text.data ? text.data : "", text.size, err);
    if (status == TN_OK)
        status = tn_folder_write(folder, "experiment.resolved.yaml", experiment->resolved, strlen(experiment->resolved),
                                 err);
    tn_text_free(&text);
    return status;
}

static int32_t describe(tn_trainer *trainer, const tenon_run_options *options, tn_error *err)
{
    tn_text text = {0};
    tn_trainer_describe(trainer, &text);
    int32_t status = tn_text_status(&text, err);
    if (status == TN_OK)
        options->describe(options->user, text.data, tn_trainer_horizon(trainer));
    tn_text_free(&text);
    return status;
}

/* A word of a shell: quoted where it needs to be. */
static void add_word(tn_text *text, const char *word)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-+=:,@%";
    if (*word && strspn(word, plain) == strlen(word)) {
        tn_text_add(text, word);
        return;
    }
    tn_text_char(text, '\'');
    for (; *word; word++)
        tn_text_addf(text, *word == '\'' ? "'\\''" : "%c", *word);
    tn_text_char(text, '\'');
}

/* A run that was stopped says how to go on, where it can. */
static void add_way_on(const char *folder, tn_error *err)
{
    tn_text text = {0};
    tn_text_add(&text, "; go on with: tenon resume ");
    add_word(&text, folder);
    if (err && tn_text_status(&text, NULL) == TN_OK && strlen(err->msg) + text.size < sizeof err->msg)
        strcat(err->msg, text.data);
    tn_text_free(&text);
}

/* What was asked for, handed down. */
typedef struct {
    tenon *handle;
    tn_runlog *log;
    const char *path;
    const char *folder; /* of a run to be gone on with; NULL: a new one */
    const char *const *overrides;
    size_t override_count;
    const tenon_run_options *options;
} request;

static int32_t write_environment(tn_trainer *trainer, const request *r, const char *folder, tn_error *err)
{
    const tn_environment environment = {.version = TENON_VERSION,
                                        .registry = r->handle->registry,
                                        .backend = tn_trainer_backend(trainer),
                                        .threads = tn_trainer_threads(trainer),
                                        .processes = tn_trainer_processes(trainer),
                                        .attempt = tn_trainer_attempt(trainer)};
    return tn_environment_write(&environment, folder, r->folder != NULL, &r->handle->log, err);
}

/* The folder is made once everything could be opened: a refused experiment leaves none. Of several processes the first
 * makes it. */
static int32_t start(tn_trainer *trainer, const tn_experiment *experiment, const request *r, char **ret, tn_error *err)
{
    int32_t status = tn_folder_create(r->options->runs ? r->options->runs : "runs", experiment->name, ret, err);
    if (status == TN_OK)
        status = tn_runlog_put_in(r->log, *ret, err);
    if (status == TN_OK)
        status = write_inputs(*ret, r->path, experiment, r->overrides, r->override_count, err);
    if (status == TN_OK && r->options->describe)
        status = describe(trainer, r->options, err);
    if (status == TN_OK)
        status = tn_trainer_record_in(trainer, *ret, err);
    tn_log_write(&r->handle->log, TN_LOG_INFO, "tenon %s begins %s", TENON_VERSION, r->path);
    return status == TN_OK ? write_environment(trainer, r, *ret, err) : status; /* now that all plugins are loaded */
}

/* The first of a run's processes takes its records up where the checkpoint was written. */
static int32_t take_up(tn_trainer *trainer, const request *r, const char *checkpoint, tn_error *err)
{
    int32_t status = r->options->describe ? describe(trainer, r->options, err) : TN_OK;
    tn_log_write(&r->handle->log, TN_LOG_INFO, "tenon %s goes on from %s", TENON_VERSION, checkpoint);
    if (tn_trainer_attempt(trainer) >= tn_trainer_horizon(trainer))
        tn_log_write(&r->handle->log, TN_LOG_WARNING, "%s: the run has ended already, there is nothing to go on with",
                     r->folder);
    if (status == TN_OK)
        status = tn_trainer_continue_in(trainer, r->folder, checkpoint, err);
    return status == TN_OK ? write_environment(trainer, r, r->folder, err) : status;
}

static int32_t go_on(tn_trainer *trainer, const request *r, tn_error *err)
{
    char *checkpoint = NULL;
    int32_t first = tn_trainer_rank(trainer) == 0;
    int32_t status = tn_trainer_agree(trainer, first ? tn_runlog_put_in(r->log, r->folder, err) : TN_OK, err);
    if (status == TN_OK)
        status = tn_checkpoint_restore(trainer, r->folder, &checkpoint, err);
    if (status == TN_OK && first)
        status = take_up(trainer, r, checkpoint, err);
    tn_free(checkpoint);
    return status;
}

static int32_t train(tenon *handle, const tn_experiment *experiment, const request *r, char **ret, tn_error *err)
{
    tn_trainer *trainer;
    tn_trainer_options open = {.registry = handle->registry,
                               .experiment = experiment,
                               .log = &handle->log,
                               .from = r->folder ? NULL : experiment->from,
                               .observer = r->options->observe,
                               .user = r->options->user};
    int32_t status = tn_trainer_open(&open, &trainer, err);
    if (status != TN_OK)
        return status;
    if (r->folder)
        status = go_on(trainer, r, err);
    else if (tn_trainer_rank(trainer) == 0)
        status = start(trainer, experiment, r, ret, err);
    status = tn_trainer_agree(trainer, status, err);
    if (status == TN_OK)
        status = tn_trainer_run(trainer, err);
    const char *folder = r->folder ? r->folder : ret ? *ret : NULL;
    if (status == TN_E_STOPPED && folder && experiment->checkpoint_metric)
        add_way_on(folder, err);
    tn_trainer_close(trainer);
    return status;
}

static int32_t train_with_log(tenon *handle, const tn_experiment *experiment, request *r, char **ret, tn_error *err)
{
    tn_log before = handle->log;
    tn_error own = {0};
    err = err ? err : &own;
    int32_t status = tn_runlog_open(&before, &r->log, err);
    if (status != TN_OK)
        return status;
    handle->log = tn_runlog_log(r->log); /* the registry's too */
    status = train(handle, experiment, r, ret, err);
    handle->log = before;
    const tn_log log = tn_runlog_log(r->log);
    tn_runlog_mute(r->log); /* the caller hears of it by other ways */
    tn_log_write(&log, TN_LOG_INFO, "%s", status == TN_OK ? "the run has ended" : err->msg);
    tn_runlog_close(r->log);
    return status;
}

static int32_t read_and_train(tenon *handle, request *r, char **ret, tn_error *err)
{
    tn_experiment *experiment;
    fenv_t own;
    int32_t status = tn_experiment_read(handle->registry, r->path, r->overrides, r->override_count, &experiment, err);
    if (status != TN_OK)
        return status;
    /* Rounding and subnormals are the default's on every thread, whatever the caller has set for itself. */
    fegetenv(&own);
    fesetenv(FE_DFL_ENV);
    status = train_with_log(handle, experiment, r, ret, err);
    fesetenv(&own);
    tn_experiment_free(experiment);
    return status;
}

int32_t tenon_run(tenon *handle, const char *path, const char *const *overrides, size_t override_count,
                  const tenon_run_options *options, char **ret, tn_error *err)
{
    tenon_run_options taken = {.struct_size = sizeof taken};
    if (options)
        tn_take(&taken, sizeof taken, options);
    *ret = NULL;
    return read_and_train(handle, &(request){handle, NULL, path, NULL, overrides, override_count, &taken}, ret, err);
}

int32_t tenon_resume(tenon *handle, const char *folder, const char *const *overrides, size_t override_count,
                     const tenon_run_options *options, tn_error *err)
{
    tenon_run_options taken = {.struct_size = sizeof taken};
    char *path;
    int32_t status = tn_handle_experiment_of(folder, &path, err);
    if (status != TN_OK)
        return status;
    if (options)
        tn_take(&taken, sizeof taken, options);
    status =
        read_and_train(handle, &(request){handle, NULL, path, folder, overrides, override_count, &taken}, NULL, err);
    tn_free(path);
    return status;
}

int32_t tenon_resolve(tenon *handle, const char *path, const char *const *overrides, size_t override_count, char **ret,
                      tn_error *err)
{
    tn_experiment *experiment;
    int32_t status = tn_experiment_read(handle->registry, path, overrides, override_count, &experiment, err);
    if (status != TN_OK)
        return status;
    *ret = tn_strdup(experiment->resolved);
    tn_experiment_free(experiment);
    return *ret ? TN_OK : tn_error_set(err, TN_E_MEMORY, "no memory for the text");
}

const char *tenon_nearest(const char *word, const char *const *words, size_t count)
{
    return tn_nearest(word, words, count);
}

void tenon_free(char *text) { tn_free(text); }
const char *tenon_version(void) { return TENON_VERSION; }
