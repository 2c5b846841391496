/* SPDX-License-Identifier: Apache-2.0
 *
 * registry.c: which components there are.
 */
#include "host/plugin/registry.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#include "host/base/memory.h"
#include "host/foreign/foreign.h"
#include "host/plugin/loader.h"
#include "host/plugin/scan.h"
#include "host/plugin/search.h"
#include "host/plugin/trust.h"

typedef struct {
    tn_entry_info info; /* first: the caller's handle is a pointer to it */
    tn_scanned *file;
    const tn_note_item *item;  /* of the file's notes; NULL for a file without components */
    const tn_component *own;   /* of the host itself; NULL: in a file */
    tn_component_info *parsed; /* NULL until asked for */
    size_t order;              /* in which it was found */
} registry_entry;

struct tn_registry {
    const tn_log *log;
    tn_scan scan;
    tn_scanned host;          /* the file that holds this code, for the host's own components */
    registry_entry **entries; /* sorted: see compare */
    size_t count;
    size_t capacity;
};

static int32_t no_memory(tn_error *err)
{
    return tn_error_set(err, TN_E_MEMORY, "out of memory while components were listed");
}

/* ---- entries ---- */

static registry_entry *new_entry(tn_scanned *file, const tn_note_item *item, size_t order)
{
    static const tn_note empty;
    registry_entry *entry = tn_alloc(1, sizeof *entry);
    if (!entry)
        return NULL;
    const tn_note_item *plugin = tn_notes_plugin(&file->notes);
    const tn_note *head = item ? &item->head : &empty, *whole = plugin ? &plugin->head : &empty;
    entry->info = (tn_entry_info){.kind = head->kind,
                                  .name = head->name,
                                  .device = head->device,
                                  .real = head->real,
                                  .plugin = whole->plugin,
                                  .version = whole->version,
                                  .summary = head->summary,
                                  .interface = head->interface,
                                  .path = file->path,
                                  .reason = ""};
    entry->file = file;
    entry->item = item;
    entry->order = order;
    return entry;
}

/* One entry a component, or one for a file without. */
static int32_t add_entries(tn_registry *registry, tn_scanned *file, tn_error *err)
{
    size_t before = registry->count, order = before;
    int32_t status = TN_OK;
    for (size_t i = 0; i < file->notes.count + 1 && !status; i++) {
        const tn_note_item *item = i < file->notes.count ? &file->notes.items[i] : NULL;
        if (item ? item->type != TN_NOTE_COMPONENT : file->notes.count > 0)
            continue;
        registry_entry *entry = new_entry(file, item, order++);
        if (entry && !tn_grow(&registry->entries, &registry->capacity, registry->count, sizeof entry)) {
            registry->entries[registry->count++] = entry;
        } else {
            tn_free(entry);
            status = no_memory(err);
        }
    }
    while (status && registry->count > before)
        tn_free(registry->entries[--registry->count]);
    return status;
}

static int32_t add_own_entry(tn_registry *registry, const tn_component *component, tn_error *err)
{
    const tn_note *head = component->note;
    registry_entry *entry = new_entry(&registry->host, NULL, registry->count);
    if (!entry || tn_grow(&registry->entries, &registry->capacity, registry->count, sizeof entry)) {
        tn_free(entry);
        return no_memory(err);
    }
    entry->own = component;
    entry->info.own = 1;
    entry->info.kind = head->kind;
    entry->info.name = head->name;
    entry->info.device = head->device;
    entry->info.real = head->real;
    entry->info.summary = head->summary;
    entry->info.interface = head->interface;
    entry->info.plugin = tn_foreign_note->plugin;
    entry->info.version = tn_foreign_note->version;
    registry->entries[registry->count++] = entry;
    return TN_OK;
}

static int32_t add_own_entries(tn_registry *registry, tn_error *err)
{
    char path[PATH_MAX];
    if (!(registry->host.path = tn_strdup(tn_search_own_file(path) ? path : "libtenon")))
        return no_memory(err);
    int32_t status = TN_OK;
    for (int i = 0; i < TN_FOREIGN_COMPONENTS && !status; i++)
        status = add_own_entry(registry, tn_foreign_component(i), err);
    return status;
}

/* ---- states ---- */

