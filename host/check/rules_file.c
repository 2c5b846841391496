/* SPDX-License-Identifier: Apache-2.0
 *
 * rules_file.c: what is required of a plugin's file as a whole.
 *
 * The rules up to file-record look at the bytes of the file. Those behind it map it and call its entry; where
 * file-record finds that this fails, they are skipped.
 */
#include "host/check/rules_file.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "host/check/dynamic.h"
#include "host/plugin/loader.h"

#define NAMES_BYTES 400 /* of symbols that a message lists */

static bool is_file(const tn_check_subject *subject) { return !subject->entry; }

/* ---- notes ---- */

static void run_note(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_error err = {0};
    const tn_component_info *info;
    for (size_t i = 0; i < tn_registry_count(subject->registry); i++) {
        const tn_entry_info *entry = tn_registry_at(subject->registry, i);
        if (strcmp(entry->path, subject->path) != 0)
            continue;
        if (entry->state == TN_REFUSED)
            tn_check_fail(finding, "%s", entry->reason);
        else if (tn_registry_info(subject->registry, entry, &info, &err) != TN_OK)
            tn_check_fail(finding, "%s", err.msg);
    }
}

/* ---- symbols ---- */

/* "a, b, c and 4 more" */
typedef struct {
    char text[NAMES_BYTES];
    size_t used, count;
} names;

static void add_name(names *list, const char *name)
{
    size_t room = sizeof list->text - list->used;
    int n = snprintf(list->text + list->used, room, "%s%s", list->used ? ", " : "", name);
    if (n > 0 && (size_t)n < room)
        list->used += (size_t)n;
    list->text[list->used] = '\0';
    list->count++;
}

static bool read_dynamic(const tn_check_subject *subject, tn_dynamic *ret, tn_check_finding *finding)
{
    tn_error err = {0};
    if (tn_dynamic_read(subject->path, ret, &err) == TN_OK)
        return true;
    tn_check_skip(finding, "%s", err.msg);
    return false;
}

/* What toolchains add by themselves: clang's resolvers of functions with several variants, and marks of old linkers. */
static bool is_made_by_tools(const char *name)
{
    static const char *const known[] = {"_init", "_fini", "__bss_start", "_edata", "_end", "_start"};
    size_t length = strlen(name), resolver = strlen(".resolver");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(name, known[i]) == 0)
            return true;
    return length > resolver && strcmp(name + length - resolver, ".resolver") == 0;
}

/* What the loader itself has, and a sanitizer's functions, which are in the program. */
static bool is_everywhere(const char *name)
{
    static const char *const begins[] = {"__tls_get_addr", "__asan_", "__ubsan_", "__tsan_", "__sanitizer_", "__lsan_"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(name, begins[i], strlen(begins[i])) == 0)
            return true;
    return false;
}

static bool is_shared_binding(const Elf64_Sym *symbol)
{
    int binding = ELF64_ST_BIND(symbol->st_info);
    return binding == STB_WEAK || binding == STB_GNU_UNIQUE;
}

static void run_one_symbol(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_dynamic dynamic;
    names more = {0};
    bool entry = false;
    if (!read_dynamic(subject, &dynamic, finding))
        return;
    for (size_t i = 0; i < dynamic.symbol_count; i++) {
        const char *name = tn_dynamic_name(&dynamic, i);
        if (!tn_dynamic_exports(&dynamic, i))
            continue;
        bool is_entry = strcmp(name, TN_ENTRY) == 0;
        entry = entry || is_entry;
        if (!is_entry && !is_shared_binding(&dynamic.symbols[i]) && !is_made_by_tools(name))
            add_name(&more, name);
    }
    if (!entry)
        tn_check_fail(finding, "%s is not among its symbols; end the source with TN_PLUGIN and keep it visible",
                      TN_ENTRY);
    else if (more.count)
        tn_check_fail(finding,
                      "it shows %zu symbol%s beside %s: %s; make them static, or compile with -fvisibility=hidden",
                      more.count, more.count == 1 ? "" : "s", TN_ENTRY, more.text);
}

static void run_leaked(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_dynamic dynamic;
    names leaked = {0};
    if (!read_dynamic(subject, &dynamic, finding))
        return;
    for (size_t i = 0; i < dynamic.symbol_count; i++)
        if (tn_dynamic_exports(&dynamic, i) && is_shared_binding(&dynamic.symbols[i]))
            add_name(&leaked, tn_dynamic_name(&dynamic, i));
    if (leaked.count)
        tn_check_fail(finding,
                      "%zu weak or unique symbol%s that the loader would merge with those of other files: %s; compile "
                      "with -fvisibility=hidden -fvisibility-inlines-hidden, C++ with -fno-gnu-unique, and link with "
                      "-Wl,--exclude-libs,ALL or a version script",
                      leaked.count, leaked.count == 1 ? "" : "s", leaked.text);
}

