/* SPDX-License-Identifier: Apache-2.0
 *
 * search.c: the directories in which plugins are found.
 */
#include "host/plugin/search.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "host/base/memory.h"

static int32_t no_memory(tn_error *err)
{
    return tn_error_set(err, TN_E_MEMORY, "out of memory while the plugin search path was read");
}

static int is_known(const tn_search *search, const char *directory)
{
    for (size_t i = 0; i < search->count; i++) {
        if (strcmp(search->directories[i], directory) == 0)
            return 1;
    }
    return 0;
}

/* `named`: by the user, so that its absence is worth a word. */
static int32_t add(tn_search *search, const char *directory, int named, const tn_log *log, tn_error *err)
{
    char real[PATH_MAX];
    if (!realpath(directory, real)) {
        if (named || (errno != ENOENT && errno != ENOTDIR))
            tn_log_write(log, TN_LOG_WARNING, "%s: not searched for plugins: %s", directory, strerror(errno));
        return TN_OK;
    }
    if (is_known(search, real))
        return TN_OK;
    char **directories = tn_realloc(search->directories, search->count + 1, sizeof *directories);
    if (!directories)
        return no_memory(err);
    search->directories = directories;
    directories[search->count] = tn_strdup(real);
    if (!directories[search->count])
        return no_memory(err);
    search->count++;
    return TN_OK;
}

static int32_t add_environment(tn_search *search, const tn_log *log, tn_error *err)
{
    const char *at = getenv("TENON_PLUGIN_PATH");
    int32_t status = TN_OK;
    while (at && *at && !status) {
        size_t length = strcspn(at, ":");
        char *directory = tn_strndup(at, length);
        if (!directory)
            return no_memory(err);
        if (directory[0] == '/')
            status = add(search, directory, 1, log, err);
        else
            tn_log_write(log, TN_LOG_WARNING, "TENON_PLUGIN_PATH: '%s' is not an absolute directory, ignored",
                         directory);
        tn_free(directory);
        at += length + (at[length] == ':');
    }
    return status;
}

int32_t tn_search_user_folder(char **ret, tn_error *err)
{
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    int has_data = data && data[0] == '/';
    if (!has_data && !(home && home[0] == '/'))
        return tn_error_set(err, TN_E_NOT_FOUND,
                            "no folder for the user's plugins: neither HOME nor XDG_DATA_HOME is an absolute path; set "
                            "one of them");
    char *path = has_data ? tn_format("%s/tenon/plugins", data) : tn_format("%s/.local/share/tenon/plugins", home);
    if (!path)
        return no_memory(err);
    *ret = path;
    return TN_OK;
}

static int32_t add_user(tn_search *search, const tn_log *log, tn_error *err)
{
    char *path;
    int32_t status = tn_search_user_folder(&path, err);
    if (status)
        return status == TN_E_NOT_FOUND ? TN_OK : status;
    status = add(search, path, 0, log, err);
    tn_free(path);
    return status;
}

int tn_search_own_file(char *ret)
{
    static const char here;
    Dl_info info;
    void *extra = NULL;
    if (!dladdr1(&here, &info, &extra, RTLD_DL_LINKMAP) || !extra)
        return 0;
    const struct link_map *map = extra;
    return realpath(map->l_name[0] ? map->l_name : "/proc/self/exe", ret) != NULL; /* the program itself has no name */
}

int tn_search_own_folder(char *ret)
{
    if (!tn_search_own_file(ret))
        return 0;
    *strrchr(ret, '/') = 0;
    return 1;
}

static int32_t add_below(tn_search *search, const char *directory, const char *below, const tn_log *log, tn_error *err)
{
    char *path = tn_format("%s/%s", directory, below);
    if (!path)
        return no_memory(err);
    int32_t status = add(search, path, 0, log, err);
    tn_free(path);
    return status;
}

static int32_t add_own(tn_search *search, const tn_log *log, tn_error *err)
{
    static const char *const below[] = {"plugins", "tenon/1"};
    char directory[PATH_MAX];
    int32_t status = TN_OK;
    if (!tn_search_own_folder(directory))
        return TN_OK;
    for (size_t i = 0; i < sizeof below / sizeof *below && !status; i++)
        status = add_below(search, directory, below[i], log, err);
    return status;
}

int32_t tn_search_path(int secure, const tn_log *log, tn_search *ret, tn_error *err)
{
    tn_search search = {0};
    int32_t status = secure ? TN_OK : add_environment(&search, log, err);
    if (!status && !secure)
        status = add_user(&search, log, err);
    if (!status)
        status = add_own(&search, log, err);
    if (status)
        tn_search_free(&search);
    else
        *ret = search;
    return status;
}

void tn_search_free(tn_search *search)
{
    for (size_t i = 0; i < search->count; i++)
        tn_free(search->directories[i]);
    tn_free(search->directories);
    *search = (tn_search){0};
}
