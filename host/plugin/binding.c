/* SPDX-License-Identifier: Apache-2.0
 *
 * binding.c: where a mapped file's references to its own symbols lead.
 */
#include "host/plugin/binding.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "host/base/error.h"

#if defined __x86_64__
#define IS_REFERENCE(type) ((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT || (type) == R_X86_64_64)
#elif defined __aarch64__
#define IS_REFERENCE(type) ((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT || (type) == R_AARCH64_ABS64)
#else
#define IS_REFERENCE(type) 0
#endif

/* What the dynamic segment says, its addresses as the system's loader has set them. */
typedef struct {
    const Elf64_Sym *symbols;
    const char *names;
    const Elf64_Rela *list[2]; /* data, calls */
    size_t bytes[2];
    size_t search; /* its search path for libraries, in `names`; 0: none */
} dynamic;

static dynamic read_dynamic(const struct link_map *map)
{
    dynamic d = {0};
    for (const Elf64_Dyn *entry = map->l_ld; entry->d_tag != DT_NULL; entry++) {
        uintptr_t value = (uintptr_t)entry->d_un.d_ptr;
        if (entry->d_tag == DT_SYMTAB)
            d.symbols = (const Elf64_Sym *)value;
        else if (entry->d_tag == DT_STRTAB)
            d.names = (const char *)value;
        else if (entry->d_tag == DT_RELA)
            d.list[0] = (const Elf64_Rela *)value;
        else if (entry->d_tag == DT_RELASZ)
            d.bytes[0] = value;
        else if (entry->d_tag == DT_JMPREL)
            d.list[1] = (const Elf64_Rela *)value;
        else if (entry->d_tag == DT_PLTRELSZ)
            d.bytes[1] = value;
        else if (entry->d_tag == DT_RUNPATH || (entry->d_tag == DT_RPATH && !d.search))
            d.search = entry->d_un.d_val;
    }
    return d;
}

/* Where the reference leads, or NULL if it is none to a symbol of the file's own. */
static const void *target(const struct link_map *map, const dynamic *d, const Elf64_Rela *r)
{
    uintptr_t found;
    const Elf64_Sym *symbol = &d->symbols[ELF64_R_SYM(r->r_info)];
    if (!IS_REFERENCE(ELF64_R_TYPE(r->r_info)) || symbol->st_shndx == SHN_UNDEF || symbol->st_shndx >= SHN_LORESERVE ||
        ELF64_ST_BIND(symbol->st_info) != STB_GLOBAL)
        return NULL;
    memcpy(&found, (const char *)map->l_addr + r->r_offset, sizeof found);
    return (const void *)(found - (uintptr_t)r->r_addend);
}

static int32_t refuse(const char *path, const char *name, const void *found, tn_error *err)
{
    Dl_info other = {0};
    dladdr(found, &other);
    return tn_error_set(err, TN_E_PLUGIN,
                        "SYMBOL_CLASH: %s: its own '%s' would be taken for that of %s; build it with "
                        "-fvisibility=hidden, or link it with -Wl,-Bsymbolic",
                        path, name, other.dli_fname ? other.dli_fname : "another file");
}

int32_t tn_binding_check(const char *path, const struct link_map *map, const tn_object *object, tn_error *err)
{
    dynamic d = read_dynamic(map);
    for (int i = 0; i < 2 && d.symbols && d.names; i++)
        for (size_t j = 0; d.list[i] && j < d.bytes[i] / sizeof(Elf64_Rela); j++) {
            const Elf64_Rela *r = &d.list[i][j];
            const void *found = target(map, &d, r);
            if (found && !tn_object_holds(object, found, 1, 1))
                return refuse(path, d.names + d.symbols[ELF64_R_SYM(r->r_info)].st_name, found, err);
        }
    return TN_OK;
}

/* ---- libraries that come along ---- */

/* The file `name` in the first folder beside `path` that the search path names. */
static int bundled(const char *path, const char *search, const char *name, char ret[PATH_MAX], struct stat *stat_of)
{
    static const char *const words[] = {"$ORIGIN", "${ORIGIN}"};
    int folder = (int)(strrchr(path, '/') - path);
    for (const char *at = search; *at; at += *at == ':') {
        int length = (int)strcspn(at, ":"), used = length;
        while (used > 0 && at[used - 1] == '/')
            used--;
        for (int i = 0; i < 2; i++) {
            int skip = (int)strlen(words[i]);
            if (used >= skip && memcmp(at, words[i], (size_t)skip) == 0 &&
                snprintf(ret, PATH_MAX, "%.*s%.*s/%s", folder, path, used - skip, at + skip, name) < PATH_MAX &&
                stat(ret, stat_of) == 0)
                return 1;
        }
        at += length;
    }
    return 0;
}

typedef struct {
    const char *name;
    char found[PATH_MAX];
} library_search;

static int find_library(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    library_search *search = argument;
    const char *slash = strrchr(info->dlpi_name, '/');
    if (!slash || strcmp(slash + 1, search->name) != 0)
        return 0;
    snprintf(search->found, sizeof search->found, "%s", info->dlpi_name);
    return 1;
}

void tn_binding_warn(const char *path, const struct link_map *map, const tn_log *log)
{
    dynamic d = read_dynamic(map);
    char own[PATH_MAX];
    struct stat wanted, got;
    for (const Elf64_Dyn *entry = map->l_ld; entry->d_tag != DT_NULL && d.names && d.search; entry++) {
        if (entry->d_tag != DT_NEEDED)
            continue;
        library_search search = {.name = d.names + entry->d_un.d_val};
        if (!bundled(path, d.names + d.search, search.name, own, &wanted) || !dl_iterate_phdr(find_library, &search) ||
            stat(search.found, &got) != 0 || (got.st_dev == wanted.st_dev && got.st_ino == wanted.st_ino))
            continue;
        tn_log_write(log, TN_LOG_WARNING,
                     "%s: brings %s, but uses %s, which has the same name and was loaded before; give the library a "
                     "name of its own, or link it statically",
                     path, own, search.found);
    }
}
