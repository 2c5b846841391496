/* SPDX-License-Identifier: Apache-2.0
 *
 * loader.c: mapping a plugin and checking its record.
 */
#include "host/plugin/loader.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#if defined __x86_64__
#include <xmmintrin.h>
#endif

#include "host/base/memory.h"
#include "host/base/text.h"
#include "host/plugin/binding.h"
#include "host/plugin/quarantine.h"

struct tn_library {
    tn_library *next;
    struct stat stat; /* of the file when it was mapped */
    void *handle;
    const tn_plugin *plugin; /* NULL until its record was found good */
};

/* All that this process has mapped; grows only. */
static tn_library *libraries;
static pthread_mutex_t libraries_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- the system's loader ---- */

/* Rounding, exception masks and flush-to-zero, without the sticky exception flags; a file that was linked with
 * -ffast-math changes them for the thread that maps it. */
static unsigned float_modes(void)
{
#if defined __x86_64__
    return _mm_getcsr() & ~0x3Fu;
#else
    return 0;
#endif
}

static void restore_float_modes(unsigned modes, const char *path, const tn_log *log)
{
    unsigned found = float_modes();
    if (found == modes)
        return;
#if defined __x86_64__
    _mm_setcsr(modes);
#endif
    tn_log_write(log, TN_LOG_WARNING,
                 "%s: changed the floating-point modes (MXCSR 0x%04x, was 0x%04x), put back; do not link it with "
                 "-ffast-math",
                 path, found, modes);
}

static int32_t map(const char *path, const tn_log *log, void **ret, tn_error *err)
{
    tn_log_write(log, TN_LOG_DEBUG, "loading %s", path);
    unsigned modes = float_modes();
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    restore_float_modes(modes, path, log);
    if (!handle) {
        const char *why = dlerror();
        return tn_error_set(err, TN_E_PLUGIN,
                            "UNRESOLVED: %s; install what is missing or link it into %s (-Wl,-z,defs shows gaps when "
                            "building)",
                            why ? why : "unknown reason", path);
    }
    *ret = handle;
    return TN_OK;
}

typedef struct {
    const struct link_map *map;
    tn_object *object;
} object_search;

static int add_ranges(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size;
    const object_search *search = argument;
    if (info->dlpi_addr != search->map->l_addr || strcmp(info->dlpi_name, search->map->l_name) != 0)
        return 0;
    tn_object *object = search->object;
    for (unsigned i = 0; i < info->dlpi_phnum && object->count < TN_ELF_SEGMENTS_MAX; i++) {
        const ElfW(Phdr) *s = &info->dlpi_phdr[i];
        if (s->p_type != PT_LOAD || !(s->p_flags & PF_R))
            continue;
        object->ranges[object->count].lo = info->dlpi_addr + s->p_vaddr;
        object->ranges[object->count++].hi = info->dlpi_addr + s->p_vaddr + s->p_memsz;
    }
    return 1;
}

/* Its ranges, and whether its calls stay within them. */
static int32_t find_object(const char *path, void *handle, const tn_log *log, tn_object *ret, tn_error *err)
{
    object_search search = {NULL, ret};
    ret->count = 0;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &search.map) != 0 || !dl_iterate_phdr(add_ranges, &search))
        return tn_error_set(err, TN_E_INTERNAL, "%s: loaded, but not found among the loaded objects", path);
    tn_binding_warn(path, search.map, log);
    return tn_binding_check(path, search.map, ret, err);
}

/* dlsym also searches what the file depends on, so the symbol must lie in the file itself. */
static int32_t find_entry(const char *path, void *handle, const tn_object *object, tn_entry **ret, tn_error *err)
{
    void *symbol = dlsym(handle, TN_ENTRY);
    if (!symbol || !tn_object_holds(object, symbol, 1, 1))
        return tn_error_set(err, TN_E_PLUGIN,
                            "NO_ENTRY: %s: does not export the symbol %s; end the source with TN_PLUGIN and keep the "
                            "symbol visible",
                            path, TN_ENTRY);
    memcpy(ret, &symbol, sizeof *ret);
    return TN_OK;
}