static void set_state(registry_entry *entry)
{
    const tn_scanned *file = entry->file;
    const tn_note_item *plugin = tn_notes_plugin(&file->notes);
    const char *reason = file->refusal;
    if (!reason && !file->named)
        reason = file->untrusted;
    if (!reason && plugin)
        reason = plugin->reason;
    if (!reason && entry->item)
        reason = entry->item->reason;
    int is_plugin = file->refusal || entry->item || entry->own;
    entry->info.state = !is_plugin ? TN_NOT_PLUGIN : reason ? TN_REFUSED : TN_FOUND;
    entry->info.reason = reason && entry->info.state == TN_REFUSED ? reason : "";
}

static int compare_keys(const tn_entry_info *a, const tn_entry_info *b)
{
    int difference = (b->name[0] != 0) - (a->name[0] != 0); /* files without components last */
    if (!difference)
        difference = strcmp(a->kind, b->kind);
    if (!difference)
        difference = strcmp(a->name, b->name);
    if (!difference)
        difference = strcmp(a->device, b->device);
    return difference ? difference : (a->real > b->real) - (a->real < b->real);
}

static int compare(const void *left, const void *right)
{
    const registry_entry *a = *(registry_entry *const *)left, *b = *(registry_entry *const *)right;
    int difference = compare_keys(&a->info, &b->info);
    if (!difference)
        difference = b->file->named - a->file->named;
    if (!difference)
        difference = a->info.own - b->info.own;
    return difference ? difference : (a->order > b->order) - (a->order < b->order);
}

/* Sorts the entries and lets the first usable one of each key shadow the others. */
static void resolve(tn_registry *registry)
{
    const tn_entry_info *winner = NULL;
    if (registry->count > 0)
        qsort(registry->entries, registry->count, sizeof *registry->entries, compare);
    for (size_t i = 0; i < registry->count; i++) {
        tn_entry_info *info = &registry->entries[i]->info;
        set_state(registry->entries[i]);
        if (info->state != TN_FOUND)
            continue;
        if (winner && compare_keys(winner, info) == 0) {
            info->state = TN_SHADOWED;
            info->reason = winner->path;
        } else {
            winner = info;
        }
    }
}

/* ---- opening ---- */

static int32_t scan_all(tn_registry *registry, tn_error *err)
{
    tn_search search;
    int32_t status = tn_search_path(getauxval(AT_SECURE) != 0, registry->log, &search, err);
    if (status)
        return status;
    for (size_t i = 0; i < search.count && !status; i++)
        status = tn_scan_directory(&registry->scan, search.directories[i], registry->log, err);
    tn_search_free(&search);
    for (size_t i = 0; i < registry->scan.count && !status; i++)
        status = add_entries(registry, registry->scan.files[i], err);
    return status ? status : add_own_entries(registry, err);
}

int32_t tn_registry_open(const tn_log *log, tn_registry **ret, tn_error *err)
{
    tn_registry *registry = tn_alloc(1, sizeof *registry);
    if (!registry)
        return no_memory(err);
    registry->log = log;
    int32_t status = scan_all(registry, err);
    if (status) {
        tn_registry_close(registry);
        return status;
    }
    resolve(registry);
    *ret = registry;
    return TN_OK;
}

void tn_registry_close(tn_registry *registry)
{
    if (!registry)
        return;
    for (size_t i = 0; i < registry->count; i++) {
        tn_info_free(registry->entries[i]->parsed);
        tn_free(registry->entries[i]);
    }
    tn_free(registry->entries);
    tn_scan_free(&registry->scan);
    tn_free(registry->host.path);
    tn_free(registry);
}

int32_t tn_registry_add_file(tn_registry *registry, const char *path, tn_error *err)
{
    size_t before = registry->scan.count;
    tn_scanned *file;
    int32_t status = tn_scan_named(&registry->scan, path, registry->log, &file, err);
    if (!status && registry->scan.count > before) {
        status = add_entries(registry, file, err);
        if (status)
            tn_scan_drop_last(&registry->scan);
    }
    if (!status)
        resolve(registry);
    return status;
}

const tn_log *tn_registry_log(const tn_registry *registry) { return registry->log; }

size_t tn_registry_count(const tn_registry *registry) { return registry->count; }

const tn_entry_info *tn_registry_at(const tn_registry *registry, size_t i) { return &registry->entries[i]->info; }

/* ---- finding ---- */

typedef struct {
    const char *kind, *name, *device; /* kind, device NULL: any */
    uint32_t real;                    /* 0: any */
} wish;

static int is_named(const wish *w, const tn_entry_info *info)
{
    return info->name[0] && tn_name_equal(w->name, info->name) && (!w->kind || tn_name_equal(w->kind, info->kind));
}

