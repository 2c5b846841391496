/* SPDX-License-Identifier: Apache-2.0
 *
 * plugin_files.h: files for the tests of host/plugin. A directory of each program's own under /tmp, copies and damaged
 * copies of plugins in it, and small ELF files made from notes, which are listed as plugins but hold no code.
 */
#ifndef TENON_TESTS_PLUGIN_FILES_H
#define TENON_TESTS_PLUGIN_FILES_H

#include <check.h>
#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <tenon/optimizer.h>

#include "host/base/error.h"
#include "host/plugin/elf.h"
#include "host/plugin/note.h"

#define UNUSED __attribute__((unused))

/* ---- the directory: an unchecked fixture ---- */

static char test_directory[PATH_MAX];

static UNUSED void make_directory(void)
{
    strcpy(test_directory, "/tmp/tenon-test-XXXXXX");
    ck_assert_msg(mkdtemp(test_directory) != NULL, "mkdtemp: %s", strerror(errno));
}

static UNUSED int remove_one(const char *path, const struct stat *stat, int type, struct FTW *walk)
{
    (void)stat, (void)type, (void)walk;
    return remove(path);
}

static UNUSED void remove_directory(void) { nftw(test_directory, remove_one, 16, FTW_DEPTH | FTW_PHYS); }

/* directory/name; valid for seven further calls. */
static UNUSED const char *in_test(const char *name)
{
    static char paths[8][2 * PATH_MAX];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof *paths, "%s/%s", test_directory, name);
    return path;
}

static UNUSED const char *make_subdirectory(const char *name)
{
    const char *path = in_test(name);
    ck_assert_msg(mkdir(path, 0700) == 0, "mkdir %s: %s", path, strerror(errno));
    return path;
}

/* ---- files ---- */

static UNUSED void write_bytes(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    ck_assert_msg(file != NULL, "%s: %s", path, strerror(errno));
    ck_assert_uint_eq(fwrite(bytes, 1, size, file), size);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(chmod(path, 0600), 0);
}

/* The caller frees it. */
static UNUSED unsigned char *read_bytes_of(const char *path, size_t *ret_size)
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

static UNUSED void copy_file(const char *from, const char *to)
{
    size_t size;
    unsigned char *bytes = read_bytes_of(from, &size);
    write_bytes(to, bytes, size);
    free(bytes);
}

static UNUSED const char *from_environment(const char *variable, const char *name)
{
    static char paths[8][PATH_MAX];
    static unsigned next;
    const char *directory = getenv(variable);
    ck_assert_msg(directory != NULL, "%s is not set: the directory of the built plugins, for %s", variable, name);
    char *path = paths[next++ % 8];
    snprintf(path, sizeof *paths, "%s/%s", directory, name);
    ck_assert_msg(access(path, R_OK) == 0, "%s: %s", path, strerror(errno));
    return path;
}

/* A plugin of tests/bad, and adamw as it is shipped. */
static UNUSED const char *bad_plugin(const char *name)
{
    char file[256];
    snprintf(file, sizeof file, "%s.so", name);
    return from_environment("TENON_TEST_BAD", file);
}
static UNUSED const char *adamw_plugin(void) { return from_environment("TENON_TEST_GOOD", "optimizer-adamw.so"); }

/* A library without a note, which every process has loaded. */
static UNUSED const char *plain_library(void)
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
static UNUSED int is_mapped(const char *part)
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

static UNUSED elf_image *new_image(void)
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
static UNUSED size_t add_any_note(elf_image *image, const char *owner, uint32_t type, const void *bytes, uint32_t size)
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
static UNUSED tn_note *new_note(const tn_note *head, const char *text)
{
    size_t size = sizeof *head + strlen(text) + 1;
    tn_note *note = calloc(1, size);
    *note = *head;
    note->size = (uint32_t)size;
    note->text_at = sizeof *head;
    strcpy((char *)(note + 1), text);
    return note;
}

static UNUSED size_t add_note_of(elf_image *image, uint32_t type, const tn_note *head, const char *text)
{
    tn_note *note = new_note(head, text);
    size_t at = add_any_note(image, TN_NOTE_OWNER, type, note, note->size);
    free(note);
    return at;
}

static UNUSED tn_note plugin_head(void)
{
    return (tn_note){
        .format = TN_NOTE_FORMAT, .abi_major = TN_ABI_MAJOR, .plugin = "org.tenon.test", .version = "1.2.3"};
}

static UNUSED tn_note component_head(const char *kind, const char *interface, const char *name)
{
    tn_note head = {
        .format = TN_NOTE_FORMAT, .abi_major = TN_ABI_MAJOR, .real = 32, .device = "cpu", .summary = "a test"};
    strcpy(head.kind, kind);
    strcpy(head.interface, interface);
    strcpy(head.name, name);
    return head;
}

/* A file of one component without facts. */
static UNUSED void write_plugin(const char *path, const tn_note *component)
{
    elf_image *image = new_image();
    tn_note plugin = plugin_head();
    add_note_of(image, TN_NOTE_PLUGIN, &plugin, "{\"licence\":\"MIT\"}");
    add_note_of(image, TN_NOTE_COMPONENT, component, "{}");
    write_bytes(path, image, image->size);
    free(image);
}

/* ---- messages ---- */

/* The call failed with this status, its message begins with `reason` and holds `part`. */
#define ck_assert_refused(call, expected, err, reason, part)                                                           \
    do {                                                                                                               \
        int32_t status_ = (call);                                                                                      \
        ck_assert_msg(status_ == (expected), "%s, expected %s: %s", tn_status_name(status_), tn_status_name(expected), \
                      status_ ? (err)->msg : "");                                                                      \
        ck_assert_int_eq((err)->code, (expected));                                                                     \
        ck_assert_msg(strncmp((err)->msg, reason, strlen(reason)) == 0, "no %s: %s", reason, (err)->msg);              \
        ck_assert_msg(strstr((err)->msg, part) != NULL, "no '%s': %s", part, (err)->msg);                              \
    } while (0)
#define ck_assert_done(call, err)                                                                                      \
    do {                                                                                                               \
        int32_t status_ = (call);                                                                                      \
        ck_assert_msg(status_ == TN_OK, "%s: %s", tn_status_name(status_), status_ ? (err)->msg : "");                 \
    } while (0)

#endif
