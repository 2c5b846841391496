/* SPDX-License-Identifier: Apache-2.0
 *
 * scan.c: files looked at for listing.
 */
#include "host/plugin/scan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/base/memory.h"
#include "host/plugin/trust.h"

static int32_t no_memory(tn_error *err)
{
    return tn_error_set(err, TN_E_MEMORY, "out of memory while plugins were looked for");
}

/* ---- one file ---- */

static void free_file(tn_scanned *file)
{
    if (!file)
        return;
    tn_notes_free(&file->notes);
    tn_free(file->path);
    tn_free(file->refusal);
    tn_free(file->untrusted);
    tn_free(file);
}

/* Keeps a message as the reason; running out of memory is an error instead. */
static int32_t keep(const tn_error *why, char **ret, tn_error *err)
{
    if (why->code == TN_E_MEMORY || !(*ret = tn_strdup(why->msg)))
        return no_memory(err);
    return TN_OK;
}

static int32_t read_notes(const tn_source *source, tn_notes *ret, tn_error *err)
{
    tn_elf elf;
    int32_t status = tn_elf_open(source, &elf, err);
    if (!status)
        status = tn_notes_read(&elf, ret, err);
    if (!status && ret->count == 1) {
        tn_notes_free(ret);
        status = tn_error_set(err, TN_E_PLUGIN, "NOTE_INVALID: %s: a plugin without components; see TN_PLUGIN",
                              source->name);
    }
    return status;
}

/* Reads `name` in `dirfd`, which messages call `path`, into a file of its own. What is wrong with it is its refusal. */
static int32_t read_file(int dirfd, const char *name, const char *path, tn_scanned **ret, tn_error *err)
{
    tn_scanned *file = tn_alloc(1, sizeof *file);
    if (!file || !(file->path = tn_strdup(path))) {
        free_file(file);
        return no_memory(err);
    }
    tn_file opened;
    tn_error why;
    int32_t status = TN_OK, refused = tn_file_open(dirfd, name, file->path, &opened, &why);
    if (!refused) {
        file->stat = opened.stat;
        refused = read_notes(&opened.source, &file->notes, &why);
        tn_file_close(&opened);
    }
    if (refused) {
        file->status = refused;
        status = keep(&why, &file->refusal, err);
    }
    if (status)
        free_file(file);
    else
        *ret = file;
    return status;
}

/* ---- the list ---- */

static tn_scanned *find_same(const tn_scan *scan, const tn_scanned *file)
{
    if (file->stat.st_ino == 0) /* never opened */
        return NULL;
    for (size_t i = 0; i < scan->count; i++) {
        const struct stat *s = &scan->files[i]->stat;
        if (s->st_ino == file->stat.st_ino && s->st_dev == file->stat.st_dev)
            return scan->files[i];
    }
    return NULL;
}

static int32_t append(tn_scan *scan, tn_scanned *file, tn_error *err)
{
    if (tn_grow(&scan->files, &scan->capacity, scan->count, sizeof file))
        return no_memory(err);
    scan->files[scan->count++] = file;
    return TN_OK;
}

void tn_scan_drop_last(tn_scan *scan) { free_file(scan->files[--scan->count]); }

void tn_scan_free(tn_scan *scan)
{
    for (size_t i = 0; i < scan->count; i++)
        free_file(scan->files[i]);
    tn_free(scan->files);
    *scan = (tn_scan){0};
}

/* ---- directories ---- */

typedef struct {
    const char *path;
    int fd;
    const tn_error *untrusted; /* NULL if it is trusted */
} directory;

typedef struct {
    char *name;
    int is_link;
} file_name;

static int32_t judge(const directory *in, int is_link, tn_scanned *file, tn_error *err)
{
    tn_error why;
    if (in->untrusted)
        why = *in->untrusted;
    else if (is_link ? tn_trust_check(file->path, 0, &why) == TN_OK
                     : tn_trust_check_one(file->path, &file->stat, 0, &why) == TN_OK)
        return TN_OK;
    return keep(&why, &file->untrusted, err);
}

/* A file that can not be reached, e.g. through a link that leads nowhere. */
static int32_t unreachable(const char *path, int code, tn_scanned **ret, tn_error *err)
{
    tn_error why;
    int32_t status = tn_file_refuse(path, code, &why);
    tn_scanned *file = tn_alloc(1, sizeof *file);
    if (!file || !(file->path = tn_strdup(path)) || keep(&why, &file->refusal, err)) {
        free_file(file);
        return no_memory(err);
    }
    file->status = status;
    *ret = file;
    return TN_OK;
}

static int32_t read_entry(const directory *in, const file_name *name, tn_scanned **ret, tn_error *err)
{
    char path[PATH_MAX + 256 + 1], target[PATH_MAX]; /* a directory, a slash and a name of at most 255 bytes */
    stpcpy(stpcpy(stpcpy(path, in->path), "/"), name->name);
    if (!name->is_link)
        return read_file(in->fd, name->name, path, ret, err);
    if (!realpath(path, target))
        return unreachable(path, errno, ret, err);
    return read_file(AT_FDCWD, target, target, ret, err);
}

