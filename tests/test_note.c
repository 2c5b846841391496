/* SPDX-License-Identifier: Apache-2.0
 *
 * test_note.c: the ELF gate, the notes and the text behind them, on whole, cut, foreign and damaged files. Sources in
 * memory are blocks of the exact size, so that a sanitizer sees each read beyond the end.
 */
#include "host/plugin/note.h"

#include <fcntl.h>
#include <stdlib.h>

#include "host/base/memory.h"
#include "host/plugin/info.h"
#include "tests/fuzz/fuzz_note.c"
#include "tests/plugin_files.h"

/* ---- the gate ---- */

static int32_t gate(const void *bytes, size_t size, tn_error *err)
{
    tn_elf elf;
    void *exact = calloc(size ? size : 1, 1);
    memcpy(exact, bytes, size);
    tn_source source = tn_source_memory("file", exact, size);
    int32_t status = tn_elf_open(&source, &elf, err);
    free(exact);
    return status;
}

START_TEST(what_is_not_elf)
{
    tn_error err;
    unsigned char noise[4096];
    uint32_t state = 1;
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (unsigned char)((state = state * 1664525u + 1013904223u) >> 24);
    ck_assert_refused(gate("", 0, &err), TN_E_PLUGIN, err, "NOT_ELF: file", "empty");
    ck_assert_refused(gate("#!/bin/sh\n", 10, &err), TN_E_PLUGIN, err, "NOT_ELF: file", "not an ELF file");
    ck_assert_refused(gate("\177EL", 3, &err), TN_E_PLUGIN, err, "NOT_ELF: file", "");
    ck_assert_refused(gate(noise, sizeof noise, &err), TN_E_PLUGIN, err, "NOT_ELF: file", "");
    memcpy(noise, "\177ELF", 4);
    ck_assert_refused(gate(noise, sizeof noise, &err), TN_E_PLUGIN, err, "ELF_CORRUPT: file", "");
}
END_TEST

START_TEST(cut_files)
{
    size_t size, end = 0;
    unsigned char *bytes = read_bytes_of(adamw_plugin(), &size);
    tn_error err;
    const Elf64_Ehdr *header = (const void *)bytes;
    const Elf64_Phdr *segments = (const void *)(bytes + header->e_phoff);
    for (unsigned i = 0; i < header->e_phnum; i++) {
        if (segments[i].p_offset + segments[i].p_filesz > end)
            end = segments[i].p_offset + segments[i].p_filesz;
    }
    ck_assert_uint_lt(end, size);
    for (size_t n = 4; n <= size; n += n < 256 ? 1 : 128) {
        if (n >= end) {
            ck_ok(gate(bytes, n, &err), err); /* only symbols and section headers are lost */
        } else {
            ck_assert_refused(gate(bytes, n, &err), TN_E_PLUGIN, err, "ELF_TRUNCATED: file", "ends at");
        }
    }
    char length[32];
    snprintf(length, sizeof length, "the file is %zu", end - 1);
    ck_assert_refused(gate(bytes, end - 1, &err), TN_E_PLUGIN, err, "ELF_TRUNCATED: file: a segment ends at", length);
    free(bytes);
}
END_TEST

START_TEST(files_for_other_machines)
{
    elf_image *image = new_image();
    tn_note head = plugin_head();
    tn_error err;
    add_note_of(image, TN_NOTE_PLUGIN, &head, "{}");
    ck_ok(gate(image, image->size, &err), err);
    const Elf64_Ehdr good = image->header;
    image->header.e_machine = good.e_machine == EM_AARCH64 ? EM_X86_64 : EM_AARCH64;
    ck_assert_refused(gate(image, image->size, &err), TN_E_PLUGIN, err, "WRONG_ARCH: file", "AArch64");
    ck_assert_ptr_nonnull(strstr(err.msg, "needed a 64-bit"));
    image->header.e_machine = 12345;
    ck_assert_refused(gate(image, image->size, &err), TN_E_PLUGIN, err, "WRONG_ARCH: file", "machine 12345");
    image->header = good;
    image->header.e_ident[EI_CLASS] = ELFCLASS32;
    ck_assert_refused(gate(image, image->size, &err), TN_E_PLUGIN, err, "WRONG_ARCH: file", "found a 32-bit");
    image->header = good;
    image->header.e_ident[EI_DATA] = good.e_ident[EI_DATA] == ELFDATA2LSB ? ELFDATA2MSB : ELFDATA2LSB;
    ck_assert_refused(gate(image, image->size, &err), TN_E_PLUGIN, err, "WRONG_ARCH: file", "big-endian");
    image->header = good;
    image->header.e_type = ET_EXEC;
    ck_assert_refused(gate(image, image->size, &err), TN_E_PLUGIN, err, "WRONG_ARCH: file", "program, needed");
    image->header = good;
    image->header.e_type = ET_REL;
    ck_assert_refused(gate(image, image->size, &err), TN_E_PLUGIN, err, "WRONG_ARCH: file", "object file, needed");
    image->header = good;
    image->header.e_ident[EI_OSABI] = ELFOSABI_FREEBSD;
    ck_assert_refused(gate(image, image->size, &err), TN_E_PLUGIN, err, "WRONG_ARCH: file", "ABI 9");
    free(image);
    size_t size;
    unsigned char *self = read_bytes_of("/proc/self/exe", &size);
    ck_assert_refused(gate(self, size, &err), TN_E_PLUGIN, err, "WRONG_ARCH: file", "program, needed");
    free(self);
}
END_TEST

