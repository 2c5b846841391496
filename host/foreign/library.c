/* SPDX-License-Identifier: Apache-2.0
 *
 * library.c: where libraries are, and what they export.
 */
#include "host/foreign/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/base/memory.h"
#include "host/base/text.h"
#include "host/check/dynamic.h"
#include "host/plugin/loader.h"
#include "host/plugin/trust.h"

#define CONFIGURATION "/etc/ld.so.conf"
#define INCLUDES_MOST 4 /* files within one another */

/* The loader's own directories, which it looks into last. */
static const char *const own_directories[] = {
#if defined __x86_64__
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
#elif defined __aarch64__
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
#endif
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
};

typedef struct {
    const char *soname;
    char *path;       /* NULL until found */
    tn_error refusal; /* of the first file of that name that can not be used */
} search;

/* ---- finding ---- */

/* Trusted, and an object that can be mapped. */
static int32_t check_file(const char *path, tn_error *err)
{
    tn_dynamic dynamic;
    int32_t status = tn_trust_check(path, 0, err);
    if (status == TN_OK && (status = tn_dynamic_read(path, &dynamic, err)) == TN_OK)
        tn_dynamic_free(&dynamic);
    return status;
}

static int32_t take(const char *path, char **ret, tn_error *err)
{
    char real[PATH_MAX];
    if (!realpath(path, real))
        return tn_error_set(err, TN_E_NOT_FOUND, "%s: %s", path, strerror(errno));
    int32_t status = check_file(real, err);
    if (status == TN_OK && !(*ret = tn_strdup(real)))
        status = tn_error_set(err, TN_E_MEMORY, "%s: out of memory", real);
    return status;
}

static void look_in(search *s, const char *directory)
{
    char path[PATH_MAX];
    tn_error why = {0};
    if (s->path || directory[0] != '/' ||
        snprintf(path, sizeof path, "%s/%s", directory, s->soname) >= (int)sizeof path || access(path, F_OK) != 0)
        return;
    if (take(path, &s->path, &why) != TN_OK && s->refusal.code == TN_OK)
        s->refusal = why;
}

static void read_configuration(search *s, const char *path, int depth);

static void include(search *s, const char *pattern, int depth)
{
    char whole[PATH_MAX];
    glob_t found = {0};
    snprintf(whole, sizeof whole, "%s%s", pattern[0] == '/' ? "" : "/etc/", pattern);
    if (depth < INCLUDES_MOST && glob(whole, 0, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc; i++)
            read_configuration(s, found.gl_pathv[i], depth + 1);
    globfree(&found);
}

/* Lines of directories and "include PATTERN"; '#' begins a comment. */
static void read_configuration(search *s, const char *path, int depth)
{
    char line[PATH_MAX];
    FILE *file = s->path ? NULL : fopen(path, "re");
    while (file && !s->path && fgets(line, sizeof line, file)) {
        line[strcspn(line, "#\n")] = 0;
        char *start = line + strspn(line, " \t"), *end = start + strlen(start);
        while (end > start && (end[-1] == ' ' || end[-1] == '\t'))
            *--end = 0;
        if (strncmp(start, "include", 7) == 0 && (start[7] == ' ' || start[7] == '\t'))
            include(s, start + 7 + strspn(start + 7, " \t"), depth);
        else
            look_in(s, start);
    }
    if (file)
        fclose(file);
}

int32_t tn_foreign_find(const char *library, char **ret, tn_error *err)
{
    search s = {.soname = library};
    if (library[0] == '/')
        return take(library, ret, err);
    if (!library[0] || strchr(library, '/'))
        return tn_error_set(err, TN_E_INVALID,
                            "'%s' is no soname and no absolute path; give libm.so.6, or the whole path from /",
                            library);
    read_configuration(&s, CONFIGURATION, 0);
    for (size_t i = 0; i < sizeof own_directories / sizeof *own_directories; i++)
        look_in(&s, own_directories[i]);
    size_t length = strlen(library);
    int is_script =
        length > 3 && strcmp(library + length - 3, ".so") == 0; /* of the linker, or a link to the library */
    if (!s.path && s.refusal.code != TN_OK)
        return tn_error_set(err, s.refusal.code, "%s%s", s.refusal.msg,
                            is_script ? "; sonames end in a number, such as libm.so.6" : "");
    if (!s.path)
        return tn_error_set(err, TN_E_NOT_FOUND,
                            "there is no library '%s' in the system's directories, which are those of " CONFIGURATION
                            " and /lib, /usr/lib; install it, or give its path from /",
                            library);
    *ret = s.path;
    return TN_OK;
}

/* ---- functions ---- */

static int is_function(const Elf64_Sym *symbol)
{
    int type = ELF64_ST_TYPE(symbol->st_info);
    return type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_NOTYPE;
}

static int32_t not_exported(const char *path, const char *symbol, const tn_dynamic *dynamic, tn_error *err)
{
    const char **names = tn_alloc(dynamic->symbol_count + 1, sizeof *names);
    if (!names)
        return tn_error_set(err, TN_E_MEMORY, "%s: out of memory", path);
    for (size_t i = 0; i < dynamic->symbol_count; i++)
        if (tn_dynamic_exports(dynamic, i) && is_function(&dynamic->symbols[i]))
            names[i] = tn_dynamic_name(dynamic, i);
    const char *near = tn_nearest(symbol, names, dynamic->symbol_count);
    int32_t status = tn_error_set(err, TN_E_NOT_FOUND, "%s exports no function '%s'%s%s%s", path, symbol,
                                  near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    tn_free(names);
    return status;
}

int32_t tn_foreign_exports(const char *path, const char *symbol, tn_error *err)
{
    tn_dynamic dynamic;
    int32_t status = tn_dynamic_read(path, &dynamic, err);
    if (status != TN_OK)
        return status;
    size_t i = 0;
    while (i < dynamic.symbol_count &&
           (!tn_dynamic_exports(&dynamic, i) || strcmp(tn_dynamic_name(&dynamic, i), symbol) != 0))
        i++;
    if (i == dynamic.symbol_count)
        status = not_exported(path, symbol, &dynamic, err);
    else if (!is_function(&dynamic.symbols[i]))
        status = tn_error_set(err, TN_E_PLUGIN, "%s: '%s' is data, no function", path, symbol);
    tn_dynamic_free(&dynamic);
    return status;
}

int32_t tn_foreign_open(const char *path, const char *symbol, const tn_log *log, void (**ret)(void), tn_error *err)
{
    void *handle;
    int32_t status = check_file(path, err);
    if (status == TN_OK)
        status = tn_foreign_exports(path, symbol, err);
    if (status == TN_OK)
        status = tn_loader_map(path, log, &handle, err);
    if (status != TN_OK)
        return status;
    void *address = dlsym(handle, symbol);
    if (!address)
        return tn_error_set(err, TN_E_NOT_FOUND, "%s: '%s' is not there once it is loaded", path, symbol);
    memcpy(ret, &address, sizeof *ret);
    return TN_OK;
}
