/* SPDX-License-Identifier: Apache-2.0
 *
 * dynamic.c: the dynamic segment of a file, read without mapping it.
 */
#include "host/check/dynamic.h"

#include <fcntl.h>
#include <string.h>

#include "host/base/error.h"
#include "host/base/memory.h"

static int32_t no_memory(const char *name, tn_error *err)
{
    return tn_error_set(err, TN_E_MEMORY, "%s: no memory for its symbols", name);
}

/* A whole section in a block of its own; one byte more, which is NUL. */
static int32_t read_section(const tn_elf *elf, const char *name, void **ret, size_t *ret_size, tn_error *err)
{
    Elf64_Shdr section;
    if (tn_elf_section(elf, name, &section))
        return tn_error_set(err, TN_E_PLUGIN, "%s: no section %s; was it stripped with sstrip?", elf->source->name,
                            name);
    char *bytes = tn_alloc(section.sh_size + 1, 1);
    if (!bytes)
        return no_memory(elf->source->name, err);
    if (tn_elf_read(elf, section.sh_offset, bytes, section.sh_size)) {
        tn_free(bytes);
        return tn_error_set(err, TN_E_IO, "EIO: %s: section %s can not be read", elf->source->name, name);
    }
    *ret = bytes;
    *ret_size = section.sh_size;
    return TN_OK;
}

static const char *string_at(const tn_dynamic *dynamic, uint64_t at)
{
    return at < dynamic->string_size ? dynamic->strings + at : "";
}

static void take_entry(const Elf64_Dyn *entry, tn_dynamic *ret)
{
    const char *text = string_at(ret, entry->d_un.d_val);
    switch (entry->d_tag) {
    case DT_FLAGS:
        ret->flags = entry->d_un.d_val;
        break;
    case DT_TEXTREL:
        ret->is_relocated = 1;
        break;
    case DT_SONAME:
        ret->soname = text;
        break;
    case DT_RPATH:
    case DT_RUNPATH:
        ret->run_path = text;
        break;
    case DT_NEEDED:
        if (ret->needed_count < TN_DYNAMIC_NEEDED_MOST)
            ret->needed[ret->needed_count++] = text;
        break;
    }
}

static int32_t read_entries(const tn_elf *elf, const Elf64_Phdr *segment, tn_dynamic *ret, tn_error *err)
{
    Elf64_Dyn entry = {.d_tag = DT_DEBUG};
    for (uint64_t at = 0; at + sizeof entry <= segment->p_filesz && entry.d_tag != DT_NULL; at += sizeof entry) {
        if (tn_elf_read(elf, segment->p_offset + at, &entry, sizeof entry))
            return tn_error_set(err, TN_E_IO, "EIO: %s: the dynamic segment can not be read", elf->source->name);
        take_entry(&entry, ret);
    }
    ret->is_relocated = ret->is_relocated || (ret->flags & DF_TEXTREL);
    return TN_OK;
}

static int32_t read_segments(const tn_elf *elf, tn_dynamic *ret, tn_error *err)
{
    int32_t status = TN_OK;
    for (unsigned i = 0; i < elf->header.e_phnum && status == TN_OK; i++) {
        const Elf64_Phdr *segment = &elf->segments[i];
        if (segment->p_type == PT_GNU_STACK)
            ret->stack_flags = (int32_t)segment->p_flags;
        else if (segment->p_type == PT_DYNAMIC)
            status = read_entries(elf, segment, ret, err);
    }
    return status;
}

static int32_t read_all(const tn_elf *elf, tn_dynamic *ret, tn_error *err)
{
    void *strings, *symbols;
    size_t bytes;
    int32_t status = read_section(elf, ".dynstr", &strings, &ret->string_size, err);
    if (status != TN_OK)
        return status;
    ret->strings = strings;
    status = read_section(elf, ".dynsym", &symbols, &bytes, err);
    if (status != TN_OK)
        return status;
    ret->symbols = symbols;
    ret->symbol_count = bytes / sizeof *ret->symbols;
    return read_segments(elf, ret, err);
}

int32_t tn_dynamic_read(const char *path, tn_dynamic *ret, tn_error *err)
{
    tn_file file;
    tn_elf elf;
    tn_dynamic found = {.stack_flags = -1, .soname = "", .run_path = ""};
    int32_t status = tn_file_open(AT_FDCWD, path, path, &file, err);
    if (status != TN_OK)
        return status;
    status = tn_elf_open(&file.source, &elf, err);
    if (status == TN_OK)
        status = read_all(&elf, &found, err);
    tn_file_close(&file);
    if (status == TN_OK)
        *ret = found;
    else
        tn_dynamic_free(&found);
    return status;
}

void tn_dynamic_free(tn_dynamic *dynamic)
{
    tn_free(dynamic->strings);
    tn_free(dynamic->symbols);
    *dynamic = (tn_dynamic){0};
}

const char *tn_dynamic_name(const tn_dynamic *dynamic, size_t i)
{
    return string_at(dynamic, dynamic->symbols[i].st_name);
}

int32_t tn_dynamic_exports(const tn_dynamic *dynamic, size_t i)
{
    const Elf64_Sym *symbol = &dynamic->symbols[i];
    int visibility = ELF64_ST_VISIBILITY(symbol->st_other);
    return symbol->st_shndx != SHN_UNDEF && ELF64_ST_BIND(symbol->st_info) != STB_LOCAL && visibility != STV_HIDDEN &&
           visibility != STV_INTERNAL && *tn_dynamic_name(dynamic, i);
}
