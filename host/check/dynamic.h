/* SPDX-License-Identifier: Apache-2.0
 *
 * dynamic.h: what a shared object tells the system's loader: flags, needed libraries, symbols. Read from the file,
 * which is not mapped.
 */
#ifndef TENON_HOST_CHECK_DYNAMIC_H
#define TENON_HOST_CHECK_DYNAMIC_H

#include "host/plugin/elf.h"

#define TN_DYNAMIC_NEEDED_MOST 64

typedef struct tn_dynamic {
    char *strings; /* string_size bytes, the last of which is NUL; owned */
    size_t string_size;
    Elf64_Sym *symbols; /* of .dynsym; owned */
    size_t symbol_count;
    uint64_t flags;       /* DF_* */
    int32_t is_relocated; /* 1: DT_TEXTREL or DF_TEXTREL */
    int32_t stack_flags;  /* PF_* of the stack that it asks for; -1: it does not say, which means all */
    const char *soname;   /* "": none; this and the following are in `strings` */
    const char *run_path; /* of DT_RUNPATH or DT_RPATH; "": none */
    const char *needed[TN_DYNAMIC_NEEDED_MOST];
    size_t needed_count;
} tn_dynamic;

/* Reads them. The caller frees *ret with tn_dynamic_free. TN_E_PLUGIN if what is read is damaged, or if the file has no
 * table of sections, as those that were stripped of it; TN_E_IO, TN_E_NOT_FOUND, TN_E_MEMORY. [any] */
int32_t tn_dynamic_read(const char *path, tn_dynamic *ret, tn_error *err);
void tn_dynamic_free(tn_dynamic *dynamic);

/* The name of symbol i; "" if it has none. */
const char *tn_dynamic_name(const tn_dynamic *dynamic, size_t i);

/* Is symbol i one that others see, and defined here? */
int32_t tn_dynamic_exports(const tn_dynamic *dynamic, size_t i);

#endif