START_TEST(damaged_headers)
{
    elf_image *image = new_image();
    tn_note head = plugin_head();
    tn_error err;
    add_note_of(image, TN_NOTE_PLUGIN, &head, "{}");
    const elf_image good = *image;
#define CASE(change, code, part)                                                                                       \
    do {                                                                                                               \
        *image = good;                                                                                                 \
        change;                                                                                                        \
        ck_assert_refused(gate(image, image->size, &err), TN_E_PLUGIN, err, code ": file", part);                      \
    } while (0)
    CASE(image->header.e_phnum = 0xffff, "ELF_CORRUPT", "65535 program headers");
    CASE(image->header.e_phnum = 0, "ELF_CORRUPT", "0 program headers");
    CASE(image->header.e_phentsize = 32, "ELF_CORRUPT", "32 bytes");
    CASE(image->header.e_phoff = image->size - 8, "ELF_TRUNCATED", "program header table");
    CASE(image->header.e_phoff = UINT64_MAX - 4, "ELF_CORRUPT", "overflows");
    CASE(image->load.p_offset = UINT64_MAX - 4, "ELF_CORRUPT", "overflows");
    CASE(image->note.p_filesz = UINT64_MAX, "ELF_CORRUPT", "overflows");
    CASE(image->note.p_filesz += 1, "ELF_TRUNCATED", "a segment ends at");
    CASE(image->load.p_memsz = image->load.p_filesz - 1, "ELF_CORRUPT", "impossible");
    CASE(image->load.p_memsz = UINT64_MAX, "ELF_CORRUPT", "impossible");
    CASE(image->load.p_vaddr = UINT64_MAX - 4096, "ELF_CORRUPT", "impossible");
    CASE(image->note.p_type = PT_LOAD, "ELF_CORRUPT", "overlaps");
    CASE(image->load.p_type = PT_NULL, "ELF_CORRUPT", "0 loadable");
    CASE(image->dynamic.p_type = PT_NULL, "ELF_CORRUPT", "0 dynamic");
    CASE(image->note.p_type = PT_DYNAMIC, "ELF_CORRUPT", "2 dynamic");
    CASE(image->dynamic.p_filesz = 8, "ELF_CORRUPT", "no end mark");
    CASE(image->dynamic.p_vaddr ^= (uint64_t)1 << 40, "ELF_CORRUPT", "lies in no loadable segment");
    CASE(image->dynamic.p_offset -= 8, "ELF_CORRUPT", "lies in no loadable segment");
    CASE(image->load.p_filesz = 64, "ELF_CORRUPT", "lies in no loadable segment");
    CASE(image->end.d_tag = DT_DEBUG, "ELF_CORRUPT", "no end mark");
    CASE(image->end = ((Elf64_Dyn){DT_FLAGS_1, {DF_1_PIE}}), "WRONG_ARCH", "program");
#undef CASE
    free(image);
}
END_TEST

/* ---- notes ---- */

typedef struct {
    void *exact;
    tn_source source;
    tn_elf elf;
    tn_notes notes;
} opened;

static int32_t read_image(const void *bytes, size_t size, opened *ret, tn_error *err)
{
    memset(ret, 0, sizeof *ret);
    ret->exact = malloc(size);
    memcpy(ret->exact, bytes, size);
    ret->source = tn_source_memory("file", ret->exact, size);
    ck_ok(tn_elf_open(&ret->source, &ret->elf, err), *err);
    return tn_notes_read(&ret->elf, &ret->notes, err);
}

static void close_image(opened *image)
{
    tn_notes_free(&image->notes);
    free(image->exact);
}

START_TEST(notes_of_a_shipped_plugin)
{
    size_t size;
    unsigned char *bytes = read_bytes_of(adamw_plugin(), &size);
    tn_error err;
    opened o;
    ck_ok(read_image(bytes, size, &o, &err), err);
    ck_assert_uint_eq(o.notes.count, 2);
    const tn_note_item *plugin = tn_notes_plugin(&o.notes);
    ck_assert_ptr_nonnull(plugin);
    ck_assert_str_eq(plugin->head.plugin, "org.tenon.adamw");
    const tn_note_item *component = plugin == o.notes.items ? plugin + 1 : o.notes.items;
    ck_assert_int_eq(component->status, TN_OK);
    ck_assert_str_eq(component->head.kind, "optimizer");
    ck_assert_str_eq(component->head.name, "adamw");
    ck_assert_str_eq(component->head.device, "cpu");
    ck_assert_uint_eq(component->head.real, 32);

    tn_file file; /* the same through a file as through memory */
    tn_notes again;
    ck_ok(tn_file_open(AT_FDCWD, adamw_plugin(), "label", &file, &err), err);
    ck_ok(tn_elf_open(&file.source, &o.elf, &err), err);
    ck_ok(tn_notes_read(&o.elf, &again, &err), err);
    ck_assert_uint_eq(again.count, o.notes.count);
    for (size_t i = 0; i < again.count; i++)
        ck_assert_mem_eq(&again.items[i].head, &o.notes.items[i].head, sizeof(tn_note));
    tn_notes_free(&again);
    tn_file_close(&file);
    close_image(&o);
    free(bytes);
}
END_TEST

