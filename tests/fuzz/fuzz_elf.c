/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_elf.c: the ELF gate on any bytes. What it lets through must be what its header promises dlopen: every segment
 * inside the file and in ascending order; reads at the edges and sections of any name must stay inside.
 */
#include <stdlib.h>
#include <string.h>

#include "host/plugin/elf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* dlopen reads it in memory, the gate in the file. */
static int is_loaded(const tn_elf *elf, const Elf64_Phdr *dynamic)
{
    int found = 0;
    for (int i = 0; i < elf->header.e_phnum; i++) {
        const Elf64_Phdr *load = &elf->segments[i];
        uint64_t at = dynamic->p_vaddr - load->p_vaddr;
        found |= load->p_type == PT_LOAD && at <= load->p_filesz && dynamic->p_filesz <= load->p_filesz - at &&
                 dynamic->p_offset - load->p_offset == at;
    }
    return found;
}

static void check_segments(const tn_elf *elf, uint64_t size)
{
    uint64_t last = 0;
    if (elf->header.e_phnum > TN_ELF_SEGMENTS_MAX || elf->header.e_type != ET_DYN || elf->head_size > size)
        abort();
    for (int i = 0; i < elf->header.e_phnum; i++) {
        const Elf64_Phdr *segment = &elf->segments[i];
        if (segment->p_filesz && (segment->p_filesz > size || segment->p_offset > size - segment->p_filesz))
            abort();
        if (segment->p_type == PT_DYNAMIC && !is_loaded(elf, segment))
            abort();
        if (segment->p_type != PT_LOAD)
            continue;
        if (segment->p_vaddr < last)
            abort();
        last = segment->p_vaddr;
    }
}

/* A read is served with the file's bytes, or refused where it leaves the file. */
static void check_read(const tn_elf *elf, const uint8_t *data, uint64_t size, uint64_t offset, size_t n)
{
    unsigned char bytes[64];
    int inside = n <= size && offset <= size - n;
    if ((tn_elf_read(elf, offset, bytes, n) == TN_OK) != inside ||
        (inside && n && memcmp(bytes, data + offset, n) != 0))
        abort();
}

static void check_section(const tn_elf *elf, const char *name)
{
    Elf64_Shdr section;
    unsigned char byte;
    if (tn_elf_section(elf, name, &section) == TN_OK)
        (void)tn_elf_read(elf, section.sh_offset, &byte, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tn_source source = tn_source_memory("fuzz", data, size);
    tn_error err;
    tn_elf elf;
    if (tn_elf_open(&source, &elf, &err) != TN_OK) {
        if (!err.msg[0] || !memchr(err.msg, 0, sizeof err.msg))
            abort();
        return 0;
    }
    check_segments(&elf, size);
    check_section(&elf, ".note.tenon");
    check_section(&elf, "");
    check_read(&elf, data, size, 0, 64);
    check_read(&elf, data, size, size, 0);
    check_read(&elf, data, size, size - 1, 1);
    check_read(&elf, data, size, size - 1, 2);
    check_read(&elf, data, size, UINT64_MAX - 7, 8);
    check_read(&elf, data, size, TN_ELF_HEAD - 8, 16);
    return 0;
}