/* A file that was reached by an untrusted path is now reached by a trusted one. */
static void redeem(tn_scanned *known, tn_scanned *file)
{
    if (!known->untrusted || file->untrusted)
        return;
    char *path = known->path;
    known->path = file->path;
    file->path = path;
    tn_free(known->untrusted);
    known->untrusted = NULL;
}

static int32_t add_entry(tn_scan *scan, const directory *in, const file_name *name, tn_error *err)
{
    tn_scanned *file;
    int32_t status = read_entry(in, name, &file, err);
    if (status)
        return status;
    tn_scanned *known = find_same(scan, file);
    if (!file->refusal)
        status = judge(in, name->is_link, file, err);
    if (!status && known)
        redeem(known, file);
    if (!status && !known)
        status = append(scan, file, err);
    if (status || known)
        free_file(file);
    return status;
}

static int is_wanted(const char *name)
{
    size_t length = strlen(name);
    return length > 3 && strcmp(name + length - 3, ".so") == 0;
}

static int is_link(DIR *dir, const struct dirent *entry)
{
    struct stat stat;
    if (entry->d_type != DT_UNKNOWN)
        return entry->d_type == DT_LNK;
    return fstatat(dirfd(dir), entry->d_name, &stat, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(stat.st_mode);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const file_name *)a)->name, ((const file_name *)b)->name);
}

static void free_names(file_name *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        tn_free(names[i].name);
    tn_free(names);
}

/* The names of a directory's *.so in order; the caller frees them with free_names. */
static int32_t read_names(DIR *dir, file_name **ret, size_t *ret_count, tn_error *err)
{
    file_name *names = NULL;
    size_t count = 0, capacity = 0;
    const struct dirent *entry;
    while ((entry = readdir(dir))) {
        if (!is_wanted(entry->d_name))
            continue;
        if (tn_grow(&names, &capacity, count, sizeof *names))
            break;
        names[count] = (file_name){tn_strdup(entry->d_name), is_link(dir, entry)};
        if (!names[count].name)
            break;
        count++;
    }
    if (entry) {
        free_names(names, count);
        return no_memory(err);
    }
    if (count > 1)
        qsort(names, count, sizeof *names, by_name);
    *ret = names;
    *ret_count = count;
    return TN_OK;
}

static int32_t scan_open(tn_scan *scan, DIR *dir, const char *path, tn_error *err)
{
    tn_error why;
    int untrusted = tn_trust_check(path, 1, &why) != TN_OK;
    directory in = {path, dirfd(dir), untrusted ? &why : NULL};
    file_name *names = NULL;
    size_t count = 0;
    int32_t status = read_names(dir, &names, &count, err);
    if (status)
        return status;
    for (size_t i = 0; i < count && !status; i++)
        status = add_entry(scan, &in, &names[i], err);
    free_names(names, count);
    return status;
}

int32_t tn_scan_directory(tn_scan *scan, const char *path, const tn_log *log, tn_error *err)
{
    DIR *dir = opendir(path);
    if (!dir) {
        tn_log_write(log, TN_LOG_WARNING, "%s: not searched for plugins: %s", path, strerror(errno));
        return TN_OK;
    }
    int32_t status = scan_open(scan, dir, path, err);
    closedir(dir);
    return status;
}

/* ---- named files ---- */

static int32_t check_named(const tn_scanned *file, tn_error *err)
{
    if (file->refusal)
        return tn_error_set(err, file->status, "%s", file->refusal);
    if (file->notes.count == 0)
        return tn_error_set(err, TN_E_PLUGIN, "NOT_PLUGIN: %s: no TENON note; this is not a tenon plugin", file->path);
    return TN_OK;
}

static int32_t adopt(tn_scan *scan, tn_scanned *file, tn_scanned **ret, tn_error *err)
{
    tn_scanned *known = find_same(scan, file);
    int32_t status = check_named(file, err);
    if (!status && known && !tn_file_unchanged(&known->stat, &file->stat))
        status = tn_error_set(err, TN_E_PLUGIN, "STALE: %s: was changed since it was listed; start again", file->path);
    if (!status && !known)
        status = append(scan, file, err);
    if (status || known)
        free_file(file);
    if (!status)
        *ret = known ? known : file;
    return status;
}

int32_t tn_scan_named(tn_scan *scan, const char *path, const tn_log *log, tn_scanned **ret, tn_error *err)
{
    char real[PATH_MAX];
    if (!realpath(path, real))
        return tn_file_refuse(path, errno, err);
    tn_scanned *file;
    int32_t status = read_file(AT_FDCWD, real, real, &file, err);
    if (!status)
        status = adopt(scan, file, &file, err);
    if (status)
        return status;
    tn_error why;
    if (tn_trust_check(real, 0, &why))
        tn_log_write(log, TN_LOG_WARNING, "%s (used all the same, because you named it)", why.msg);
    file->named = 1;
    *ret = file;
    return TN_OK;
}