START_TEST(section_is_the_fallback)
{
    size_t size, notes = 0;
    unsigned char *bytes = read_bytes_of(adamw_plugin(), &size);
    tn_error err;
    opened o;
    const Elf64_Ehdr *header = (const void *)bytes;
    Elf64_Phdr *segments = (void *)(bytes + header->e_phoff);
    for (unsigned i = 0; i < header->e_phnum; i++) {
        notes += segments[i].p_type == PT_NOTE;
        if (segments[i].p_type == PT_NOTE)
            segments[i].p_type = PT_NULL;
    }
    ck_assert_uint_gt(notes, 0);
    ck_ok(read_image(bytes, size, &o, &err), err);
    ck_assert_uint_eq(o.notes.count, 2);
    close_image(&o);

    Elf64_Ehdr *changed = (void *)bytes; /* section tables that make no sense find nothing and break nothing */
    const Elf64_Ehdr good = *changed;
#define CASE(change)                                                                                                   \
    do {                                                                                                               \
        *changed = good;                                                                                               \
        change;                                                                                                        \
        ck_ok(read_image(bytes, size, &o, &err), err);                                                                 \
        ck_assert_uint_eq(o.notes.count, 0);                                                                           \
        close_image(&o);                                                                                               \
    } while (0)
    CASE(changed->e_shoff = UINT64_MAX - 8);
    CASE(changed->e_shoff = size - 8);
    CASE(changed->e_shnum = 0xff00);
    CASE(changed->e_shnum = 0);
    CASE(changed->e_shstrndx = 0xfff);
    CASE(changed->e_shentsize = 1);
    CASE(changed->e_shstrndx = 0);
#undef CASE
    free(bytes);
}
END_TEST

START_TEST(ordinary_library_has_none)
{
    size_t size;
    unsigned char *bytes = read_bytes_of(plain_library(), &size);
    tn_error err;
    opened o;
    ck_ok(read_image(bytes, size, &o, &err), err);
    ck_assert_uint_eq(o.notes.count, 0);
    ck_assert_ptr_null(tn_notes_plugin(&o.notes));
    close_image(&o);
    free(bytes);
}
END_TEST

START_TEST(all_notes_are_read)
{
    elf_image *image = new_image();
    tn_note plugin = plugin_head(), first = component_head("optimizer", TN_OPTIMIZER, "first_one");
    tn_note second = component_head("thing", "org.example.thing/1", "second");
    tn_error err;
    opened o;
    add_any_note(image, "GNU", 3, "0123456789abcdef", 16);
    add_note_of(image, TN_NOTE_COMPONENT, &first, "{\"odd\": 1}");
    add_any_note(image, "TENON", 77, "of a later format", 18);
    add_any_note(image, "TENOR", TN_NOTE_PLUGIN, "sings", 6);
    add_note_of(image, TN_NOTE_PLUGIN, &plugin, "{}");
    add_any_note(image, "", 0, "", 0);
    size_t at = add_note_of(image, TN_NOTE_COMPONENT, &second, "{}");
    ck_ok(read_image(image, image->size, &o, &err), err);
    ck_assert_uint_eq(o.notes.count, 3);
    ck_assert_str_eq(o.notes.items[0].head.name, "first-one");
    ck_assert_ptr_eq(tn_notes_plugin(&o.notes), &o.notes.items[1]);
    ck_assert_str_eq(o.notes.items[2].head.name, "second");
    ck_assert_uint_eq(o.notes.items[2].at, at);
    tn_note *bytes;
    ck_ok(tn_note_bytes(&o.source, &o.notes.items[2], &bytes, &err), err);
    ck_assert_mem_eq(bytes, (const unsigned char *)image + at, o.notes.items[2].size);
    tn_free(bytes);
    close_image(&o);
    free(image);
}
END_TEST

START_TEST(note_sizes_that_overflow)
{
    static const struct {
        uint32_t owner, bytes;
    } cases[] = {{6, UINT32_MAX}, {UINT32_MAX, 8}, {UINT32_MAX, UINT32_MAX}, {6, 4096}, {UINT32_MAX - 2, 0}};
    elf_image *image = new_image();
    tn_note plugin = plugin_head();
    tn_error err;
    opened o;
    size_t at = add_note_of(image, TN_NOTE_PLUGIN, &plugin, "{}");
    Elf64_Nhdr *note = (void *)((unsigned char *)image + at - 8 - sizeof *note);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        note->n_namesz = cases[i].owner;
        note->n_descsz = cases[i].bytes;
        ck_assert_refused(read_image(image, image->size, &o, &err), TN_E_PLUGIN, err, "ELF_CORRUPT: file", "claims");
        close_image(&o);
    }
    free(image);
}
END_TEST

START_TEST(too_many_notes)
{
    elf_image *image = new_image();
    tn_note plugin = plugin_head(), component = component_head("optimizer", TN_OPTIMIZER, "one");
    tn_error err;
    opened o;
    add_note_of(image, TN_NOTE_PLUGIN, &plugin, "{}");
    for (int i = 1; i < TN_NOTES_MAX; i++)
        add_note_of(image, TN_NOTE_COMPONENT, &component, "{}");
    ck_ok(read_image(image, image->size, &o, &err), err);
    ck_assert_uint_eq(o.notes.count, TN_NOTES_MAX);
    close_image(&o);
    add_note_of(image, TN_NOTE_COMPONENT, &component, "{}");
    ck_assert_refused(read_image(image, image->size, &o, &err), TN_E_PLUGIN, err, "NOTE_INVALID: file", "more than 64");
    close_image(&o);
    free(image);
    image = new_image();
    for (int i = 0; i < 2000; i++)
        add_any_note(image, "", 0, "", 0);
    ck_assert_refused(read_image(image, image->size, &o, &err), TN_E_PLUGIN, err, "ELF_CORRUPT: file", "1024 notes");
    close_image(&o);
    free(image);
}
END_TEST

