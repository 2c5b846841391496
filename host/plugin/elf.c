/* SPDX-License-Identifier: Apache-2.0
 *
 * elf.c: the gate before dlopen.
 */
#include "host/plugin/elf.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "host/base/error.h"

#if defined __x86_64__
#define HOST_MACHINE EM_X86_64
#elif defined __aarch64__
#define HOST_MACHINE EM_AARCH64
#elif defined __riscv
#define HOST_MACHINE EM_RISCV
#elif defined __powerpc64__
#define HOST_MACHINE EM_PPC64
#elif defined __s390x__
#define HOST_MACHINE EM_S390
#else
#error "add this machine's EM_ number"
#endif
#define HOST_ORDER (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ ? ELFDATA2LSB : ELFDATA2MSB)

/* ---- sources ---- */

static int32_t memory_read(const tn_source *source, uint64_t offset, void *buffer, size_t n)
{
    memcpy(buffer, (const unsigned char *)source->memory + offset, n);
    return TN_OK;
}

tn_source tn_source_memory(const char *name, const void *memory, size_t size)
{
    return (tn_source){.name = name, .size = size, .read = memory_read, .memory = memory, .fd = -1};
}

static int32_t fd_read(const tn_source *source, uint64_t offset, void *buffer, size_t n)
{
    size_t done = 0;
    while (done < n) {
        ssize_t got = pread(source->fd, (unsigned char *)buffer + done, n - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) /* 0: the file has shrunk since it was opened */
            return TN_E_IO;
        done += (size_t)got;
    }
    return TN_OK;
}

int32_t tn_source_read(const tn_source *source, uint64_t offset, void *buffer, size_t n)
{
    if (offset > source->size || n > source->size - offset)
        return TN_E_DATA;
    return n == 0 ? TN_OK : source->read(source, offset, buffer, n);
}

/* ---- files ---- */

int32_t tn_file_refuse(const char *label, int code, tn_error *err)
{
    const char *name = strerrorname_np(code);
    int32_t status = code == ENOENT || code == ENOTDIR ? TN_E_NOT_FOUND : TN_E_IO;
    if (code == ENXIO) /* a socket, or a FIFO opened for writing */
        return tn_error_set(err, TN_E_PLUGIN, "NOT_REGULAR: %s: a socket or device, not a regular file", label);
    return tn_error_set(err, status, "%s: %s: can not open: %s", name ? name : "EIO", label, strerror(code));
}

static const char *file_type(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFDIR:
        return "a directory";
    case S_IFIFO:
        return "a FIFO";
    case S_IFCHR:
        return "a character device";
    case S_IFBLK:
        return "a block device";
    default:
        return "a special file";
    }
}