static int suits(const wish *w, const tn_entry_info *info)
{
    return is_named(w, info) && (!w->device || strcmp(w->device, info->device) == 0) &&
           (w->real == 0 || info->real == 0 || info->real == w->real);
}

static const tn_entry_info *first(const tn_registry *registry, const wish *w, int32_t state)
{
    for (size_t i = 0; i < registry->count; i++) {
        const tn_entry_info *info = &registry->entries[i]->info;
        if (info->state == state && suits(w, info))
            return info;
    }
    return NULL;
}

/* The keys of all usable components of the wished name, of any kind, device and real type. */
static void add_namesakes(const tn_registry *registry, const wish *w, const char *before, tn_text *text)
{
    wish any = {.name = w->name};
    for (size_t i = 0; i < registry->count; i++) {
        const tn_entry_info *info = &registry->entries[i]->info;
        if (info->state != TN_FOUND || !is_named(&any, info))
            continue;
        tn_text_addf(text, "%s%s/%s (%s%s%s)", before, info->kind, info->name, info->device, info->real ? " " : "",
                     tn_real_name(info->real, ""));
        before = ", ";
    }
}

static int has_kind(const tn_registry *registry, const char *kind)
{
    for (size_t i = 0; i < registry->count; i++) {
        if (tn_name_equal(registry->entries[i]->info.kind, kind))
            return 1;
    }
    return 0;
}

/* The nearest name of the wished kind or, if there is no such kind, the nearest kind. */
static int32_t add_nearest(const tn_registry *registry, const wish *w, tn_text *text, tn_error *err)
{
    const char **words = tn_alloc(registry->count, sizeof *words);
    int by_kind = w->kind && !has_kind(registry, w->kind);
    if (!words)
        return no_memory(err);
    for (size_t i = 0; i < registry->count; i++) {
        const tn_entry_info *info = &registry->entries[i]->info;
        if (info->state == TN_FOUND && (by_kind || !w->kind || tn_name_equal(w->kind, info->kind)))
            words[i] = by_kind ? info->kind : info->name;
    }
    const char *near = tn_nearest(by_kind ? w->kind : w->name, words, registry->count);
    if (near)
        tn_text_addf(text, "; did you mean '%s'?", near);
    tn_free(words);
    return TN_OK;
}

static int32_t refuse_unknown(const tn_registry *registry, const wish *w, tn_error *err)
{
    tn_text text = {0};
    if (w->kind && !has_kind(registry, w->kind))
        tn_text_addf(&text, "no component of the kind '%s'", w->kind);
    else
        tn_text_addf(&text, "no %s named '%s'", w->kind ? w->kind : "component", w->name);
    if (w->device || w->real)
        tn_text_addf(&text, " for %s%s%s", w->device ? w->device : "any device", w->real ? " " : "",
                     tn_real_name(w->real, ""));
    size_t plain = text.size;
    int32_t status = TN_OK;
    add_namesakes(registry, w, "; there is ", &text);
    if (text.size == plain)
        status = add_nearest(registry, w, &text, err);
    tn_text_add(&text, registry->count > TN_FOREIGN_COMPONENTS ? " (see: tenon list)"
                                                               : "; no plugin was found at all: set TENON_PLUGIN_PATH");
    if (!status)
        status = tn_text_status(&text, err);
    if (!status)
        status = tn_error_set(err, TN_E_NOT_FOUND, "%s", tn_text_string(&text));
    tn_text_free(&text);
    return status;
}

int32_t tn_registry_check_kind(const tn_registry *registry, const char *kind, tn_error *err)
{
    wish w = {kind, "", NULL, 0};
    return has_kind(registry, kind) ? TN_OK : refuse_unknown(registry, &w, err);
}

static int32_t refuse_ambiguous(const tn_registry *registry, const wish *w, tn_error *err)
{
    tn_text text = {0};
    add_namesakes(registry, w, "", &text);
    int32_t status = tn_text_status(&text, err);
    if (!status)
        status = tn_error_set(err, TN_E_INVALID, "'%s' is the name of several: %s; write kind/name", w->name,
                              tn_text_string(&text));
    tn_text_free(&text);
    return status;
}

static int is_ambiguous(const tn_registry *registry, const wish *w, const tn_entry_info *found)
{
    for (size_t i = 0; i < registry->count; i++) {
        const tn_entry_info *info = &registry->entries[i]->info;
        if (info->state == TN_FOUND && suits(w, info) && strcmp(info->kind, found->kind) != 0)
            return 1;
    }
    return 0;
}

