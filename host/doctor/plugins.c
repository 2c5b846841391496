/* SPDX-License-Identifier: Apache-2.0
 *
 * plugins.c: are the plugins found, and can they be used?
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/base/memory.h"
#include "host/doctor/doctor.h"
#include "host/plugin/search.h"
#include "host/plugin/trust.h"

#define SEARCH "search path"

/* How many files and components that can be used are in a directory; how many others. */
static void count_in(const tn_registry *registry, const char *directory, size_t *ret_found, size_t *ret_refused)
{
    size_t length = strlen(directory);
    *ret_found = *ret_refused = 0;
    for (size_t i = 0; i < tn_registry_count(registry); i++) {
        const tn_entry_info *entry = tn_registry_at(registry, i);
        if (strncmp(entry->path, directory, length) || entry->path[length] != '/' ||
            strchr(entry->path + length + 1, '/'))
            continue;
        *ret_found += entry->state == TN_FOUND || entry->state == TN_SHADOWED;
        *ret_refused += entry->state == TN_REFUSED;
    }
}

static void examine_directory(tn_doctor *d, const char *directory)
{
    tn_error why;
    size_t found, refused;
    struct stat what;
    count_in(d->registry, directory, &found, &refused);
    if (stat(directory, &what) == 0 && !S_ISDIR(what.st_mode)) {
        tn_doctor_add(d, SEARCH, TN_DOCTOR_WRONG, "name the folder that plugins are in", "%s: is no folder", directory);
    } else if (access(directory, R_OK | X_OK) != 0) {
        int code = errno;
        char fix[PATH_MAX + 64];
        snprintf(fix, sizeof fix, "chmod u+rx '%s', or take it off TENON_PLUGIN_PATH", directory);
        tn_doctor_add(d, SEARCH, TN_DOCTOR_WRONG, fix, "%s: can not be read: %s", directory, strerror(code));
    } else if (tn_trust_check(directory, 1, &why) != TN_OK) {
        tn_doctor_add_error(d, SEARCH, &why);
    } else {
        tn_doctor_add(d, SEARCH, TN_DOCTOR_OK, NULL, "%s: %zu component%s, %zu refused", directory, found,
                      found == 1 ? "" : "s", refused);
    }
}

/* An entry of TENON_PLUGIN_PATH that leads nowhere; the search has left it out. */
static void examine_entry(tn_doctor *d, const char *entry)
{
    char real[PATH_MAX];
    char fix[PATH_MAX + 64];
    if (entry[0] != '/') {
        snprintf(fix, sizeof fix, "export TENON_PLUGIN_PATH=\"$PWD/%s\"", entry[0] ? entry : "plugins");
        tn_doctor_add(d, SEARCH, TN_DOCTOR_WRONG, fix, "TENON_PLUGIN_PATH: '%s' is not an absolute folder", entry);
    } else if (!realpath(entry, real)) {
        int code = errno;
        snprintf(fix, sizeof fix, "mkdir -p '%s', or take it off TENON_PLUGIN_PATH", entry);
        tn_doctor_add(d, SEARCH, TN_DOCTOR_WRONG, fix, "TENON_PLUGIN_PATH: %s: %s", entry, strerror(code));
    }
}

static void examine_environment(tn_doctor *d)
{
    const char *at = secure_getenv("TENON_PLUGIN_PATH");
    for (size_t length; at && *at; at += length + (at[length] == ':')) {
        length = strcspn(at, ":");
        char *entry = tn_strndup(at, length);
        d->failed |= !entry;
        if (entry)
            examine_entry(d, entry);
        tn_free(entry);
    }
}

static void examine_search(tn_doctor *d)
{
    static const tn_log silent;
    tn_search search;
    tn_error ignored;
    examine_environment(d);
    if (tn_search_path(0, &silent, &search, &ignored) != TN_OK) {
        d->failed = 1;
        return;
    }
    for (size_t i = 0; i < search.count; i++)
        examine_directory(d, search.directories[i]);
    tn_search_free(&search);
}

static int said_before(const tn_registry *registry, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (tn_registry_at(registry, k)->state == TN_REFUSED &&
            strcmp(tn_registry_at(registry, k)->reason, tn_registry_at(registry, i)->reason) == 0)
            return 1;
    return 0;
}

static void examine_entries(tn_doctor *d)
{
    size_t found = 0;
    for (size_t i = 0; i < tn_registry_count(d->registry); i++) {
        const tn_entry_info *entry = tn_registry_at(d->registry, i);
        const tn_component_info *info;
        tn_error why = {0};
        if (entry->state == TN_REFUSED && !said_before(d->registry, i))
            tn_doctor_add_reason(d, "plugins", TN_DOCTOR_WRONG, entry->reason);
        else if (entry->state == TN_SHADOWED)
            tn_doctor_add(d, "plugins", TN_DOCTOR_NOTE, "remove one of the files, or leave it so",
                          "%s/%s of %s is not used: %s comes first in the search path", entry->kind, entry->name,
                          entry->path, entry->reason);
        else if (entry->state == TN_NOT_PLUGIN)
            tn_doctor_add(d, "plugins", TN_DOCTOR_NOTE, NULL, "%s is no tenon plugin, and in the search path",
                          entry->path);
        else if (entry->state == TN_FOUND && tn_registry_info(d->registry, entry, &info, &why) != TN_OK)
            tn_doctor_add_error(d, "plugins", &why);
        else
            found += entry->state == TN_FOUND && !entry->own;
    }
    if (found > 0)
        tn_doctor_add(d, "plugins", TN_DOCTOR_OK, NULL, "%zu components can be used", found);
    else
        tn_doctor_add(d, "plugins", TN_DOCTOR_WRONG,
                      "install tenon whole (its plugins lie in tenon/1 beside libtenon), or set TENON_PLUGIN_PATH",
                      "there is no component that can be used");
}

void tn_doctor_plugins(tn_doctor *d)
{
    examine_search(d);
    examine_entries(d);
}
