/* SPDX-License-Identifier: Apache-2.0
 *
 * template.c: a plugin to begin with.
 */
#include "host/plugin/template.h"

#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/base/memory.h"
#include "host/plugin/search.h"

#define FILE_MOST 65536 /* bytes of a template's file */
#define NAME_MOST 39    /* as in a note, without the NUL */
#define SOURCE    "my-thing.c"

typedef struct {
    const tn_template *what;
    char templates[PATH_MAX], folder[PATH_MAX];
    char *temporary; /* beside the folder, until it is whole */
    char identifier[NAME_MOST + 1], source[NAME_MOST + 5];
    int cpp;
} task;

static int32_t no_memory(tn_error *err) { return tn_error_set(err, TN_E_MEMORY, "no memory for a new plugin"); }

/* ---- kinds ---- */

static int is_kind(const struct dirent *entry)
{
    static const char *const others[] = {"shared", "c", "c++"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(entry->d_name, others[i]) == 0)
            return 0;
    return entry->d_name[0] != '.' && !strchr(entry->d_name, '.'); /* files have one, folders have none */
}

static int32_t refuse_kind(const task *t, tn_error *err)
{
    struct dirent **list;
    const char *names[64] = {0};
    tn_text known = {0};
    int count = scandir(t->templates, &list, is_kind, alphasort);
    for (int i = 0; i < count; i++) {
        tn_text_addf(&known, "%s%s", i ? ", " : "", list[i]->d_name);
        if (i < 64)
            names[i] = list[i]->d_name;
    }
    const char *near = tn_nearest(t->what->kind, names, count < 0 ? 0 : count < 64 ? (size_t)count : 64);
    int32_t status =
        tn_error_set(err, TN_E_NOT_FOUND, "no kind '%.40s' to begin with%s%s%s There are: %s", t->what->kind,
                     near ? ", did you mean '" : "", near ? near : "", near ? "'?" : ".", tn_text_string(&known));
    for (int i = 0; i < count; i++)
        free(list[i]);
    if (count >= 0)
        free(list);
    tn_text_free(&known);
    return status;
}

static int32_t find_templates(task *t, tn_error *err)
{
    static const char *const below[] = {"template", "tenon/template"};
    char own[PATH_MAX];
    struct stat there;
    if (!tn_search_own_folder(own))
        return tn_error_set(err, TN_E_NOT_FOUND, "the folder of libtenon can not be found, so neither can templates");
    for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
        int n = snprintf(t->templates, sizeof t->templates, "%s/%s", own, below[i]);
        if (n > 0 && (size_t)n < sizeof t->templates && stat(t->templates, &there) == 0 && S_ISDIR(there.st_mode))
            return TN_OK;
    }
    return tn_error_set(err, TN_E_NOT_FOUND,
                        "no templates beside libtenon: needed %s/template or %s/tenon/template; install tenon again",
                        own, own);
}

static int32_t check_kind(const task *t, tn_error *err)
{
    const char *kind = t->what->kind;
    struct stat there;
    struct dirent entry = {0};
    snprintf(entry.d_name, sizeof entry.d_name, "%s", kind);
    if (strspn(kind, "abcdefghijklmnopqrstuvwxyz-") != strlen(kind) || !*kind || strlen(kind) > 40 || !is_kind(&entry))
        return refuse_kind(t, err);
    char *path = tn_format("%s/%s/" SOURCE, t->templates, kind);
    if (!path)
        return no_memory(err);
    int found = stat(path, &there) == 0;
    tn_free(path);
    return found ? TN_OK : refuse_kind(t, err);
}

/* ---- the name ---- */

/* Words of C and C++ that no struct can be named by, and names of macros. */
static const char taken[] =
    " alignas alignof and and_eq asm assert auto bitand bitor bool break case catch char class compl concept const "
    "consteval constexpr constinit continue decltype default delete do double else enum errno explicit export extern "
    "false final float for friend goto if import inline int isfinite isgreater isinf isless isnan isnormal linux long "
    "main module mutable namespace new noexcept not not_eq nullptr operator or or_eq override private protected public "
    "register reinterpret_cast requires restrict return short signbit signed sizeof static static_assert std struct "
    "switch template this throw tn true try typedef typeid typename union unix unsigned using virtual void volatile "
    "while xor xor_eq ";

static int is_taken(const char *identifier)
{
    char word[NAME_MOST + 3];
    snprintf(word, sizeof word, " %s ", identifier);
    return strstr(taken, word) != NULL;
}