START_TEST(exactly_one_plugin_note)
{
    elf_image *image = new_image();
    tn_note plugin = plugin_head(), component = component_head("optimizer", TN_OPTIMIZER, "one");
    tn_error err;
    opened o;
    add_note_of(image, TN_NOTE_COMPONENT, &component, "{}");
    ck_assert_refused(read_image(image, image->size, &o, &err), TN_E_PLUGIN, err, "NOTE_INVALID: file", "exactly one");
    close_image(&o);
    add_note_of(image, TN_NOTE_PLUGIN, &plugin, "{}");
    add_note_of(image, TN_NOTE_PLUGIN, &plugin, "{}");
    ck_assert_refused(read_image(image, image->size, &o, &err), TN_E_PLUGIN, err, "NOTE_INVALID: file", "exactly one");
    close_image(&o);
    free(image);
}
END_TEST

/* A component with this head is refused with a reason that begins with `code` and holds `part`; "": it is not. The
 * sizes in the head are right unless `keep_sizes`. */
static void check_head(const tn_note *head, int keep_sizes, const char *code, const char *part)
{
    elf_image *image = new_image();
    tn_note plugin = plugin_head();
    tn_error err;
    opened o;
    add_note_of(image, TN_NOTE_PLUGIN, &plugin, "{}");
    size_t at = add_note_of(image, TN_NOTE_COMPONENT, head, "{}");
    if (keep_sizes)
        memcpy((unsigned char *)image + at, head, sizeof *head);
    ck_ok(read_image(image, image->size, &o, &err), err);
    ck_assert_uint_eq(o.notes.count, 2);
    const tn_note_item *item = &o.notes.items[1];
    const char *reason = item->reason ? item->reason : "";
    ck_assert_int_eq(item->status, code[0] ? TN_E_PLUGIN : TN_OK);
    ck_assert_msg(strncmp(reason, code, strlen(code)) == 0, "no %s: %s", code, reason);
    ck_assert_msg(strstr(reason, part) != NULL, "no '%s': %s", part, reason);
    close_image(&o);
    free(image);
}

START_TEST(heads)
{
    const tn_note good = component_head("optimizer", TN_OPTIMIZER, "one");
    tn_note h;
#define CASE(change, keep, code, part)                                                                                 \
    do {                                                                                                               \
        h = good;                                                                                                      \
        change;                                                                                                        \
        check_head(&h, keep, code, part);                                                                              \
    } while (0)
    CASE(, 0, "", "");
    CASE(h.real = 0, 0, "", "");
    CASE(strcpy(h.summary, "caf\xc3\xa9 \xe2\x88\x82 \xf0\x9f\x98\x80"), 0, "", "");
    CASE(h.format = 2, 0, "NOTE_FORMAT: file", "upgrade tenon");
    CASE(h.format = 0, 0, "NOTE_FORMAT: file", "upgrade the plugin");
    CASE((h.size = 1, h.text_at = sizeof h), 1, "NOTE_INVALID: file", "says 1");
    CASE((h.size = UINT32_MAX, h.text_at = sizeof h), 1, "NOTE_INVALID: file", "says 4294967295");
    CASE((h.size = sizeof h + 3, h.text_at = 0), 1, "NOTE_INVALID: file", "text at 0");
    CASE((h.size = sizeof h + 3, h.text_at = sizeof h + 3), 1, "NOTE_INVALID: file", "text at 371");
    CASE((h.size = sizeof h + 3, h.text_at = UINT32_MAX), 1, "NOTE_INVALID: file", "text at 4294967295");
    CASE(memset(h.kind, 'k', sizeof h.kind), 0, "NOTE_INVALID: file", "field kind");
    CASE(memset(h.name, 'n', sizeof h.name), 0, "NOTE_INVALID: file", "field name");
    CASE(memset(h.device, 'd', sizeof h.device), 0, "NOTE_INVALID: file", "field device");
    CASE(memset(h.interface, 'i', sizeof h.interface), 0, "NOTE_INVALID: file", "field interface");
    CASE(memset(h.summary, 's', sizeof h.summary), 0, "NOTE_INVALID: file", "field summary");
    CASE(memset(h.plugin, 'p', sizeof h.plugin), 0, "NOTE_INVALID: file", "field plugin");
    CASE(memset(h.version, 'v', sizeof h.version), 0, "NOTE_INVALID: file", "field version");
    CASE(h.kind[0] = 0, 0, "NOTE_INVALID: file", "field kind");
    CASE(h.name[0] = 0, 0, "NOTE_INVALID: file", "field name");
    CASE(h.device[0] = 0, 0, "NOTE_INVALID: file", "field device");
    CASE(h.interface[0] = 0, 0, "NOTE_INVALID: file", "field interface");
    CASE(strcpy(h.name, "a/b"), 0, "NOTE_INVALID: file", "field name");
    CASE(strcpy(h.name, "-x"), 0, "NOTE_INVALID: file", "field name");
    CASE(strcpy(h.summary, "a\x1b[2Jb"), 0, "NOTE_INVALID: file", "field summary");
    CASE(strcpy(h.summary, "\xc3("), 0, "NOTE_INVALID: file", "field summary");
    CASE(strcpy(h.summary, "\xc0\x80"), 0, "NOTE_INVALID: file", "field summary");
    CASE(strcpy(h.summary, "\xed\xa0\x80"), 0, "NOTE_INVALID: file", "field summary");
    CASE(strcpy(h.summary, "\xc2\x9b"), 0, "NOTE_INVALID: file", "field summary");
    CASE(h.real = 16, 0, "NOTE_INVALID: file", "real type 16");
    CASE(h.abi_major = 2, 0, "ABI_MAJOR: file", "needs ABI 2, host 1, upgrade");
    CASE(h.abi_major = 0, 0, "ABI_MAJOR: file", "needs ABI 0, host 1, rebuild");
    CASE(h.abi_minor = TN_ABI_MINOR + 1, 0, "ABI_MINOR: file", "upgrade tenon");
    CASE(h.isa = 0x40000000u, 0, "WRONG_ISA: file", "0x40000000");
    CASE(strcpy(h.interface, "tenon.optimizer/0.7"), 0, "INTERFACE: file", "rebuild the plugin with these headers");
    CASE(strcpy(h.interface, "tenon.layer/0.1"), 0, "INTERFACE: file", "optimizer");
    CASE(strcpy(h.interface, "org.example.own/1"), 0, "INTERFACE: file", "optimizer");
    CASE(strcpy(h.kind, "gadget"), 0, "INTERFACE: file", "gadget");
    CASE((strcpy(h.kind, "gadget"), strcpy(h.interface, "org.example.gadget/0.3")), 0, "", "");
#undef CASE
}
END_TEST