/* ---- symbols that it needs ---- */

/* A needed library as the loader would find it for this file: in the folders of its run path, else by name. */
static void *open_needed(const tn_check_subject *subject, const tn_dynamic *dynamic, const char *name)
{
    char path[PATH_MAX];
    int folder = (int)(strrchr(subject->path, '/') - subject->path);
    for (const char *at = dynamic->run_path; *at; at += strspn(at, ":")) {
        int length = (int)strcspn(at, ":"), skip = strncmp(at, "$ORIGIN", 7) == 0 ? 7 : 0;
        snprintf(path, sizeof path, "%.*s%.*s/%s", skip ? folder : 0, subject->path, length - skip, at + skip, name);
        void *handle = access(path, R_OK) == 0 ? dlopen(path, RTLD_LAZY | RTLD_LOCAL) : NULL;
        if (handle)
            return handle;
        at += length;
    }
    return dlopen(name, RTLD_LAZY | RTLD_LOCAL);
}

static bool open_all_needed(const tn_check_subject *subject, const tn_dynamic *dynamic, void **ret,
                            tn_check_finding *finding)
{
    for (size_t i = 0; i < dynamic->needed_count; i++) {
        const char *name = dynamic->needed[i];
        tn_check_stage(subject, "loading %s", name);
        if (strncmp(name, "libtenon.", 9) == 0)
            tn_check_fail(finding,
                          "it is linked to %s; a plugin gets from the host what its calls are lent, and links "
                          "nothing of it",
                          name);
        else if (!(ret[i] = open_needed(subject, dynamic, name)))
            tn_check_fail(finding, "it needs %s, which can not be loaded: %s; install it, or link it into the plugin",
                          name, dlerror());
    }
    tn_check_stage(subject, NULL);
    return finding->verdict == TN_CHECK_PASSED;
}

bool tn_check_open_needed(const tn_check_subject *subject, tn_dynamic *ret, tn_check_finding *finding)
{
    void *handles[TN_DYNAMIC_NEEDED_MOST] = {0};
    return read_dynamic(subject, ret, finding) && open_all_needed(subject, ret, handles, finding);
}

static bool is_provided(const char *name, void *const *handles, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (dlsym(handles[i], name))
            return true;
    return false;
}

static bool defines(const tn_dynamic *dynamic, const char *name)
{
    for (size_t i = 0; i < dynamic->symbol_count; i++)
        if (dynamic->symbols[i].st_shndx != SHN_UNDEF && strcmp(tn_dynamic_name(dynamic, i), name) == 0)
            return true;
    return false;
}

static void tell_missing(const names *nowhere, const names *host, tn_check_finding *finding)
{
    if (nowhere->count)
        tn_check_fail(finding, "no library that it is linked to has %s; link what has it (-Wl,-z,defs finds such gaps)",
                      nowhere->text);
    if (host->count)
        tn_check_fail(finding,
                      "it uses %s, which it finds only because the program has it loaded: link the library that has "
                      "it, or leave it alone if it is the host's own",
                      host->text);
}

static void run_undefined(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_dynamic dynamic;
    void *handles[TN_DYNAMIC_NEEDED_MOST] = {0};
    names nowhere = {0}, host = {0};
    if (!read_dynamic(subject, &dynamic, finding) || !open_all_needed(subject, &dynamic, handles, finding))
        return;
    for (size_t i = 1; i < dynamic.symbol_count; i++) {
        const Elf64_Sym *symbol = &dynamic.symbols[i];
        const char *name = tn_dynamic_name(&dynamic, i);
        if (symbol->st_shndx != SHN_UNDEF || ELF64_ST_BIND(symbol->st_info) == STB_WEAK || !*name ||
            is_provided(name, handles, dynamic.needed_count) || defines(&dynamic, name) || is_everywhere(name))
            continue;
        add_name(dlsym(RTLD_DEFAULT, name) ? &host : &nowhere, name);
    }
    tell_missing(&nowhere, &host, finding);
}

/* ---- how it is linked ---- */

static void run_text_relocations(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_dynamic dynamic;
    if (read_dynamic(subject, &dynamic, finding) && dynamic.is_relocated)
        tn_check_fail(finding, "its code is changed as it is loaded (DT_TEXTREL), which hardened systems refuse; "
                               "compile everything in it with -fPIC");
}

static void run_stack(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_dynamic dynamic;
    if (!read_dynamic(subject, &dynamic, finding))
        return;
    if (dynamic.stack_flags < 0)
        tn_check_fail(finding, "it does not say whether its stack is to be executable (no PT_GNU_STACK), so it is; "
                               "link with -Wl,-z,noexecstack");
    else if (dynamic.stack_flags & PF_X)
        tn_check_fail(finding, "it makes the stack of the whole process executable: a nested function whose address "
                               "is taken, or assembly without .note.GNU-stack; link with -Wl,-z,noexecstack");
}