int32_t tn_registry_find(const tn_registry *registry, const char *kind, const char *name, const char *device,
                         uint32_t real, const tn_entry_info **ret, tn_error *err)
{
    wish w = {kind, name, device, real};
    const tn_entry_info *found = first(registry, &w, TN_FOUND);
    if (found && is_ambiguous(registry, &w, found))
        return refuse_ambiguous(registry, &w, err);
    if (found) {
        *ret = found;
        return TN_OK;
    }
    const tn_entry_info *refused = first(registry, &w, TN_REFUSED);
    if (refused)
        return tn_error_set(err, TN_E_PLUGIN, "%s", refused->reason);
    return refuse_unknown(registry, &w, err);
}

/* ---- reading and loading ---- */

static int32_t check_usable(const tn_entry_info *info, tn_error *err)
{
    if (info->state == TN_REFUSED)
        return tn_error_set(err, TN_E_PLUGIN, "%s", info->reason);
    if (info->state == TN_NOT_PLUGIN)
        return tn_error_set(err, TN_E_PLUGIN, "NOT_PLUGIN: %s: no TENON note; this is not a tenon plugin", info->path);
    return TN_OK;
}

/* Opens the entry's file if it is still what was listed. */
static int32_t open_listed(const registry_entry *entry, tn_file *ret, tn_error *err)
{
    tn_file file;
    int32_t status = tn_file_open(AT_FDCWD, entry->info.path, entry->info.path, &file, err);
    if (status)
        return status;
    if (!tn_file_unchanged(&file.stat, &entry->file->stat)) {
        tn_file_close(&file);
        return tn_error_set(err, TN_E_PLUGIN, "STALE: %s: was changed since it was listed; start again",
                            entry->info.path);
    }
    *ret = file;
    return TN_OK;
}

static int32_t parse(const tn_source *source, const registry_entry *entry, tn_component_info **ret, tn_error *err)
{
    tn_note *plugin = NULL, *component = NULL;
    int32_t status = tn_note_bytes(source, tn_notes_plugin(&entry->file->notes), &plugin, err);
    if (!status)
        status = tn_note_bytes(source, entry->item, &component, err);
    if (!status)
        status = tn_info_parse(source->name, plugin, component, ret, err);
    tn_free(plugin);
    tn_free(component);
    return status;
}

int32_t tn_registry_info(tn_registry *registry, const tn_entry_info *info, const tn_component_info **ret, tn_error *err)
{
    (void)registry;
    registry_entry *entry = (registry_entry *)(uintptr_t)info;
    int32_t status = check_usable(info, err);
    if (!status && !entry->parsed && entry->own) {
        status = tn_info_parse(info->path, tn_foreign_note, entry->own->note, &entry->parsed, err);
    } else if (!status && !entry->parsed) {
        tn_file file;
        status = open_listed(entry, &file, err);
        if (!status) {
            status = parse(&file.source, entry, &entry->parsed, err);
            tn_file_close(&file);
        }
    }
    if (!status)
        *ret = entry->parsed;
    return status;
}

/* What was true when the file was listed must still be so. */
static int32_t check_again(const registry_entry *entry, tn_error *err)
{
    tn_file file;
    int32_t status = open_listed(entry, &file, err);
    if (status)
        return status;
    tn_file_close(&file);
    return entry->file->named ? TN_OK : tn_trust_check(entry->info.path, 0, err);
}

static int32_t take_own(registry_entry *entry, void *table, size_t table_size)
{
    tn_component_table(entry->own, table, table_size);
    entry->info.loaded = 1;
    return TN_OK;
}

int32_t tn_registry_load(tn_registry *registry, const tn_entry_info *info, void *table, size_t table_size,
                         tn_error *err)
{
    tn_library *library;
    const tn_component_info *parsed; /* a component with a fact that the host does not know is not used */
    int32_t status = tn_registry_info(registry, info, &parsed, err);
    if (!status && info->own)
        return take_own((registry_entry *)(uintptr_t)info, table, table_size);
    if (!status)
        status = check_again((const registry_entry *)info, err);
    if (!status)
        status = tn_loader_open(info->path, registry->log, &library, err);
    if (status)
        return status;
    const tn_component *component = tn_library_component(library, info->kind, info->name, info->device, info->real);
    if (!component)
        return tn_error_set(err, TN_E_PLUGIN, "STALE: %s: no longer holds %s/%s; start again", info->path, info->kind,
                            info->name);
    tn_component_table(component, table, table_size);
    ((registry_entry *)(uintptr_t)info)->info.loaded = 1;
    return TN_OK;
}