START_TEST(descriptor_limits)
{
    tn_note plugin = plugin_head(), component = component_head("optimizer", TN_OPTIMIZER, "one");
    tn_error err;
    opened o;
    for (size_t over = 0; over < 2; over++) {
        elf_image *image = new_image();
        char *text = calloc(1, TN_NOTE_MAX);
        memset(text, ' ', TN_NOTE_MAX - sizeof component - 1 + over);
        add_note_of(image, TN_NOTE_PLUGIN, &plugin, "{}");
        add_note_of(image, TN_NOTE_COMPONENT, &component, text);
        add_any_note(image, TN_NOTE_OWNER, TN_NOTE_COMPONENT, "tiny", 4);
        ck_ok(read_image(image, image->size, &o, &err), err);
        ck_assert_uint_eq(o.notes.count, 3);
        ck_assert_uint_eq(o.notes.items[1].size, TN_NOTE_MAX + over);
        ck_assert_int_eq(o.notes.items[1].status, over ? TN_E_PLUGIN : TN_OK);
        ck_assert_int_eq(o.notes.items[2].status, TN_E_PLUGIN);
        ck_assert_ptr_nonnull(strstr(o.notes.items[2].reason, "NOTE_INVALID: file: a note of 4 bytes"));
        close_image(&o);
        free(text);
        free(image);
    }
}
END_TEST

START_TEST(processor_has_what_it_runs)
{
    ck_assert_uint_eq(tn_isa_missing(0), 0);
    ck_assert_uint_eq(tn_isa_missing(0x80000000u), 0x80000000u);
#if defined __x86_64__
    int avx2 = __builtin_cpu_supports("avx2") != 0;
    ck_assert_uint_eq(tn_isa_missing(TN_ISA_AVX2), avx2 ? 0 : TN_ISA_AVX2);
#endif
}
END_TEST

START_TEST(text_without_end)
{
    elf_image *image = new_image();
    tn_note plugin = plugin_head();
    tn_note *bytes = NULL;
    tn_error err;
    opened o;
    size_t at = add_note_of(image, TN_NOTE_PLUGIN, &plugin, "{}");
    ((char *)image)[at + sizeof plugin + 2] = '}';
    ck_ok(read_image(image, image->size, &o, &err), err);
    ck_assert_refused(tn_note_bytes(&o.source, &o.notes.items[0], &bytes, &err), TN_E_PLUGIN, err, "NOTE_INVALID: file",
                      "does not end in NUL");
    ck_assert_ptr_null(bytes);
    o.source.size -= 8; /* it shrinks */
    ck_assert_refused(tn_note_bytes(&o.source, &o.notes.items[0], &bytes, &err), TN_E_IO, err, "EIO: file", "shrink");
    close_image(&o);
    free(image);
}
END_TEST

/* ---- the text ---- */

static int32_t parse(const char *interface, const char *plugin_text, const char *text, tn_component_info **ret,
                     tn_error *err)
{
    tn_note plugin = plugin_head(), component = component_head("optimizer", interface, "some_thing");
    tn_note *whole = new_note(&plugin, plugin_text), *part = new_note(&component, text);
    int32_t status = tn_info_parse("file", whole, part, ret, err);
    free(whole);
    free(part);
    return status;
}

static const char all_rows[] =
    "{\"hyper\":["
    "{\"name\":\"lr\",\"type\":\"real\",\"default\":\".5\",\"range\":\"[0, 1) 1/step; since 1.2.0\",\"doc\":\"d\"},"
    "{\"name\":\"f\",\"type\":\"fixed\",\"default\":\"nan\",\"range\":\"(-inf, inf) or nan\",\"doc\":\"\"},"
    "{\"name\":\"n\",\"type\":\"integer\",\"default\":\"100\",\"range\":\"[1, inf)\",\"doc\":\"\"},"
    "{\"name\":\"on\",\"type\":\"flag\",\"default\":\"true\",\"range\":\"\",\"doc\":\"\"},"
    "{\"name\":\"mode\",\"type\":\"choice\",\"default\":\"paper\",\"range\":\"torch |paper| x-1; since "
    "1.0.0\",\"doc\":\"\"},"
    "{\"name\":\"label\",\"type\":\"text\",\"default\":\"a, b\",\"range\":\"\",\"doc\":\"\"},"
    "{\"name\":\"widths\",\"type\":\"integers\",\"default\":\"[256, 128]\",\"range\":\"[1, 4096]\",\"doc\":\"\"},"
    "{\"name\":\"act\",\"type\":\"component\",\"default\":\"none\",\"range\":\"activation\",\"doc\":\"\"},"
    "null,null],\"stage\":\"rule\",\"paper\":\"P\",\"formula\":\"F\",\"slots\":[{\"name\":\"m\"},null],"
    "\"signals\":[\"taps\",null],\"reports\":[null]}";