static void run_static_tls(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_dynamic dynamic;
    if (read_dynamic(subject, &dynamic, finding) && (dynamic.flags & DF_STATIC_TLS))
        tn_check_fail(finding, "its thread-local variables take from the little room that a process has for files "
                               "loaded later (DF_STATIC_TLS); compile without -ftls-model=initial-exec");
}

/* ---- names of files ---- */

static void check_soname(const tn_check_subject *subject, const tn_dynamic *mine, const char *other,
                         tn_check_finding *finding)
{
    tn_dynamic theirs;
    if (strcmp(other, subject->path) == 0 || tn_dynamic_read(other, &theirs, NULL) != TN_OK)
        return;
    if (strcmp(mine->soname, theirs.soname) == 0)
        tn_check_fail(finding, "its soname %s is also that of %s; link without -soname, or give it a name of its own",
                      mine->soname, other);
    tn_dynamic_free(&theirs);
}

/* Files beside others that it brings along: the loader takes the first of a name for all. */
static void check_bundled(const tn_check_subject *subject, const tn_dynamic *dynamic, tn_check_finding *finding)
{
    char path[PATH_MAX];
    int folder = (int)(strrchr(subject->path, '/') - subject->path);
    for (size_t i = 0; i < dynamic->needed_count && strstr(dynamic->run_path, "$ORIGIN"); i++) {
        snprintf(path, sizeof path, "%.*s/%s", folder, subject->path, dynamic->needed[i]);
        if (access(path, R_OK) == 0 && dlopen(dynamic->needed[i], RTLD_LAZY | RTLD_NOLOAD))
            tn_check_fail(finding,
                          "it brings %s along, but the program has one of that name loaded, which is taken instead; "
                          "link it statically or give the file another name",
                          dynamic->needed[i]);
    }
}

static void run_soname(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_dynamic dynamic;
    if (!read_dynamic(subject, &dynamic, finding))
        return;
    check_bundled(subject, &dynamic, finding);
    if (!*dynamic.soname)
        return;
    if (dlopen(dynamic.soname, RTLD_LAZY | RTLD_NOLOAD))
        tn_check_fail(finding, "its soname %s is that of a library which the program has loaded; link without -soname",
                      dynamic.soname);
    for (size_t i = 0; i < tn_registry_count(subject->registry); i++)
        check_soname(subject, &dynamic, tn_registry_at(subject->registry, i)->path, finding);
}

/* ---- the record ---- */

static void run_record(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_error err = {0};
    tn_library *library;
    tn_check_stage(subject, "loading it");
    if (tn_loader_open(subject->path, NULL, &library, &err) != TN_OK)
        tn_check_fail(finding, "%s", err.msg);
}

/* ---- the table ---- */

static bool has_against(const tn_check_subject *subject) { return is_file(subject) && subject->against; }

const tn_check_rule tn_check_file_rules[] = {
    {"file-note", "the notes parse and state only what this host knows, so that experiments can be checked unloaded",
     is_file, run_note},
    {"file-against", "what users of an earlier build rely on is still there, or the version's first number is new",
     has_against, tn_check_against},
    {"elf-one-symbol", "the entry is the only symbol that others see, so that no name clashes with another file's",
     is_file, run_one_symbol},
    {"elf-leaked-symbols", "no weak or unique symbol is shown: the loader would merge it with another plugin's",
     is_file, run_leaked},
    {"elf-undefined-symbols", "every symbol that it needs is in a library that it is linked to, so that it loads alone",
     is_file, run_undefined},
    {"elf-text-relocations", "its code is not changed as it is loaded, which hardened systems refuse", is_file,
     run_text_relocations},
    {"elf-executable-stack", "it leaves stacks not executable, as they are shared with the whole process", is_file,
     run_stack},
    {"elf-static-tls", "it takes no static thread storage, of which a process has little for files loaded later",
     is_file, run_static_tls},
    {"elf-soname",
     "its soname and the libraries it brings along clash with no other file, as the first is used for all", is_file,
     run_soname},
    {"file-record", "the file loads, and its entry returns a record of its own that agrees with the notes", is_file,
     run_record},
    {"load-entry-twice", "the entry may be called again and returns the same record", is_file, tn_check_entry_twice},
    {"load-float-modes", "rounding, exceptions and flush-to-zero are left as they were, for all other arithmetic",
     is_file, tn_check_float_modes},
    {"load-threads", "loading starts no thread, beside those of the libraries that it is linked to", is_file,
     tn_check_threads},
    {"load-signals", "signal handlers and the signal mask are left as they were: they belong to the program", is_file,
     tn_check_signals},
    {"load-process", "umask, working directory, locale, environment, limits and open files are left as they were",
     is_file, tn_check_process},
    {"load-output", "loading prints nothing: stdout and stderr belong to the program", is_file, tn_check_output},
    {0},
};
