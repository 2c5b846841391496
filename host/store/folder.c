/* SPDX-License-Identifier: Apache-2.0
 *
 * folder.c: the folder of a run.
 */
#include "host/store/folder.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "host/base/error.h"
#include "host/base/memory.h"
#include "host/store/newfile.h"

static int32_t io_error(tn_error *err, const char *what, const char *path)
{
    return tn_error_set(err, TN_E_IO, "%s: can not %s: %s", path, what, strerror(errno));
}

/* Like mkdir -p. */
static int32_t make_parents(const char *path, tn_error *err)
{
    if (!*path)
        return tn_error_set(err, TN_E_INVALID,
                            "the folder for runs has an empty name; give one, or \".\" for this one");
    char *copy = tn_strdup(path);
    int32_t status = copy ? TN_OK : tn_error_set(err, TN_E_MEMORY, "no memory for a path");
    for (char *slash = copy; status == TN_OK && slash;) {
        slash = strchr(slash + 1, '/');
        if (slash)
            *slash = '\0';
        if (*copy && mkdir(copy, 0777) != 0 && errno != EEXIST)
            status = io_error(err, "make the folder", copy);
        if (slash)
            *slash = '/';
    }
    tn_free(copy);
    return status;
}

static void clean_name(char *name)
{
    if (*name == '.')
        *name = '-';
    for (; *name; name++)
        if (*name == '/' || (unsigned char)*name < ' ' || *name == 0x7F)
            *name = '-';
}

static char *candidate(const char *parent, const char *stamp, const char *name, int attempt)
{
    return attempt == 1 ? tn_format("%s/%s-%s", parent, stamp, name)
                        : tn_format("%s/%s-%s-%d", parent, stamp, name, attempt);
}

int32_t tn_folder_create(const char *parent, const char *name, char **ret, tn_error *err)
{
    char stamp[32];
    struct tm tm;
    time_t now = time(NULL);
    localtime_r(&now, &tm);
    snprintf(stamp, sizeof stamp, "%04d%02d%02d-%02d%02d%02d", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour,
             tm.tm_min, tm.tm_sec);
    char *clean = tn_strndup(name, 100);
    if (!clean)
        return tn_error_set(err, TN_E_MEMORY, "no memory for a path");
    clean_name(clean);
    int32_t status = make_parents(parent, err);
    for (int attempt = 1; status == TN_OK; attempt++) {
        char *path = candidate(parent, stamp, clean, attempt);
        if (path && mkdir(path, 0777) == 0) {
            *ret = path;
            break;
        }
        if (!path)
            status = tn_error_set(err, TN_E_MEMORY, "no memory for a path");
        else if (errno != EEXIST || attempt == 1000)
            status = io_error(err, "make the folder", path);
        tn_free(path);
    }
    tn_free(clean);
    return status;
}

int32_t tn_folder_write(const char *folder, const char *file, const void *bytes, size_t count, tn_error *err)
{
    tn_newfile new;
    char *path = tn_format("%s/%s", folder, file);
    if (!path)
        return tn_error_set(err, TN_E_MEMORY, "no memory for a path");
    int32_t status = tn_newfile_open(path, &new, err);
    if (status == TN_OK)
        status = tn_newfile_write(&new, bytes, count, err);
    tn_free(path);
    return tn_newfile_close(&new, status, err);
}