START_TEST(info_of_all_types)
{
    static const struct {
        const char *name;
        int32_t type;
        size_t offset, size;
    } rows[] = {{"lr", TN_TYPE_REAL, 0, 8},           {"f", TN_TYPE_FIXED, 8, 8},       {"n", TN_TYPE_INTEGER, 16, 8},
                {"on", TN_TYPE_FLAG, 24, 8},          {"mode", TN_TYPE_CHOICE, 32, 8},  {"label", TN_TYPE_TEXT, 40, 8},
                {"widths", TN_TYPE_INTEGERS, 48, 16}, {"act", TN_TYPE_COMPONENT, 64, 8}};
    tn_component_info *info;
    tn_error err;
    ck_ok(parse(TN_OPTIMIZER, "{\"licence\":\"MIT\"}", all_rows, &info, &err), err);
    ck_assert_uint_eq(info->row_count, 8);
    ck_assert_uint_eq(info->hyper_size, 72);
    for (size_t i = 0; i < 8; i++) {
        ck_assert_str_eq(info->rows[i].name, rows[i].name);
        ck_assert_int_eq(info->rows[i].type, rows[i].type);
        ck_assert_uint_eq(info->rows[i].offset, rows[i].offset);
        ck_assert_uint_eq(info->rows[i].size, rows[i].size);
    }
    const tn_row *lr = &info->rows[0], *mode = &info->rows[4];
    ck_assert_str_eq(lr->default_text, ".5");
    ck_assert_str_eq(lr->doc, "d");
    ck_assert_str_eq(lr->range.unit, "1/step");
    ck_assert_str_eq(lr->range.since, "1.2.0");
    ck_assert(tn_range_holds(&lr->range, 0) && !tn_range_holds(&lr->range, 1));
    ck_assert_uint_eq(mode->choice_count, 3);
    ck_assert_str_eq(mode->choices[0], "torch");
    ck_assert_str_eq(mode->choices[1], "paper");
    ck_assert_str_eq(mode->choices[2], "x-1");
    ck_assert_str_eq(info->name, "some-thing");
    ck_assert_str_eq(info->kind, "optimizer");
    ck_assert_str_eq(info->plugin, "org.tenon.test");
    ck_assert_str_eq(info->version, "1.2.3");
    ck_assert_str_eq(info->summary, "a test");
    ck_assert_str_eq(info->paper, "P");
    ck_assert_str_eq(info->formula, "F");
    ck_assert_str_eq(info->licence, "MIT");
    ck_assert_uint_eq(info->real, 32);
    ck_assert_uint_eq(json_object_size(info->facts), 4);
    ck_assert_str_eq(json_string_value(json_object_get(info->facts, "stage")), "rule");
    ck_assert_uint_eq(json_array_size(json_object_get(info->facts, "slots")), 1);
    ck_assert_uint_eq(json_array_size(json_object_get(info->facts, "signals")), 1);
    ck_assert_uint_eq(json_array_size(json_object_get(info->facts, "reports")), 0);
    tn_info_free(info);
    ck_ok(parse(TN_OPTIMIZER, "{\"licence\":\"MIT\"}", "{\"licence\":\"ISC\"}", &info, &err), err);
    ck_assert_str_eq(info->licence, "ISC"); /* the component's own comes first */
    ck_assert_str_eq(info->paper, "");
    ck_assert_uint_eq(info->row_count, 0);
    tn_info_free(info);
}
END_TEST

START_TEST(info_of_a_shipped_plugin)
{
    size_t size;
    unsigned char *bytes = read_bytes_of(adamw_plugin(), &size);
    tn_note *plugin, *component;
    tn_component_info *info;
    tn_error err;
    opened o;
    ck_ok(read_image(bytes, size, &o, &err), err);
    size_t at = (size_t)(tn_notes_plugin(&o.notes) - o.notes.items);
    ck_ok(tn_note_bytes(&o.source, &o.notes.items[at], &plugin, &err), err);
    ck_ok(tn_note_bytes(&o.source, &o.notes.items[1 - at], &component, &err), err);
    ck_ok(tn_info_parse("file", plugin, component, &info, &err), err);
    ck_assert_str_eq(info->licence, "Apache-2.0");
    ck_assert_str_eq(info->rows[0].name, "lr");
    ck_assert_str_eq(info->rows[0].default_text, "1e-3");
    ck_assert_str_eq(info->rows[0].range_text, "[0, inf)");
    ck_assert_str_eq(json_string_value(json_object_get(info->facts, "stage")), "rule");
    ck_assert_uint_eq(json_array_size(json_object_get(info->facts, "slots")), 2);
    tn_info_free(info);
    tn_free(plugin);
    tn_free(component);
    close_image(&o);
    free(bytes);
}
END_TEST

#define ROW(name, type, standard, range)                                                                               \
    "{\"hyper\":[{\"name\":\"" name "\",\"type\":\"" type "\",\"default\":\"" standard "\",\"range\":\"" range         \
    "\",\"doc\":\"\"},null]}"

