/* SPDX-License-Identifier: Apache-2.0
 *
 * plugin_files.h: for the tests of host/plugin: copies and damaged copies of plugins in the test's folder, and small
 * ELF files made from notes, which are listed as plugins but hold no code.
 */
#ifndef TENON_TESTS_PLUGIN_FILES_H
#define TENON_TESTS_PLUGIN_FILES_H

#include <tenon/optimizer.h>

#include "host/base/log.h"
#include "host/plugin/elf.h"
#include "host/plugin/note.h"
#include "tests/support.h"

/* ---- a log that is kept ---- */

static char log_text[16384];

static inline void keep_line(void *user, int32_t level, const char *line)
{
    (void)user;
    size_t used = strlen(log_text);
    snprintf(log_text + used, sizeof log_text - used, "%d %s\n", level, line);
}

static const tn_log kept = {keep_line, NULL};

/* ---- files ---- */

static inline const char *make_subdirectory(const char *name)
{
    const char *path = in_test(name);
    ck_assert_msg(mkdir(path, 0700) == 0, "mkdir %s: %s", path, strerror(errno));
    return path;
}

/* The caller frees it. */
static inline unsigned char *read_bytes_of(const char *path, size_t *ret_size)
{
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "%s: %s", path, strerror(errno));
    ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
    long size = ftell(file);
    ck_assert_int_gt(size, 0);
    rewind(file);
    unsigned char *bytes = malloc((size_t)size);
    ck_assert_uint_eq(fread(bytes, 1, (size_t)size, file), (size_t)size);
    fclose(file);
    *ret_size = (size_t)size;
    return bytes;
}

static inline void copy_file(const char *from, const char *to)
{
    size_t size;
    unsigned char *bytes = read_bytes_of(from, &size);
    write_bytes(to, bytes, size);
    free(bytes);
}

/* A plugin of tests/bad, and adamw as it is shipped. */
static inline const char *bad_plugin(const char *name)
{
    char file[256];
    snprintf(file, sizeof file, "%s.so", name);
    return test_path("TENON_TEST_BAD", file);
}
static inline const char *adamw_plugin(void) { return test_path("TENON_TEST_GOOD", "optimizer-adamw.so"); }

/* A library without a note, which every process has loaded. */
static inline const char *plain_library(void)
{
    static char path[PATH_MAX];
    char line[PATH_MAX + 256];
    FILE *maps = fopen("/proc/self/maps", "r");
    ck_assert_ptr_nonnull(maps);
    path[0] = 0;
    while (!path[0] && fgets(line, sizeof line, maps)) {
        if (strstr(line, "/libc.so.6") || strstr(line, "/libc-2"))
            sscanf(strchr(line, '/'), "%4095[^\n]", path);
    }
    fclose(maps);
    ck_assert_msg(path[0] != 0, "libc is not in /proc/self/maps");
    return path;
}

/* Is a file whose path holds `part` mapped into this process? */
static inline int is_mapped(const char *part)
{
    char line[PATH_MAX + 256];
    int found = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    ck_assert_ptr_nonnull(maps);
    while (fgets(line, sizeof line, maps))
        found = found || strstr(line, part);
    fclose(maps);
    return found;
}

/* ---- ELF files made from notes ---- */

#define IMAGE_MAX (256 * 1024)

/* Header, program headers (loadable, dynamic, note), an empty dynamic segment, then the notes. */
typedef struct {
    Elf64_Ehdr header;
    Elf64_Phdr load, dynamic, note;
    Elf64_Dyn end;
    unsigned char notes[IMAGE_MAX];
    size_t size; /* of all before `size` that counts, in bytes */
} elf_image;

#define IMAGE_NOTES offsetof(elf_image, notes)

static inline elf_image *new_image(void)
{
    elf_image *image = calloc(1, sizeof *image);
    size_t size;
    /* identification, machine and version as this system's own libraries have them */
    unsigned char *libc = read_bytes_of(plain_library(), &size);
    memcpy(&image->header, libc, sizeof image->header);
    free(libc);
    image->header.e_phoff = offsetof(elf_image, load);
    image->header.e_phnum = 3;
    image->header.e_phentsize = sizeof(Elf64_Phdr);
    image->header.e_shoff = 0;
    image->header.e_shnum = image->header.e_shstrndx = 0;
    image->load = (Elf64_Phdr){.p_type = PT_LOAD, .p_flags = PF_R, .p_align = 4096};
    image->dynamic = (Elf64_Phdr){.p_type = PT_DYNAMIC,
                                  .p_offset = offsetof(elf_image, end),
                                  .p_vaddr = offsetof(elf_image, end),
                                  .p_filesz = sizeof(Elf64_Dyn),
                                  .p_memsz = sizeof(Elf64_Dyn)};
    image->note = (Elf64_Phdr){.p_type = PT_NOTE, .p_offset = IMAGE_NOTES, .p_vaddr = IMAGE_NOTES};
    image->size = IMAGE_NOTES;
    return image;
}

/* Adds a note of any owner; returns where its descriptor begins in the image. */
static inline size_t add_any_note(elf_image *image, const char *owner, uint32_t type, const void *bytes, uint32_t size)
{
    Elf64_Nhdr head = {(Elf64_Word)strlen(owner) + 1, size, type};
    size_t owner_size = (head.n_namesz + 3) & ~3u;
    unsigned char *to = (unsigned char *)image + image->size;
    ck_assert_uint_lt(image->size + sizeof head + owner_size + size + 4, offsetof(elf_image, size));
    memcpy(to, &head, sizeof head);
    memcpy(to + sizeof head, owner, head.n_namesz);
    memcpy(to + sizeof head + owner_size, bytes, size);
    size_t at = image->size + sizeof head + owner_size;
    image->size = at + ((size + 3) & ~3u);
    image->note.p_filesz = image->note.p_memsz = image->size - IMAGE_NOTES;
    image->load.p_filesz = image->load.p_memsz = image->size;
    return at;
}

/* A descriptor from its head and its text; sizes are filled in. The caller frees it. */
static inline tn_note *new_note(const tn_note *head, const char *text)
{
    size_t size = sizeof *head + strlen(text) + 1;
    tn_note *note = calloc(1, size);
    *note = *head;
    note->size = (uint32_t)size;
    note->text_at = sizeof *head;
    strcpy((char *)(note + 1), text);
    return note;
}

static inline size_t add_note_of(elf_image *image, uint32_t type, const tn_note *head, const char *text)
{
    tn_note *note = new_note(head, text);
    size_t at = add_any_note(image, TN_NOTE_OWNER, type, note, note->size);
    free(note);
    return at;
}

static inline tn_note plugin_head(void)
{
    return (tn_note){
        .format = TN_NOTE_FORMAT, .abi_major = TN_ABI_MAJOR, .plugin = "org.tenon.test", .version = "1.2.3"};
}

static inline tn_note component_head(const char *kind, const char *interface, const char *name)
{
    tn_note head = {
        .format = TN_NOTE_FORMAT, .abi_major = TN_ABI_MAJOR, .real = 32, .device = "cpu", .summary = "a test"};
    strcpy(head.kind, kind);
    strcpy(head.interface, interface);
    strcpy(head.name, name);
    return head;
}

/* A file of one component without facts. */
static inline void write_plugin(const char *path, const tn_note *component)
{
    elf_image *image = new_image();
    tn_note plugin = plugin_head();
    add_note_of(image, TN_NOTE_PLUGIN, &plugin, "{\"licence\":\"MIT\"}");
    add_note_of(image, TN_NOTE_COMPONENT, component, "{}");
    write_bytes(path, image, image->size);
    free(image);
}

#endif
