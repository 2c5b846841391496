/* SPDX-License-Identifier: Apache-2.0
 *
 * environment.c: what a run ran on.
 */
#include "host/store/environment.h"

#include <gnu/libc-version.h>
#include <inttypes.h>
#include <jansson.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <tenon/plugin.h>

#include "host/base/memory.h"
#include "host/plugin/hash.h"
#include "host/store/folder.h"

#define FILE_NAME "environment"

extern char **environ;

static int32_t no_memory(tn_error *err) { return tn_error_set(err, TN_E_MEMORY, "no memory for the environment"); }

/* A text that need not be UTF-8, such as a path; NULL: no memory. */
static json_t *text_json(const char *bytes)
{
    json_t *text = json_string(bytes);
    if (text || !bytes)
        return text ? text : json_null();
    tn_text repaired = {0};
    tn_text_json(&repaired, bytes);
    text = json_loads(tn_text_string(&repaired), JSON_DECODE_ANY, NULL);
    tn_text_free(&repaired);
    return text;
}

/* ---- the machine ---- */

/* "model name" of the first processor; the machine's name elsewhere. */
static json_t *processor_model(void)
{
    char line[512];
    struct utsname name;
    json_t *ret = NULL;
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file && !ret && fgets(line, sizeof line, file)) {
        char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && value) {
            value[strcspn(value, "\n")] = '\0';
            ret = text_json(value + 1 + strspn(value + 1, " "));
        }
    }
    if (file)
        fclose(file);
    return ret ? ret : text_json(uname(&name) == 0 ? name.machine : "unknown");
}

static int usable_processors(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
}

static json_t *machine_json(void)
{
    struct utsname name = {0};
    uname(&name);
    long long memory = (long long)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
    return json_pack("{s:o, s:i, s:I, s:o, s:o, s:o, s:o, s:o}", "processor", processor_model(), "processors",
                     usable_processors(), "memory", (json_int_t)memory, "machine", text_json(name.machine), "system",
                     text_json(name.sysname), "release", text_json(name.release), "host", text_json(name.nodename),
                     "libc", text_json(gnu_get_libc_version()));
}

/* Variables that change what a run does. NULL: no memory. */
static json_t *variables_json(void)
{
    static const char *const prefixes[] = {"TENON_", "OPENBLAS_", "OMP_",       "MKL_",
                                           "BLIS_",  "GOTO_",     "LD_PRELOAD", "LD_LIBRARY_PATH"};
    json_t *all = json_object();
    int failed = !all;
    for (char **at = environ; at && *at && !failed; at++)
        for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes && !failed; i++) {
            size_t length = strcspn(*at, "=");
            if (strncmp(*at, prefixes[i], strlen(prefixes[i])) != 0 || !(*at)[length])
                continue;
            char *name = tn_strndup(*at, length);
            failed = !name || json_object_set_new(all, name, text_json(*at + length + 1)) != 0;
            tn_free(name);
        }
    if (failed)
        json_decref(all);
    return failed ? NULL : all;
}

/* ---- the plugins ---- */

static json_t *find_file(const json_t *files, const char *path)
{
    size_t i;
    json_t *file, *wanted = text_json(path), *found = NULL;
    json_array_foreach(files, i, file)
        if (json_equal(json_object_get(file, "path"), wanted))
            found = file;
    json_decref(wanted);
    return found;
}

static int32_t add_component(json_t *files, const tn_entry_info *entry, tn_error *err)
{
    json_t *file = find_file(files, entry->path);
    char hash[TN_HASH_TEXT],
        *name = tn_format("%s/%s (%s %s)", entry->kind, entry->name, entry->device, tn_real_name(entry->real, "any"));
    int32_t status = name ? TN_OK : no_memory(err);
    if (status == TN_OK && !file && (status = tn_hash_file(entry->path, hash, err)) == TN_OK) {
        file = json_pack("{s:o, s:o, s:o, s:s, s:[]}", "plugin", text_json(entry->plugin), "version",
                         text_json(entry->version), "path", text_json(entry->path), "xxh128", hash, "components");
        status = json_array_append_new(files, file) == 0 ? TN_OK : no_memory(err);
    }
    if (status == TN_OK)
        status =
            json_array_append_new(json_object_get(file, "components"), text_json(name)) == 0 ? TN_OK : no_memory(err);
    tn_free(name);
    return status;
}