START_TEST(texts_that_are_refused)
{
    static const struct {
        const char *text, *code, *part;
    } cases[] = {
        {"", "NOTE_INVALID: file: some-thing", "not JSON"},
        {"{", "NOTE_INVALID: file: some-thing", "not JSON"},
        {"[]", "NOTE_INVALID: file: some-thing", "JSON object"},
        {"{\"paper\":\"a\",\"paper\":\"b\"}", "NOTE_INVALID: file: some-thing", "duplicate"},
        {"{\"paper\":\"a\\u001bb\"}", "NOTE_INVALID: file: some-thing", "control"},
        {"{\"slots\":[{\"doc\":\"\\u0007\"}]}", "NOTE_INVALID: file: some-thing", "control"},
        {"{\"paper\":1}", "NOTE_INVALID: file: some-thing", "'paper' must be a text"},
        {"{\"hyper\":{}}", "NOTE_INVALID: file: some-thing", "'hyper' must be a list"},
        {"{\"colour\":\"red\"}", "NOTE_UNKNOWN: file: some-thing", "'colour'"},
        {"{\"in_place\":true}", "NOTE_UNKNOWN: file: some-thing", "'in_place'"},
        {"{\"stage\":\"later\"}", "NOTE_UNKNOWN: file: some-thing", "stage 'later'"},
        {"{\"stage\":\"\"}", "NOTE_UNKNOWN: file: some-thing", "stage ''"},
        {"{\"stage\":\"rul\"}", "NOTE_UNKNOWN: file: some-thing", "stage 'rul'"},
        {"{\"signals\":[\"taps\",\"smell\"]}", "NOTE_UNKNOWN: file: some-thing", "'smell'"},
        {"{\"signals\":[1]}", "NOTE_UNKNOWN: file: some-thing", "signals"},
        {"{\"hyper\":[1]}", "NOTE_INVALID: file: some-thing", "name"},
        {"{\"hyper\":[null,{}]}", "NOTE_INVALID: file: some-thing", "name"},
        {"{\"hyper\":[{\"name\":\"a\"}]}", "NOTE_INVALID: file: some-thing", "default"},
        {"{\"hyper\":[{\"name\":\"a\",\"default\":\"1\",\"range\":\"\",\"doc\":\"\"}]}", "NOTE_INVALID", "type"},
        {"{\"hyper\":[{\"name\":\"a\",\"type\":\"real\",\"default\":1,\"range\":\"\",\"doc\":\"\"}]}", "NOTE_INVALID",
         "default"},
        {"{\"hyper\":[{\"name\":\"a\",\"type\":\"real\",\"default\":\"1\",\"range\":\"\",\"doc\":\"\",\"x\":1}]}",
         "NOTE_UNKNOWN", "'a'"},
        {ROW("a", "complex", "1", ""), "NOTE_UNKNOWN: file: some-thing", "type 'complex'"},
        {ROW("1a", "real", "1", ""), "NOTE_INVALID: file: some-thing", "identifier"},
        {ROW("", "real", "1", ""), "NOTE_INVALID: file: some-thing", "identifier"},
        {ROW("a", "real", "one", ""), "NOTE_INVALID: file: some-thing", "'a': default 'one'"},
        {ROW("a", "real", "-1", "[0, 1)"), "NOTE_INVALID: file: some-thing", "default '-1', needed [0, 1)"},
        {ROW("a", "real", "1", "[0, 1)"), "NOTE_INVALID: file: some-thing", "default '1'"},
        {ROW("a", "real", "nan", "(-inf, inf)"), "NOTE_INVALID: file: some-thing", "default 'nan'"},
        {ROW("a", "real", "0", "[1, 0]"), "NOTE_INVALID: file: some-thing", "range '[1, 0]'"},
        {ROW("a", "real", "0", "[0, 1"), "NOTE_INVALID: file: some-thing", "range '[0, 1'"},
        {ROW("a", "integer", "1.5", ""), "NOTE_INVALID: file: some-thing", "integer"},
        {ROW("a", "integer", "0", "[1, inf)"), "NOTE_INVALID: file: some-thing", "default '0'"},
        {ROW("a", "integers", "256", ""), "NOTE_INVALID: file: some-thing", "list of integers"},
        {ROW("a", "integers", "[1, 2.5]", ""), "NOTE_INVALID: file: some-thing", "list of integers"},
        {ROW("a", "integers", "[1, 0]", "[1, inf)"), "NOTE_INVALID: file: some-thing", "list of integers"},
        {ROW("a", "flag", "yes", ""), "NOTE_INVALID: file: some-thing", "true or false"},
        {ROW("a", "flag", "true", "[0, 1]"), "NOTE_INVALID: file: some-thing", "no bounds"},
        {ROW("a", "choice", "c", "a | b"), "NOTE_INVALID: file: some-thing", "default 'c', needed a | b"},
        {ROW("a", "choice", "a", "a || b"), "NOTE_INVALID: file: some-thing", "words"},
        {ROW("a", "choice", "", ""), "NOTE_INVALID: file: some-thing", "words"},
        {ROW("a", "component", "none", ""), "NOTE_INVALID: file: some-thing", "kind"},
        {ROW("a", "component", "", "layer"), "NOTE_INVALID: file: some-thing", "none"},
    };
    tn_error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tn_component_info *info = NULL;
        ck_assert_refused(parse(TN_OPTIMIZER, "{}", cases[i].text, &info, &err), TN_E_PLUGIN, err, cases[i].code,
                          cases[i].part);
        ck_assert_ptr_null(info);
    }
    tn_component_info *info = NULL;
    ck_assert_refused(parse(TN_OPTIMIZER, "{\"wings\":2}", "{}", &info, &err), TN_E_PLUGIN, err, "NOTE_UNKNOWN",
                      "wings");
    ck_assert_refused(
        parse(TN_OPTIMIZER, "{}",
              "{\"hyper\":[{\"name\":\"a_b\",\"type\":\"real\",\"default\":\"1\",\"range\":\"\",\"doc\":\"\"},"
              "{\"name\":\"a_b\",\"type\":\"real\",\"default\":\"1\",\"range\":\"\",\"doc\":\"\"}]}",
              &info, &err),
        TN_E_PLUGIN, err, "NOTE_INVALID: file: some-thing", "each name once");
}
END_TEST