static int is_part(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* What says nothing at `at`: bytes of a comment or of a text in quotes; 0: none begins here. */
static size_t silent(const char *at)
{
    const char *end = NULL;
    if (at[0] == '/' && at[1] == '*')
        end = strstr(at + 2, "*/"), end = end ? end + 2 : NULL;
    else if (at[0] == '"')
        end = strchr(at + 1, '"'), end = end ? end + 1 : NULL;
    else if (at[0] == '#' && at[1] == ' ') /* of YAML */
        end = strchr(at, '\n');
    else
        return 0;
    return end ? (size_t)(end - at) : strlen(at);
}

/* Is the word one of the text's own? */
static int holds_word(const char *text, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = text; *at; at++) {
        at += silent(at);
        if (strncmp(at, word, length) == 0 && (at == text || !is_part(at[-1])) && !is_part(at[length]))
            return 1;
        if (!*at)
            break;
    }
    return 0;
}

static int32_t refuse_name(const task *t, const char *reason, const char *more, tn_error *err)
{
    return tn_error_set(err, TN_E_INVALID, "the name '%.80s' will not do: %s%s", t->what->name, reason, more);
}

static int32_t check_letters(task *t, tn_error *err)
{
    const char *name = t->what->name;
    size_t length = strlen(name);
    if (length < 1 || length > NAME_MOST)
        return refuse_name(t, "a name has 1 to 39 characters", "", err);
    if (strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != length)
        return refuse_name(t, "names are of small letters, digits and '-', like my-sgd", "", err);
    if (!islower((unsigned char)name[0]))
        return refuse_name(t, "a name begins with a letter", "", err);
    if (name[length - 1] == '-' || strstr(name, "--"))
        return refuse_name(t, "a '-' stands between two other characters", "", err);
    for (size_t i = 0; i <= length; i++)
        t->identifier[i] = name[i] == '-' ? '_' : name[i];
    return TN_OK;
}

/* The name is also that of a struct, and begins those of functions. */
static int32_t check_name(task *t, tn_error *err)
{
    Dl_info info;
    int32_t status = check_letters(t, err);
    if (status)
        return status;
    if (is_taken(t->identifier))
        return refuse_name(t, "it is a word of C or C++; add another, like my-", t->what->name, err);
    if (strncmp(t->identifier, "tn_", 3) == 0 || strncmp(t->identifier, "tenon_", 6) == 0)
        return refuse_name(t, "names that begin with tn- or tenon- are the host's", "", err);
    void *symbol = dlsym(RTLD_DEFAULT, t->identifier);
    if (symbol && dladdr(symbol, &info) && info.dli_fname)
        return refuse_name(t, "a function of that name is in ", info.dli_fname, err);
    return TN_OK;
}

/* ---- files ---- */

static int32_t read_file(const char *path, mode_t *ret_mode, tn_text *ret, tn_error *err)
{
    struct stat there;
    char buffer[4096];
    ssize_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &there) != 0 || !S_ISREG(there.st_mode) || there.st_size > FILE_MOST) {
        int reason = fd < 0 ? errno : EINVAL;
        if (fd >= 0)
            close(fd);
        return tn_error_set(err, TN_E_IO, "%s: can not read the template: %s", path, strerror(reason));
    }
    while ((n = read(fd, buffer, sizeof buffer)) > 0)
        tn_text_addn(ret, buffer, (size_t)n);
    int reason = errno;
    close(fd);
    *ret_mode = there.st_mode;
    return n < 0 ? tn_error_set(err, TN_E_IO, "%s: can not read the template: %s", path, strerror(reason))
                 : tn_text_status(ret, err);
}

/* A word of the template at `at`: adds what stands for it and returns its length, or 0. */
static size_t replace(const task *t, const char *at, tn_text *ret)
{
    const struct {
        const char *from, *to;
    } words[] = {
        {"my-thing", t->what->name}, {"my_thing", t->identifier}, {"my-kind", t->what->kind}, {"my-source", t->source}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strncmp(at, words[i].from, strlen(words[i].from)) == 0) {
            tn_text_add(ret, words[i].to);
            return strlen(words[i].from);
        }
    return 0;
}

/* TN_CALL(f) guards an entry against exceptions; C has none. */
static size_t bare_call(const task *t, const char *at, tn_text *ret)
{
    static const char call[] = "TN_CALL(";
    size_t from = sizeof call - 1;
    if (t->cpp || strncmp(at, call, from) != 0)
        return 0;
    size_t length = strcspn(at + from, ")");
    for (size_t i = 0, n; i < length; i += n) {
        n = replace(t, at + from + i, ret);
        if (!n)
            tn_text_char(ret, at[from + i]), n = 1;
    }
    return from + length + (at[from + length] == ')');
}