static int32_t add_plugins(const tn_registry *registry, json_t *files, tn_error *err)
{
    int32_t status = TN_OK;
    for (size_t i = 0; i < tn_registry_count(registry) && status == TN_OK; i++)
        if (tn_registry_at(registry, i)->loaded)
            status = add_component(files, tn_registry_at(registry, i), err);
    return status;
}

/* ---- the whole ---- */

static json_t *now_json(void)
{
    char text[32];
    struct tm tm;
    time_t now = time(NULL);
    gmtime_r(&now, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return json_string(text);
}

static json_t *whole_json(const tn_environment *e)
{
    char abi[32];
    snprintf(abi, sizeof abi, "%d.%d", TN_ABI_MAJOR, TN_ABI_MINOR);
    return json_pack("{s:s, s:s, s:o, s:I, s:i, s:i, s:o, s:o, s:o, s:[]}", "tenon", e->version, "abi", abi, "time",
                     now_json(), "attempt", (json_int_t)e->attempt, "threads", e->threads, "processes", e->processes,
                     "backend", text_json(e->backend), "machine", machine_json(), "variables", variables_json(),
                     "plugins");
}

static int32_t write_json(const json_t *root, const char *folder, const char *name, tn_error *err)
{
    char *text = json_dumps(root, JSON_INDENT(2));
    if (!text)
        return no_memory(err);
    size_t size = strlen(text);
    text[size] = '\n'; /* in place of the NUL, which is not written */
    int32_t status = tn_folder_write(folder, name, text, size + 1, err);
    free(text);
    return status;
}

/* ---- what changed since the run began ---- */

static const char *string_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "unknown";
}

static void compare_plugins(const json_t *before, const json_t *now, const tn_log *log)
{
    size_t i, k;
    json_t *new, *old;
    json_array_foreach(json_object_get(now, "plugins"), i, new)
        json_array_foreach(json_object_get(before, "plugins"), k, old)
            if (json_equal(json_object_get(old, "plugin"), json_object_get(new, "plugin")) &&
                json_equal(json_object_get(old, "components"), json_object_get(new, "components")) &&
                !json_equal(json_object_get(old, "xxh128"), json_object_get(new, "xxh128")))
                tn_log_write(log, TN_LOG_WARNING,
                             "the run began with another build of the plugin %s: version %s then, %s now (%s); the "
                             "numbers may not be those of a run that never stopped",
                             string_of(new, "plugin"), string_of(old, "version"), string_of(new, "version"),
                             string_of(new, "path"));
}

static void compare_text(const json_t *before, const json_t *now, const char *key, const tn_log *log)
{
    if (json_is_string(json_object_get(before, key)) &&
        !json_equal(json_object_get(before, key), json_object_get(now, key)))
        tn_log_write(log, TN_LOG_WARNING,
                     "the run began with the %s \"%s\", now it is \"%s\"; the numbers may differ in their last bits",
                     key, string_of(before, key), string_of(now, key));
}

static int32_t compare(const char *folder, const json_t *now, const tn_log *log, tn_error *err)
{
    char *path = tn_format("%s/" FILE_NAME ".json", folder);
    if (!path)
        return no_memory(err);
    json_t *before = json_load_file(path, 0, NULL); /* NULL: there is nothing to compare with */
    compare_plugins(before, now, log);
    compare_text(before, now, "tenon", log);
    compare_text(before, now, "backend", log);
    compare_text(json_object_get(before, "machine"), json_object_get(now, "machine"), "processor", log);
    json_decref(before);
    tn_free(path);
    return TN_OK;
}

int32_t tn_environment_write(const tn_environment *environment, const char *folder, int32_t goes_on, const tn_log *log,
                             tn_error *err)
{
    char name[64] = FILE_NAME ".json";
    json_t *root = whole_json(environment);
    int32_t status = root ? add_plugins(environment->registry, json_object_get(root, "plugins"), err) : no_memory(err);
    if (status == TN_OK && goes_on) {
        status = compare(folder, root, log, err);
        snprintf(name, sizeof name, FILE_NAME "-%" PRId64 ".json", environment->attempt);
    }
    if (status == TN_OK)
        status = write_json(root, folder, name, err);
    json_decref(root);
    return status;
}