START_TEST(out_of_memory_at_each_allocation)
{
    elf_image *image = new_image();
    tn_note plugin = plugin_head(), component = component_head("optimizer", TN_OPTIMIZER, "one");
    int32_t status = TN_E_MEMORY;
    component.format = 7; /* so that a reason is copied as well */
    add_note_of(image, TN_NOTE_PLUGIN, &plugin, "{}");
    add_note_of(image, TN_NOTE_COMPONENT, &component, "{}");
    for (int64_t n = 0; status; n++) {
        tn_error err;
        opened o;
        tn_memory_fail_at(n);
        status = read_image(image, image->size, &o, &err);
        tn_memory_fail_at(-1);
        ck_assert(status == TN_OK || status == TN_E_MEMORY);
        ck_assert_int_lt(n, 10);
        close_image(&o);
    }
    free(image);
    status = TN_E_MEMORY;
    for (int64_t n = 0; status; n++) {
        tn_error err;
        tn_component_info *info = NULL;
        tn_memory_fail_at(n);
        status = parse(TN_OPTIMIZER, "{\"licence\":\"MIT\"}", all_rows, &info, &err);
        tn_memory_fail_at(-1);
        ck_assert(status == TN_OK || status == TN_E_MEMORY);
        ck_assert_int_lt(n, 100);
        tn_info_free(info);
    }
}
END_TEST

/* ---- anything ---- */

START_TEST(flipped_bytes_break_nothing)
{
    size_t size;
    unsigned char *bytes = read_bytes_of(adamw_plugin(), &size);
    uint32_t state = 7;
    size = size < 8192 ? size : 8192; /* headers and notes; the rest counts as cut off or not at all */
    Elf64_Ehdr *header = (void *)bytes;
    Elf64_Phdr *segments = (void *)(bytes + header->e_phoff);
    Elf64_Phdr *dynamic = NULL, *around = NULL; /* the segment that holds bytes 0x1000 to 0x1010, where it goes */
    for (Elf64_Phdr *s = segments; s < segments + header->e_phnum; s++) {
        dynamic = s->p_type == PT_DYNAMIC ? s : dynamic;
        if (s->p_type == PT_LOAD && s->p_offset <= 0x1000 && s->p_offset + s->p_filesz >= 0x1010)
            around = s;
        else if (s->p_type != PT_NOTE)
            s->p_filesz = 0;
    }
    ck_assert(dynamic && around);
    around->p_filesz = 0x1010 - around->p_offset;
    dynamic->p_offset = 0x1000;
    dynamic->p_vaddr = around->p_vaddr + 0x1000 - around->p_offset;
    dynamic->p_filesz = 16;
    memset(bytes + 0x1000, 0, 16);
    tn_error err;
    opened o;
    ck_ok(read_image(bytes, size, &o, &err), err); /* unharmed, it is read to the end */
    ck_assert_uint_eq(o.notes.count, 2);
    close_image(&o);
    unsigned char *copy = malloc(size);
    for (int round = 0; round < 20000; round++) {
        memcpy(copy, bytes, size);
        for (int flips = 0; flips < 1 + round % 4; flips++) {
            state = state * 1664525u + 1013904223u;
            copy[(state >> 8) % (round % 2 ? 4096 : 700) % size] ^= (unsigned char)(1u << (state >> 29));
        }
        LLVMFuzzerTestOneInput(copy, size);
    }
    free(copy);
    free(bytes);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("note");
    TCase *elf = tcase_create("elf");
    tcase_add_test(elf, what_is_not_elf);
    tcase_add_test(elf, cut_files);
    tcase_add_test(elf, files_for_other_machines);
    tcase_add_test(elf, damaged_headers);
    suite_add_tcase(suite, elf);
    TCase *notes = tcase_create("notes");
    tcase_add_test(notes, notes_of_a_shipped_plugin);
    tcase_add_test(notes, section_is_the_fallback);
    tcase_add_test(notes, ordinary_library_has_none);
    tcase_add_test(notes, all_notes_are_read);
    tcase_add_test(notes, note_sizes_that_overflow);
    tcase_add_test(notes, too_many_notes);
    tcase_add_test(notes, exactly_one_plugin_note);
    tcase_add_test(notes, heads);
    tcase_add_test(notes, descriptor_limits);
    tcase_add_test(notes, processor_has_what_it_runs);
    tcase_add_test(notes, text_without_end);
    suite_add_tcase(suite, notes);
    TCase *text = tcase_create("text");
    tcase_set_timeout(text, 60);
    tcase_add_test(text, info_of_all_types);
    tcase_add_test(text, info_of_a_shipped_plugin);
    tcase_add_test(text, texts_that_are_refused);
    tcase_add_test(text, out_of_memory_at_each_allocation);
    tcase_add_test(text, flipped_bytes_break_nothing);
    suite_add_tcase(suite, text);
    SRunner *sr = srunner_create(suite);
    srunner_run_all(sr, CK_ENV);
    int failed = srunner_ntests_failed(sr);
    srunner_free(sr);
    return failed ? 1 : 0;
}
