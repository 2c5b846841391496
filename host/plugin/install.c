/* SPDX-License-Identifier: Apache-2.0
 *
 * install.c: a plugin file put where this user's plugins are found.
 */
#include "host/plugin/install.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/base/memory.h"
#include "host/plugin/elf.h"
#include "host/plugin/registry.h"
#include "host/plugin/search.h"
#include "host/plugin/trust.h"
#include "host/store/newfile.h"

typedef struct {
    const char *source; /* without links */
    char *target;
    int32_t force;
    const tn_log *log;
} task;

static int32_t no_memory(tn_error *err) { return tn_error_set(err, TN_E_MEMORY, "no memory to install a plugin"); }

/* ---- may it be there? ---- */

static int same_key(const tn_entry_info *a, const tn_entry_info *b)
{
    return tn_name_equal(a->kind, b->kind) && tn_name_equal(a->name, b->name) && strcmp(a->device, b->device) == 0 &&
           a->real == b->real;
}

/* Another file's component of the same key that is not about to be replaced. */
static int32_t check_others(const tn_registry *registry, const tn_entry_info *mine, const task *t, tn_error *err)
{
    for (size_t i = 0; i < tn_registry_count(registry) && !t->force; i++) {
        const tn_entry_info *other = tn_registry_at(registry, i);
        int usable = other->state == TN_FOUND || other->state == TN_SHADOWED;
        if (usable && same_key(mine, other) && strcmp(other->path, t->source) && strcmp(other->path, t->target))
            return tn_error_set(err, TN_E_INVALID,
                                "%s: not installed: %s/%s (%s %s) is there already: %s, version %s; with --force both "
                                "are kept and the first in the search path is used",
                                t->source, mine->kind, mine->name, mine->device, tn_real_name(mine->real, "any"),
                                other->path, other->version);
    }
    return TN_OK;
}

static int32_t check_component(tn_registry *registry, const tn_entry_info *mine, const task *t, tn_text *names,
                               tn_error *err)
{
    const tn_component_info *info;
    int32_t status = tn_registry_info(registry, mine, &info, err);
    if (status == TN_OK)
        status = check_others(registry, mine, t, err);
    if (status == TN_OK)
        tn_text_addf(names, "%s/%s (%s %s)\n", mine->kind, mine->name, mine->device, tn_real_name(mine->real, "any"));
    return status;
}

static int32_t check_all(const task *t, tn_text *names, tn_error *err)
{
    tn_registry *registry;
    int32_t status = tn_registry_open(t->log, &registry, err);
    if (status != TN_OK)
        return status;
    status = tn_registry_add_file(registry, t->source, err);
    for (size_t i = 0; status == TN_OK && i < tn_registry_count(registry); i++) {
        const tn_entry_info *entry = tn_registry_at(registry, i);
        if (strcmp(entry->path, t->source) == 0)
            status = check_component(registry, entry, t, names, err);
    }
    tn_registry_close(registry);
    return status;
}

static int32_t check_target(const task *t, tn_error *err)
{
    struct stat there;
    if (strcmp(t->source, t->target) == 0)
        return tn_error_set(err, TN_E_INVALID, "%s: is installed already, it is the file that is used", t->source);
    if (lstat(t->target, &there) != 0 || t->force)
        return TN_OK;
    return tn_error_set(
        err, TN_E_INVALID,
        "%s: not installed: %s is there already; replace it with --force, or give the file another name", t->source,
        t->target);
}

/* ---- the folder ---- */

/* Makes it and what is missing above it, for others to read but not to write. */
static int32_t make_folder(char *path, tn_error *err)
{
    for (char *slash = path; slash;) {
        slash = strchr(slash + 1, '/');
        if (slash)
            *slash = '\0';
        int failed = mkdir(path, 0755) != 0 && errno != EEXIST;
        if (failed)
            return tn_error_set(err, TN_E_IO, "%s: can not make the folder: %s", path, strerror(errno));
        if (slash)
            *slash = '/';
    }
    return TN_OK;
}