static void substitute(const task *t, const char *text, tn_text *ret)
{
    for (size_t n; *text; text += n) {
        n = bare_call(t, text, ret);
        n = n ? n : replace(t, text, ret);
        if (!n)
            tn_text_char(ret, *text), n = 1;
    }
}

static int32_t write_file(const char *path, mode_t mode, const tn_text *text, tn_error *err)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode & 0111 ? 0755 : 0644);
    size_t done = 0;
    ssize_t n = 0;
    while (fd >= 0 && done < text->size && (n = write(fd, text->data + done, text->size - done)) > 0)
        done += (size_t)n;
    int failed = fd < 0 || n < 0, reason = errno;
    if (fd >= 0 && close(fd) != 0 && !failed)
        failed = 1, reason = errno;
    return failed ? tn_error_set(err, TN_E_IO, "%s: can not write: %s", path, strerror(reason)) : TN_OK;
}

/* The source would not compile, or the experiment mean another component, under a name that stands there already. */
static int32_t check_words(const task *t, const char *file, const tn_text *text, tn_error *err)
{
    const char *word = strcmp(file, SOURCE) == 0 ? t->identifier : strcmp(file, "try.yaml") == 0 ? t->what->name : NULL;
    if (word && holds_word(tn_text_string(text), word))
        return refuse_name(t, "the template uses that word itself; add another, like my-", t->what->name, err);
    return TN_OK;
}

static int32_t copy_file(const task *t, const char *from, const char *file, tn_text *names, tn_error *err)
{
    char name[NAME_MAX + 1], *source, *target;
    tn_text text = {0}, made = {0};
    mode_t mode = 0;
    snprintf(name, sizeof name, "%s", strcmp(file, SOURCE) == 0 ? t->source : file);
    source = tn_format("%s/%s/%s", t->templates, from, file);
    target = tn_format("%s/%s", t->temporary, name);
    int32_t status = source && target ? read_file(source, &mode, &text, err) : no_memory(err);
    if (status == TN_OK)
        status = check_words(t, file, &text, err);
    if (status == TN_OK) {
        substitute(t, tn_text_string(&text), &made);
        status = tn_text_status(&made, err);
    }
    if (status == TN_OK)
        status = write_file(target, mode, &made, err);
    tn_text_addf(names, "%s\n", name);
    tn_free(source);
    tn_free(target);
    tn_text_free(&text);
    tn_text_free(&made);
    return status;
}

static int is_visible(const struct dirent *entry) { return entry->d_name[0] != '.'; }

static int32_t copy_folder(const task *t, const char *from, tn_text *names, tn_error *err)
{
    struct dirent **list;
    char *path = tn_format("%s/%s", t->templates, from);
    int count = path ? scandir(path, &list, is_visible, alphasort) : -1;
    int32_t status = !path ? no_memory(err) : TN_OK;
    if (path && count < 0)
        status = tn_error_set(err, TN_E_IO, "%s: can not read the templates: %s", path, strerror(errno));
    for (int i = 0; i < count; i++) {
        if (status == TN_OK)
            status = copy_file(t, from, list[i]->d_name, names, err);
        free(list[i]);
    }
    if (count >= 0)
        free(list);
    tn_free(path);
    return status;
}

/* ---- the folder ---- */

/* 1: not there, or an empty folder. */
static int is_free(const char *folder)
{
    struct dirent **list;
    int count = scandir(folder, &list, NULL, NULL);
    for (int i = 0; i < count; i++)
        free(list[i]);
    if (count >= 0)
        free(list);
    return count < 0 ? errno == ENOENT : count <= 2; /* . and .. */
}

