/* SPDX-License-Identifier: Apache-2.0
 *
 * count.c: every loaded object's relocations are looked through for the names of allocating functions. What a table
 * held is kept and called, so that an allocator that stands before libc's stays in use.
 */
#include "host/check/count.h"

#include <dirent.h>
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static _Atomic int64_t allocations, held;
static const char *_Atomic last = "";

int64_t tn_count_allocations(void) { return allocations; }
int64_t tn_count_held(void) { return held; }
const char *tn_count_last(void) { return last; }

static void took(const char *name, int64_t blocks)
{
    allocations++;
    held += blocks;
    last = name;
}

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__

int __sanitizer_install_malloc_and_free_hooks(void (*allocated)(const volatile void *, size_t),
                                              void (*freed)(const volatile void *));

static void on_malloc(const volatile void *block, size_t size)
{
    (void)block, (void)size;
    took("malloc", 1);
}

static void on_free(const volatile void *block) { held -= block != NULL; }

int32_t tn_count_open(tn_error *err)
{
    static int done;
    (void)err;
    if (!done++)
        __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
    return TN_OK;
}

#else

/* ---- what stands in the tables instead ---- */

static void *count_malloc(size_t size)
{
    took("malloc", 1);
    return malloc(size);
}

static void *count_calloc(size_t n, size_t size)
{
    took("calloc", 1);
    return calloc(n, size);
}

static void *count_realloc(void *block, size_t size)
{
    took("realloc", !block);
    return realloc(block, size);
}

static void *count_reallocarray(void *block, size_t n, size_t size)
{
    took("reallocarray", !block);
    return reallocarray(block, n, size);
}

static void *count_aligned_alloc(size_t alignment, size_t size)
{
    took("aligned_alloc", 1);
    return aligned_alloc(alignment, size);
}

static int count_posix_memalign(void **block, size_t alignment, size_t size)
{
    took("posix_memalign", 1);
    return posix_memalign(block, alignment, size);
}

static void count_free(void *block)
{
    held -= block != NULL;
    free(block);
}

static void *count_mmap(void *at, size_t bytes, int protection, int flags, int file, off_t offset)
{
    took("mmap", 0);
    return mmap(at, bytes, protection, flags, file, offset);
}

static const struct {
    const char *name;
    void (*here)(void);
} counted[] = {
    {"malloc", (void (*)(void))count_malloc},
    {"calloc", (void (*)(void))count_calloc},
    {"realloc", (void (*)(void))count_realloc},
    {"reallocarray", (void (*)(void))count_reallocarray},
    {"aligned_alloc", (void (*)(void))count_aligned_alloc},
    {"memalign", (void (*)(void))count_aligned_alloc},
    {"posix_memalign", (void (*)(void))count_posix_memalign},
    {"free", (void (*)(void))count_free},
    {"mmap", (void (*)(void))count_mmap},
    {"mmap64", (void (*)(void))count_mmap},
};

#define COUNTED (sizeof counted / sizeof *counted)

/* ---- tables ---- */

typedef struct object {
    const ElfW(Sym) * symbols;
    const char *names;
    const ElfW(Rela) * tables[2]; /* of data, of functions */
    size_t bytes[2];
    ElfW(Addr) base;
} object;

static object object_of(const struct dl_phdr_info *info)
{
    object o = {.base = info->dlpi_addr};
    const ElfW(Dyn) *dynamic = NULL;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            dynamic = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
        const void *at = (const void *)dynamic->d_un.d_ptr;
        o.symbols = dynamic->d_tag == DT_SYMTAB ? at : o.symbols;
        o.names = dynamic->d_tag == DT_STRTAB ? at : o.names;
        o.tables[0] = dynamic->d_tag == DT_RELA ? at : o.tables[0];
        o.tables[1] = dynamic->d_tag == DT_JMPREL ? at : o.tables[1];
        o.bytes[0] = dynamic->d_tag == DT_RELASZ ? dynamic->d_un.d_val : o.bytes[0];
        o.bytes[1] = dynamic->d_tag == DT_PLTRELSZ ? dynamic->d_un.d_val : o.bytes[1];
    }
    return o;
}

static int32_t point_here(uintptr_t slot, void (*here)(void), tn_error *err)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = slot / page * page;
    size_t bytes = (slot + sizeof slot - 1) / page * page + page - first;
    if (*(void (**)(void))slot == here)
        return TN_OK;
    if (mprotect((void *)first, bytes, PROT_READ | PROT_WRITE) != 0)
        return tn_error_set(err, TN_E_UNSUPPORTED, "allocations can not be counted here: mprotect: %s",
                            strerror(errno));
    *(void (**)(void))slot = here;
    return TN_OK;
}

static int32_t count_in(const object *o, const ElfW(Rela) * row, tn_error *err)
{
    size_t symbol = ELF64_R_SYM(row->r_info);
    const char *name = o->names + o->symbols[symbol].st_name;
    if (symbol == STN_UNDEF || row->r_addend != 0)
        return TN_OK;
    for (size_t i = 0; i < COUNTED; i++)
        if (strcmp(name, counted[i].name) == 0)
            return point_here(o->base + row->r_offset, counted[i].here, err);
    return TN_OK;
}

/* The object that this file is in must reach the real ones; the loader has its own and starts before any. */
static int is_left_out(const struct dl_phdr_info *info)
{
    Dl_info here;
    const char *name = info->dlpi_name ? info->dlpi_name : "";
    if (!dladdr((void *)count_malloc, &here) || strstr(name, "ld-linux") || strstr(name, "linux-vdso"))
        return 1;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        ElfW(Addr) at = (ElfW(Addr))here.dli_fbase;
        if (part->p_type == PT_LOAD && at >= info->dlpi_addr + part->p_vaddr &&
            at < info->dlpi_addr + part->p_vaddr + part->p_memsz)
            return 1;
    }
    return 0;
}

static int count_object(struct dl_phdr_info *info, size_t size, void *err)
{
    const object o = object_of(info);
    (void)size;
    if (is_left_out(info) || !o.symbols || !o.names)
        return 0;
    for (int t = 0; t < 2; t++)
        for (size_t i = 0; o.tables[t] && i < o.bytes[t] / sizeof *o.tables[t]; i++)
            if (count_in(&o, &o.tables[t][i], err) != TN_OK)
                return 1;
    return 0;
}

int32_t tn_count_open(tn_error *err) { return dl_iterate_phdr(count_object, err) ? TN_E_UNSUPPORTED : TN_OK; }

#endif

/* ---- the process ---- */

int64_t tn_count_mapped(void)
{
    long pages = -1;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%ld", &pages) != 1)
        pages = -1;
    if (file)
        fclose(file);
    return pages < 0 ? -1 : (int64_t)pages * sysconf(_SC_PAGESIZE);
}

int64_t tn_count_files(void)
{
    int64_t count = -1;
    DIR *folder = opendir("/proc/self/fd");
    if (!folder && errno == EMFILE)
        return INT32_MAX;
    for (; folder && readdir(folder); count++)
        ;
    if (folder)
        closedir(folder);
    return count;
}