int32_t tn_file_open(int dirfd, const char *name, const char *label, tn_file *ret, tn_error *err)
{
    int fd = openat(dirfd, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return tn_file_refuse(label, errno, err);
    struct stat stat;
    if (fstat(fd, &stat) != 0) {
        int code = errno;
        close(fd);
        return tn_file_refuse(label, code, err);
    }
    if (!S_ISREG(stat.st_mode)) {
        close(fd);
        return tn_error_set(err, TN_E_PLUGIN, "NOT_REGULAR: %s: %s, not a regular file", label,
                            file_type(stat.st_mode));
    }
    ret->source = (tn_source){.name = label, .size = (uint64_t)stat.st_size, .read = fd_read, .fd = fd};
    ret->stat = stat;
    return TN_OK;
}

void tn_file_close(tn_file *file)
{
    close(file->source.fd);
    file->source.fd = -1;
}

static int same_time(struct timespec a, struct timespec b) { return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec; }

int tn_file_unchanged(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           same_time(a->st_mtim, b->st_mtim);
}

/* ---- headers ---- */

static const char *machine_name(unsigned machine, char *buffer, size_t size)
{
    static const struct {
        unsigned machine;
        const char *name;
    } known[] = {{EM_X86_64, "x86-64"}, {EM_AARCH64, "AArch64"}, {EM_386, "i386"},           {EM_ARM, "ARM"},
                 {EM_RISCV, "RISC-V"},  {EM_PPC64, "PowerPC64"}, {EM_S390, "S/390"},         {EM_MIPS, "MIPS"},
                 {EM_PPC, "PowerPC"},   {EM_SPARCV9, "SPARC"},   {EM_LOONGARCH, "LoongArch"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (known[i].machine == machine)
            return known[i].name;
    }
    snprintf(buffer, size, "machine %u", machine);
    return buffer;
}

static const char *type_name(unsigned type)
{
    switch (type) {
    case ET_DYN:
        return "shared object";
    case ET_EXEC:
        return "program";
    case ET_REL:
        return "object file";
    case ET_CORE:
        return "core dump";
    default:
        return "file of unknown type";
    }
}

static int32_t refuse_arch(const tn_source *source, int class, int order, unsigned machine, unsigned type,
                           tn_error *err)
{
    char found[24], needed[24];
    return tn_error_set(
        err, TN_E_PLUGIN,
        "WRONG_ARCH: %s: found a %d-bit %s-endian %s %s, needed a 64-bit %s-endian %s shared object; build the plugin "
        "for this machine with -shared",
        source->name, class == ELFCLASS32 ? 32 : 64, order == ELFDATA2MSB ? "big" : "little",
        machine_name(machine, found, sizeof found), type_name(type), HOST_ORDER == ELFDATA2MSB ? "big" : "little",
        machine_name(HOST_MACHINE, needed, sizeof needed));
}

static uint16_t order_u16(const unsigned char *bytes, int order)
{
    return order == ELFDATA2MSB ? (uint16_t)(bytes[0] << 8 | bytes[1]) : (uint16_t)(bytes[1] << 8 | bytes[0]);
}

static int32_t check_ident(const tn_elf *elf, tn_error *err)
{
    const tn_source *source = elf->source;
    const unsigned char *head = elf->head;
    if (elf->head_size < SELFMAG || memcmp(head, ELFMAG, SELFMAG) != 0)
        return tn_error_set(err, TN_E_PLUGIN, "NOT_ELF: %s: %s", source->name,
                            source->size == 0 ? "the file is empty" : "not an ELF file");
    if (elf->head_size < sizeof(Elf32_Ehdr))
        return tn_error_set(err, TN_E_PLUGIN,
                            "ELF_TRUNCATED: %s: the header ends at %zu, the file is %" PRIu64 " bytes", source->name,
                            sizeof(Elf64_Ehdr), source->size);
    int class = head[EI_CLASS], order = head[EI_DATA];
    if ((class != ELFCLASS32 && class != ELFCLASS64) || (order != ELFDATA2LSB && order != ELFDATA2MSB) ||
        head[EI_VERSION] != EV_CURRENT)
        return tn_error_set(err, TN_E_PLUGIN, "ELF_CORRUPT: %s: class %d, byte order %d, version %d are not ELF's",
                            source->name, class, order, head[EI_VERSION]);
    unsigned type = order_u16(head + EI_NIDENT, order), machine = order_u16(head + EI_NIDENT + 2, order);
    if (class != ELFCLASS64 || order != HOST_ORDER || machine != HOST_MACHINE || type != ET_DYN)
        return refuse_arch(source, class, order, machine, type, err);
    if (head[EI_OSABI] != ELFOSABI_SYSV && head[EI_OSABI] != ELFOSABI_GNU)
        return tn_error_set(err, TN_E_PLUGIN, "WRONG_ARCH: %s: for operating system ABI %d, needed 0 or 3 (Linux)",
                            source->name, head[EI_OSABI]);
    return TN_OK;
}

static int32_t refuse_end(const tn_source *source, const char *what, uint64_t offset, uint64_t bytes, tn_error *err)
{
    if (bytes > UINT64_MAX - offset)
        return tn_error_set(err, TN_E_PLUGIN, "ELF_CORRUPT: %s: %s of %" PRIu64 " bytes at %" PRIu64 " overflows",
                            source->name, what, bytes, offset);
    return tn_error_set(err, TN_E_PLUGIN,
                        "ELF_TRUNCATED: %s: %s ends at %" PRIu64 ", the file is %" PRIu64 " bytes; copy it again",
                        source->name, what, offset + bytes, source->size);
}

static int inside(const tn_source *source, uint64_t offset, uint64_t bytes)
{
    return offset <= source->size && bytes <= source->size - offset;
}

static int32_t refuse_read(const tn_source *source, tn_error *err)
{
    return tn_error_set(err, TN_E_IO, "EIO: %s: reading failed; did the file shrink?", source->name);
}

static int32_t read_segments(tn_elf *elf, tn_error *err)
{
    const tn_source *source = elf->source;
    if (elf->head_size < sizeof elf->header)
        return refuse_end(source, "the header", 0, sizeof elf->header, err);
    memcpy(&elf->header, elf->head, sizeof elf->header);
    const Elf64_Ehdr *h = &elf->header;
    if (h->e_phentsize != sizeof(Elf64_Phdr) || h->e_phnum == 0 || h->e_phnum > TN_ELF_SEGMENTS_MAX)
        return tn_error_set(err, TN_E_PLUGIN,
                            "ELF_CORRUPT: %s: %u program headers of %u bytes, needed 1 to %d of %zu bytes",
                            source->name, h->e_phnum, h->e_phentsize, TN_ELF_SEGMENTS_MAX, sizeof(Elf64_Phdr));
    uint64_t bytes = h->e_phnum * sizeof(Elf64_Phdr);
    if (!inside(source, h->e_phoff, bytes))
        return refuse_end(source, "the program header table", h->e_phoff, bytes, err);
    return tn_elf_read(elf, h->e_phoff, elf->segments, bytes) == TN_OK ? TN_OK : refuse_read(source, err);
}

/* The loader of libc sizes one mapping from the first and the last segment and trusts what lies between. */
static int32_t check_load(const tn_elf *elf, const Elf64_Phdr *s, uint64_t *end, tn_error *err)
{
    if (s->p_filesz > s->p_memsz || s->p_memsz > UINT64_MAX / 2 || s->p_vaddr > UINT64_MAX / 4 || s->p_vaddr < *end)
        return tn_error_set(err, TN_E_PLUGIN,
                            "ELF_CORRUPT: %s: the segment at address 0x%" PRIx64 " (%" PRIu64
                            " bytes in memory, %" PRIu64 " in the file) overlaps its neighbour or is impossible",
                            elf->source->name, s->p_vaddr, s->p_memsz, s->p_filesz);
    *end = s->p_vaddr + s->p_memsz;
    return TN_OK;
}

static int32_t check_segments(const tn_elf *elf, tn_error *err)
{
    uint64_t end = 0;
    int loads = 0, dynamics = 0;
    for (unsigned i = 0; i < elf->header.e_phnum; i++) {
        const Elf64_Phdr *s = &elf->segments[i];
        if (s->p_filesz > 0 && !inside(elf->source, s->p_offset, s->p_filesz))
            return refuse_end(elf->source, "a segment", s->p_offset, s->p_filesz, err);
        dynamics += s->p_type == PT_DYNAMIC;
        if (s->p_type != PT_LOAD)
            continue;
        loads++;
        int32_t status = check_load(elf, s, &end, err);
        if (status)
            return status;
    }
    if (loads == 0 || dynamics != 1)
        return tn_error_set(err, TN_E_PLUGIN,
                            "ELF_CORRUPT: %s: %d loadable and %d dynamic segments, needed at least 1 and exactly 1",
                            elf->source->name, loads, dynamics);
    return TN_OK;
}

/* dlopen reads the dynamic segment in memory, without a look whether anything is there. */
static int is_loaded(const tn_elf *elf, const Elf64_Phdr *dynamic)
{
    for (unsigned i = 0; i < elf->header.e_phnum; i++) {
        const Elf64_Phdr *s = &elf->segments[i];
        uint64_t at = dynamic->p_vaddr - s->p_vaddr;
        if (s->p_type == PT_LOAD && dynamic->p_vaddr >= s->p_vaddr && at <= s->p_filesz &&
            dynamic->p_filesz <= s->p_filesz - at && dynamic->p_offset - s->p_offset == at)
            return 1;
    }
    return 0;
}

/* A position-independent program is a shared object but for one flag. */
static int32_t check_dynamic(const tn_elf *elf, tn_error *err)
{
    const Elf64_Phdr *s = elf->segments;
    while (s->p_type != PT_DYNAMIC)
        s++;
    if (!is_loaded(elf, s))
        return tn_error_set(err, TN_E_PLUGIN,
                            "ELF_CORRUPT: %s: the dynamic segment (%" PRIu64 " bytes at %" PRIu64 ", address 0x%" PRIx64
                            ") lies in no loadable segment",
                            elf->source->name, s->p_filesz, s->p_offset, s->p_vaddr);
    Elf64_Dyn entries[64];
    uint64_t at = s->p_offset, left = s->p_filesz / sizeof *entries;
    while (left > 0) {
        size_t n = left < 64 ? (size_t)left : 64;
        if (tn_elf_read(elf, at, entries, n * sizeof *entries))
            return refuse_read(elf->source, err);
        for (size_t i = 0; i < n; i++) {
            if (entries[i].d_tag == DT_NULL)
                return TN_OK;
            if (entries[i].d_tag == DT_FLAGS_1 && (entries[i].d_un.d_val & DF_1_PIE))
                return refuse_arch(elf->source, ELFCLASS64, HOST_ORDER, HOST_MACHINE, ET_EXEC, err);
        }
        at += n * sizeof *entries;
        left -= n;
    }
    return tn_error_set(err, TN_E_PLUGIN, "ELF_CORRUPT: %s: the dynamic segment has no end mark", elf->source->name);
}

int32_t tn_elf_open(const tn_source *source, tn_elf *ret, tn_error *err)
{
    ret->source = source;
    ret->head_size = source->size < TN_ELF_HEAD ? (size_t)source->size : TN_ELF_HEAD;
    if (tn_source_read(source, 0, ret->head, ret->head_size))
        return refuse_read(source, err);
    int32_t status = check_ident(ret, err);
    if (!status)
        status = read_segments(ret, err);
    if (!status)
        status = check_segments(ret, err);
    if (!status)
        status = check_dynamic(ret, err);
    return status;
}

int32_t tn_elf_read(const tn_elf *elf, uint64_t offset, void *buffer, size_t n)
{
    if (offset > elf->head_size || n > elf->head_size - offset)
        return tn_source_read(elf->source, offset, buffer, n);
    memcpy(buffer, elf->head + offset, n);
    return TN_OK;
}

int32_t tn_elf_section(const tn_elf *elf, const char *name, Elf64_Shdr *ret)
{
    const Elf64_Ehdr *h = &elf->header;
    char found[32];
    size_t length = strlen(name) + 1;
    Elf64_Shdr names, s;
    if (h->e_shentsize != sizeof s || h->e_shnum > TN_ELF_SECTIONS_MAX || h->e_shstrndx >= h->e_shnum ||
        length > sizeof found || !inside(elf->source, h->e_shoff, h->e_shnum * sizeof s) ||
        tn_elf_read(elf, h->e_shoff + h->e_shstrndx * sizeof s, &names, sizeof names) ||
        !inside(elf->source, names.sh_offset, names.sh_size))
        return TN_E_NOT_FOUND;
    for (unsigned i = 1; i < h->e_shnum; i++) {
        if (tn_elf_read(elf, h->e_shoff + i * sizeof s, &s, sizeof s))
            return TN_E_NOT_FOUND;
        if (s.sh_type == SHT_NOBITS || s.sh_name >= names.sh_size || length > names.sh_size - s.sh_name ||
            tn_elf_read(elf, names.sh_offset + s.sh_name, found, length) || memcmp(found, name, length) != 0)
            continue;
        if (!inside(elf->source, s.sh_offset, s.sh_size))
            return TN_E_NOT_FOUND;
        *ret = s;
        return TN_OK;
    }
    return TN_E_NOT_FOUND;
}
