/* SPDX-License-Identifier: Apache-2.0
 *
 * binding.c: where a mapped file's references to its own symbols lead.
 */
#include "host/plugin/binding.h"

#include <dlfcn.h>
#include <string.h>

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
