/* SPDX-License-Identifier: Apache-2.0
 *
 * elf.h: the gate before dlopen. A bounds-checked reader of 64-bit ELF files that never maps a file and
 * never reads past its end, so that a damaged, foreign or hostile file is refused with words instead of a signal.
 *
 * Every message begins with a reason code, then the file's name:
 *   NOT_REGULAR ENOENT EACCES ELOOP ...   the file could not be opened as a regular file
 *   NOT_ELF ELF_CORRUPT ELF_TRUNCATED     it is not a whole ELF file
 *   WRONG_ARCH                            it is one for another machine, or a program
 *
 * Thread rule: all functions are re-entrant; one tn_file or tn_elf is used by one thread at a time.
 */
#ifndef TENON_HOST_PLUGIN_ELF_H
#define TENON_HOST_PLUGIN_ELF_H

#include <elf.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include <tenon/base.h>

/* Bytes to read from: a file, or memory (tests, fuzzing). */
typedef struct tn_source {
    const char *name; /* for messages; borrowed */
    uint64_t size;    /* in bytes */
    /* Exactly n bytes from `offset` into `buffer`; the caller has checked that they exist. TN_OK or TN_E_IO. */
    int32_t (*read)(const struct tn_source *source, uint64_t offset, void *buffer, size_t n);
    const void *memory; /* of a memory source */
    int fd;             /* of a file source */
} tn_source;

/* A source over `size` bytes, which must outlive it. */
tn_source tn_source_memory(const char *name, const void *memory, size_t size);

/* Reads n bytes at `offset`. TN_E_DATA if the source has no such bytes, TN_E_IO if the system refuses. */
int32_t tn_source_read(const tn_source *source, uint64_t offset, void *buffer, size_t n);

typedef struct tn_file {
    tn_source source;
    struct stat stat; /* of the open descriptor */
} tn_file;

/* Opens `name` (relative to the directory `dirfd`, or AT_FDCWD) for reading, at once even if it is a FIFO, and checks
 * that it is a regular file. `label` is its name in messages and is borrowed while `ret` is in use. Close with
 * tn_file_close. TN_E_IO, TN_E_NOT_FOUND or TN_E_PLUGIN. */
int32_t tn_file_open(int dirfd, const char *name, const char *label, tn_file *ret, tn_error *err);
void tn_file_close(tn_file *file);

/* The message and status for an error number of the system, e.g. "ENOENT: label: ...". */
int32_t tn_file_refuse(const char *label, int code, tn_error *err);

/* 1 if both describe the same file (device, inode) with the same contents (size, time of change), else 0. */
int tn_file_unchanged(const struct stat *a, const struct stat *b);

#define TN_ELF_HEAD         4096 /* bytes read at once; covers the headers and notes of most plugins */
#define TN_ELF_SEGMENTS_MAX 64
#define TN_ELF_SECTIONS_MAX 4096

typedef struct tn_elf {
    const tn_source *source; /* borrowed */
    Elf64_Ehdr header;
    Elf64_Phdr segments[TN_ELF_SEGMENTS_MAX]; /* header.e_phnum of them */
    size_t head_size;
    unsigned char head[TN_ELF_HEAD];
} tn_elf;

/* Reads the headers and checks all that dlopen trusts: this machine's class, byte order and machine; a shared object
 * that is no program; every segment inside the file and in ascending order. TN_E_PLUGIN or TN_E_IO. */
int32_t tn_elf_open(const tn_source *source, tn_elf *ret, tn_error *err);

/* As tn_source_read, from what was read already where possible. */
int32_t tn_elf_read(const tn_elf *elf, uint64_t offset, void *buffer, size_t n);

/* The section called `name`; TN_E_NOT_FOUND (without a message) if there is none or the section table is damaged or
 * cut off, which hurts nobody but its reader. */
int32_t tn_elf_section(const tn_elf *elf, const char *name, Elf64_Shdr *ret);

#endif