static int32_t call_entry(const char *path, tn_entry *entry, const tn_log *log, const tn_plugin **ret, tn_error *err)
{
    tn_error why = {0};
    unsigned modes = float_modes();
    const tn_plugin *plugin = entry(&why);
    restore_float_modes(modes, path, log);
    if (!plugin)
        return tn_error_set(err, TN_E_PLUGIN, "ENTRY_FAILED: %s: %s returned NULL: %.*s", path, TN_ENTRY,
                            (int)sizeof why.msg - 1, why.msg[0] ? why.msg : "without a reason");
    *ret = plugin;
    return TN_OK;
}

/* ---- notes ---- */

/* Refuses what must not even be mapped. */
static int32_t check_notes(const char *path, const tn_notes *notes, tn_error *err)
{
    if (notes->count == 0)
        return tn_error_set(err, TN_E_PLUGIN, "NOT_PLUGIN: %s: no TENON note; this is not a tenon plugin", path);
    for (size_t i = 0; i < notes->count; i++) {
        const tn_note_item *item = &notes->items[i];
        int must_pass = item->type == TN_NOTE_PLUGIN || item->head.size == 0 || tn_isa_missing(item->head.isa);
        if (item->status && must_pass)
            return tn_error_set(err, item->status, "%s", item->reason);
    }
    return TN_OK;
}

static void free_bytes(tn_note **bytes)
{
    for (size_t i = 0; i < TN_NOTES_MAX; i++)
        tn_free(bytes[i]);
}

static int32_t read_bytes(const tn_source *source, const tn_notes *notes, tn_note **ret, tn_error *err)
{
    int32_t status = TN_OK;
    for (size_t i = 0; i < notes->count && !status; i++)
        status = tn_note_bytes(source, &notes->items[i], &ret[i], err);
    return status;
}

/* ---- libraries ---- */

static int32_t refuse_stale(const char *path, tn_error *err)
{
    return tn_error_set(err, TN_E_PLUGIN,
                        "STALE: %s: another version of this file is loaded in this process; start again to use the new "
                        "one, and install by renaming, never in place",
                        path);
}

static tn_library *find_library(const struct stat *stat)
{
    tn_library *library = libraries;
    while (library && (library->stat.st_dev != stat->st_dev || library->stat.st_ino != stat->st_ino))
        library = library->next;
    return library;
}

static int has_handle(const void *handle)
{
    const tn_library *library = libraries;
    while (library && library->handle != handle)
        library = library->next;
    return library != NULL;
}

/* Maps a file that is not in the list and adds it. dlopen knows files by path first, so a file that was renamed over
 * a loaded one gives the old mapping. */
static int32_t add_library(const char *path, const struct stat *stat, const tn_log *log, tn_library **ret,
                           tn_error *err)
{
    tn_library *library = tn_alloc(1, sizeof *library);
    if (!library)
        return tn_error_set(err, TN_E_MEMORY, "%s: out of memory while loading", path);
    int32_t status = map(path, log, &library->handle, err);
    if (!status && has_handle(library->handle))
        status = refuse_stale(path, err);
    if (status) {
        tn_free(library);
        return status;
    }
    library->stat = *stat;
    library->next = libraries;
    libraries = library;
    *ret = library;
    return TN_OK;
}

static int32_t verify(const char *path, tn_library *library, const tn_log *log, const tn_notes *notes,
                      tn_note *const *bytes, tn_error *err)
{
    tn_object object;
    tn_entry *entry = NULL;
    const tn_plugin *plugin = NULL;
    int32_t status = find_object(path, library->handle, log, &object, err);
    if (!status)
        status = find_entry(path, library->handle, &object, &entry, err);
    if (!status)
        status = call_entry(path, entry, log, &plugin, err);
    if (!status)
        status = tn_record_check(path, plugin, &object, notes, bytes, err);
    if (!status)
        library->plugin = plugin;
    return status;
}