/* *ret is where the file is going to be; the folder need not be there yet. */
static int32_t choose_target(const char *source, char **ret, tn_error *err)
{
    char *folder, real[PATH_MAX];
    int32_t status = tn_search_user_folder(&folder, err);
    if (status != TN_OK)
        return status;
    *ret = tn_format("%s%s", realpath(folder, real) ? real : folder, strrchr(source, '/'));
    tn_free(folder);
    return *ret ? TN_OK : no_memory(err);
}

/* The folder must be one that no one else can write to. */
static int32_t prepare_folder(const task *t, tn_error *err)
{
    char real[PATH_MAX];
    char *folder = tn_strndup(t->target, (size_t)(strrchr(t->target, '/') - t->target));
    int32_t status = folder ? make_folder(folder, err) : no_memory(err);
    if (status == TN_OK && !realpath(folder, real))
        status = tn_error_set(err, TN_E_IO, "%s: can not be reached: %s", folder, strerror(errno));
    if (status == TN_OK)
        status = tn_trust_check(real, 1, err);
    tn_free(folder);
    return status;
}

/* ---- the file ---- */

static int32_t copy_bytes(const tn_file *from, tn_newfile *to, tn_error *err)
{
    char buffer[1 << 16];
    int32_t status = TN_OK;
    for (uint64_t at = 0, n; at < from->source.size && status == TN_OK; at += n) {
        n = from->source.size - at < sizeof buffer ? from->source.size - at : sizeof buffer;
        status = tn_source_read(&from->source, at, buffer, n);
        status = status == TN_OK ? tn_newfile_write(to, buffer, n, err)
                                 : tn_error_set(err, status, "%s: can not read", from->source.name);
    }
    if (status == TN_OK && fchmod(to->fd, 0644) != 0)
        status = tn_error_set(err, TN_E_IO, "%s: can not set its mode: %s", to->temporary, strerror(errno));
    return status;
}

/* `before`: the file that was checked. */
static int32_t copy(const task *t, const struct stat *before, tn_error *err)
{
    tn_file from;
    tn_newfile to;
    int32_t status = tn_file_open(AT_FDCWD, t->source, t->source, &from, err);
    if (status != TN_OK)
        return status;
    status = tn_newfile_open(t->target, &to, err);
    if (status == TN_OK)
        status = copy_bytes(&from, &to, err);
    struct stat now = from.stat;
    if (status == TN_OK && (fstat(from.source.fd, &now) != 0 || !tn_file_unchanged(before, &now)))
        status =
            tn_error_set(err, TN_E_PLUGIN, "STALE: %s: was changed while it was installed; start again", t->source);
    tn_file_close(&from);
    return tn_newfile_close(&to, status, err);
}

static int32_t install(const task *t, tn_installed *ret, tn_error *err)
{
    struct stat before;
    if (stat(t->source, &before) != 0)
        return tn_file_refuse(t->source, errno, err);
    int32_t status = check_all(t, &ret->names, err);
    if (status == TN_OK)
        status = check_target(t, err);
    if (status == TN_OK)
        status = prepare_folder(t, err);
    if (status == TN_OK)
        status = copy(t, &before, err);
    return status == TN_OK ? tn_text_status(&ret->names, err) : status;
}

static int32_t check_name(const char *source, tn_error *err)
{
    size_t length = strlen(source);
    const char *name = strrchr(source, '/') + 1;
    if (*name != '.' && length > 3 && strcmp(source + length - 3, ".so") == 0)
        return TN_OK;
    return tn_error_set(err, TN_E_INVALID, "%s: only files named *.so are found as plugins; rename it", source);
}

int32_t tn_install(const char *path, int32_t force, const tn_log *log, tn_installed *ret, tn_error *err)
{
    char source[PATH_MAX];
    task t = {.source = source, .force = force, .log = log};
    if (!realpath(path, source))
        return tn_file_refuse(path, errno, err);
    int32_t status = check_name(source, err);
    if (status == TN_OK)
        status = choose_target(source, &t.target, err);
    if (status != TN_OK)
        return status;
    *ret = (tn_installed){.path = t.target};
    status = install(&t, ret, err);
    if (status != TN_OK)
        tn_installed_free(ret);
    return status;
}

void tn_installed_free(tn_installed *installed)
{
    tn_free(installed->path);
    tn_text_free(&installed->names);
    installed->path = NULL;
}
