/* SPDX-License-Identifier: Apache-2.0
 *
 * statics.c: the segments that are mapped for writing, without what the loader made read-only after relocation.
 */
#include "host/check/statics.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

#include "host/base/memory.h"

#define PARTS 8

typedef struct {
    const char *data;
    size_t bytes;
    char *copy;
} part;

struct tn_statics {
    const char *path;
    part parts[PARTS];
    size_t count;
    int32_t found, failed;
};

/* Between variables a sanitized plugin has zones that no one may read, but its bytes are all here. */
#define UNCHECKED __attribute__((no_sanitize("address")))

UNCHECKED static void read_all(const part *p)
{
    const volatile char *from = p->data;
    for (size_t i = 0; i < p->bytes; i++)
        p->copy[i] = from[i];
}

static void add_part(tn_statics *s, const char *from, const char *to)
{
    if (from >= to || s->count == PARTS)
        return;
    part *p = &s->parts[s->count];
    *p = (part){from, (size_t)(to - from), tn_alloc((size_t)(to - from), 1)};
    if (p->copy)
        read_all(p);
    s->failed |= !p->copy;
    s->count += p->copy != NULL;
}

static int look(struct dl_phdr_info *info, size_t size, void *arg)
{
    tn_statics *s = arg;
    char real[PATH_MAX];
    const char *base = (const char *)info->dlpi_addr, *fixed = NULL, *fixed_end = NULL;
    (void)size;
    if (!info->dlpi_name || !realpath(info->dlpi_name, real) || strcmp(real, s->path) != 0)
        return 0;
    s->found = 1;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        if (h->p_type != PT_GNU_RELRO)
            continue;
        fixed = base + h->p_vaddr;
        fixed_end = fixed + h->p_memsz;
    }
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        const char *from = base + h->p_vaddr, *to = from + h->p_memsz;
        if (h->p_type != PT_LOAD || !(h->p_flags & PF_W))
            continue;
        int has = fixed && fixed >= from && fixed < to;
        add_part(s, from, has ? fixed : to);
        if (has)
            add_part(s, fixed_end, to);
    }
    return 1;
}

int32_t tn_statics_take(const char *path, tn_statics **ret, tn_error *err)
{
    tn_statics *s = tn_alloc(1, sizeof *s);
    if (!s)
        return tn_error_set(err, TN_E_MEMORY, "no memory for the variables of %s", path);
    s->path = path;
    dl_iterate_phdr(look, s);
    int32_t status = s->failed  ? tn_error_set(err, TN_E_MEMORY, "no memory for the variables of %s", path)
                     : s->found ? TN_OK
                                : tn_error_set(err, TN_E_NOT_FOUND, "%s: not among what is loaded", path);
    if (status == TN_OK)
        *ret = s;
    else
        tn_statics_free(s);
    return status;
}

void tn_statics_free(tn_statics *s)
{
    for (size_t i = 0; s && i < s->count; i++)
        tn_free(s->parts[i].copy);
    tn_free(s);
}

UNCHECKED size_t tn_statics_changed(const tn_statics *s, const char **ret_name)
{
    size_t changed = 0;
    Dl_info where;
    *ret_name = "";
    for (const part *p = s->parts; p < s->parts + s->count; p++) {
        for (size_t i = 0; i < p->bytes; i++) {
            if (p->data[i] == p->copy[i])
                continue;
            if (changed++ == 0 && dladdr(p->data + i, &where) && where.dli_sname)
                *ret_name = where.dli_sname;
        }
    }
    return changed;
}