/* Maps it unless `library` is its mapping, and runs its code. */
static int32_t map_and_verify(const tn_file *file, tn_library **library, const tn_log *log, const tn_notes *notes,
                              tn_note *const *bytes, tn_error *err)
{
    const char *path = file->source.name;
    tn_quarantine quarantine;
    int32_t status = tn_quarantine_enter(path, log, &quarantine, err);
    if (status)
        return status;
    if (!*library)
        status = add_library(path, &file->stat, log, library, err);
    if (!status)
        status = verify(path, *library, log, notes, bytes, err);
    tn_quarantine_leave(&quarantine);
    return status;
}

static int32_t load(const tn_file *file, tn_library *library, const tn_log *log, tn_library **ret, tn_error *err)
{
    const char *path = file->source.name;
    tn_elf elf;
    tn_notes notes = {0};
    tn_note *bytes[TN_NOTES_MAX] = {0};
    int32_t status = tn_elf_open(&file->source, &elf, err);
    if (!status)
        status = tn_notes_read(&elf, &notes, err);
    if (!status)
        status = check_notes(path, &notes, err);
    if (!status)
        status = read_bytes(&file->source, &notes, bytes, err);
    if (!status)
        status = map_and_verify(file, &library, log, &notes, bytes, err);
    if (!status)
        *ret = library;
    free_bytes(bytes);
    tn_notes_free(&notes);
    return status;
}

static int32_t open_file(const tn_file *file, const tn_log *log, tn_library **ret, tn_error *err)
{
    tn_library *library = find_library(&file->stat);
    if (library && !tn_file_unchanged(&library->stat, &file->stat))
        return refuse_stale(file->source.name, err);
    if (!library || !library->plugin)
        return load(file, library, log, ret, err);
    *ret = library;
    return TN_OK;
}

int32_t tn_loader_open(const char *path, const tn_log *log, tn_library **ret, tn_error *err)
{
    char real[PATH_MAX];
    tn_file file;
    if (!realpath(path, real))
        return tn_file_refuse(path, errno, err);
    int32_t status = tn_file_open(AT_FDCWD, real, real, &file, err);
    if (status)
        return status;
    pthread_mutex_lock(&libraries_lock);
    status = open_file(&file, log, ret, err);
    pthread_mutex_unlock(&libraries_lock);
    tn_file_close(&file);
    return status;
}

int32_t tn_loader_map(const char *path, const tn_log *log, void **ret, tn_error *err)
{
    tn_quarantine quarantine;
    pthread_mutex_lock(&libraries_lock);
    int32_t status = tn_quarantine_enter(path, log, &quarantine, err);
    if (!status) {
        status = map(path, log, ret, err);
        tn_quarantine_leave(&quarantine);
    }
    pthread_mutex_unlock(&libraries_lock);
    return status;
}

const tn_component *tn_library_component(const tn_library *library, const char *kind, const char *name,
                                         const char *device, uint32_t real)
{
    const tn_plugin *plugin = library->plugin;
    for (uint32_t i = 0; i < plugin->component_count; i++) {
        const tn_note *note = plugin->components[i]->note;
        if (note->real == real && strcmp(note->kind, kind) == 0 && strcmp(note->device, device) == 0 &&
            tn_name_equal(note->name, name))
            return plugin->components[i];
    }
    return NULL;
}

void tn_component_table(const tn_component *component, void *ret, size_t size)
{
    uint32_t theirs, ours = (uint32_t)size;
    memcpy(&theirs, component->table, sizeof theirs);
    memset(ret, 0, size);
    memcpy(ret, component->table, theirs < ours ? theirs : ours);
    memcpy(ret, &ours, sizeof ours);
}