/* Absolute, without a slash at its end; its parent must be there. */
static int32_t place_folder(task *t, tn_error *err)
{
    char *given = tn_strdup(t->what->folder ? t->what->folder : t->what->name), parent[PATH_MAX];
    size_t length = given ? strlen(given) : 0;
    if (!given)
        return no_memory(err);
    while (length > 1 && given[length - 1] == '/')
        given[--length] = 0;
    char *slash = strrchr(given, '/'), *name = slash ? slash + 1 : given;
    int32_t status = TN_OK;
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        status = tn_error_set(err, TN_E_INVALID, "the folder '%s': needed the name of a new one, as its last part",
                              t->what->folder);
    else if (slash && slash != given)
        *slash = 0;
    if (status == TN_OK && !realpath(slash ? slash == given ? "/" : given : ".", parent))
        status = tn_error_set(err, TN_E_IO, "%s: the folder above the new one: %s", given, strerror(errno));
    if (status == TN_OK &&
        snprintf(t->folder, sizeof t->folder, "%s/%s", strcmp(parent, "/") ? parent : "", name) >= PATH_MAX)
        status = tn_error_set(err, TN_E_INVALID, "%s: the folder's path is too long", name);
    tn_free(given);
    if (status == TN_OK && !is_free(t->folder))
        status = tn_error_set(err, TN_E_INVALID,
                              "%s: is there already and not empty; nothing was written: give another folder with --to",
                              t->folder);
    return status;
}

static void remove_folder(const char *folder)
{
    struct dirent **list;
    int count = scandir(folder, &list, is_visible, NULL), at = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < count; i++) {
        unlinkat(at, list[i]->d_name, 0);
        free(list[i]);
    }
    if (count >= 0)
        free(list);
    if (at >= 0)
        close(at);
    rmdir(folder);
}

static int32_t fill(task *t, tn_text *names, tn_error *err)
{
    mode_t mask = umask(0);
    umask(mask);
    const char *const folders[] = {t->what->kind, t->cpp ? "c++" : "c", "shared"};
    int32_t status = TN_OK;
    for (size_t i = 0; i < sizeof folders / sizeof *folders && status == TN_OK; i++)
        status = copy_folder(t, folders[i], names, err);
    if (status == TN_OK)
        status = tn_text_status(names, err);
    if (status == TN_OK && (chmod(t->temporary, 0755 & ~mask) != 0 || rename(t->temporary, t->folder) != 0))
        status = tn_error_set(err, TN_E_IO, "%s: can not make the folder: %s", t->folder, strerror(errno));
    return status;
}

static int32_t make(task *t, tn_text *names, tn_error *err)
{
    t->temporary = tn_format("%s.XXXXXX", t->folder);
    if (!t->temporary)
        return no_memory(err);
    int32_t status = TN_OK;
    if (!mkdtemp(t->temporary))
        status = tn_error_set(err, TN_E_IO, "%s: can not make a folder beside it: %s", t->folder, strerror(errno));
    else if ((status = fill(t, names, err)) != TN_OK)
        remove_folder(t->temporary);
    tn_free(t->temporary);
    return status;
}

/* ---- all of it ---- */

static int32_t check(task *t, tn_error *err)
{
    const char *language = t->what->language ? t->what->language : "c";
    int32_t status = find_templates(t, err);
    if (status == TN_OK)
        status = check_kind(t, err);
    t->cpp = strcmp(language, "c++") == 0;
    if (status == TN_OK && !t->cpp && strcmp(language, "c") != 0)
        status = tn_error_set(err, TN_E_NOT_FOUND, "no language '%.40s' to begin with; there are: c, c++", language);
    if (status == TN_OK)
        status = check_name(t, err);
    if (status == TN_OK)
        snprintf(t->source, sizeof t->source, "%s.%s", t->what->name, t->cpp ? "cpp" : "c");
    return status == TN_OK ? place_folder(t, err) : status;
}

/* NULL where tenon-sdk.pc is not beside the library. */
static char *find_pkgconfig(void)
{
    char own[PATH_MAX];
    char *folder = tn_search_own_folder(own) ? tn_format("%s/pkgconfig", own) : NULL;
    char *file = folder ? tn_format("%s/tenon-sdk.pc", folder) : NULL;
    int found = file && access(file, R_OK) == 0;
    tn_free(file);
    if (!found) {
        tn_free(folder);
        folder = NULL;
    }
    return folder;
}

int32_t tn_template_write(const tn_template *what, tn_templated *ret, tn_error *err)
{
    task t = {.what = what};
    tn_templated made = {0};
    int32_t status = check(&t, err);
    if (status != TN_OK)
        return status;
    made.folder = tn_strdup(t.folder);
    status = made.folder ? make(&t, &made.files, err) : no_memory(err);
    if (status != TN_OK) {
        tn_templated_free(&made);
        return status;
    }
    made.pkgconfig = find_pkgconfig(); /* without memory for it there is one hint less */
    *ret = made;
    return TN_OK;
}

void tn_templated_free(tn_templated *templated)
{
    tn_free(templated->folder);
    tn_free(templated->pkgconfig);
    tn_text_free(&templated->files);
    *templated = (tn_templated){0};
}
