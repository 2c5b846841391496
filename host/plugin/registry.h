/* SPDX-License-Identifier: Apache-2.0
 *
 * registry.h: which components there are. Built from the notes of the files in the search path; nothing is
 * mapped before tn_registry_load.
 *
 * Search order: files named by the user (tn_registry_add_file), then the directories of search.h in order, in each the
 * files named *.so in the order of their names. Directories are not descended into. Where two usable components have
 * the same kind, name, device and real type, the first in this order is found and the others are shadowed. The host's
 * own components come behind all files.
 *
 * Thread rule: one thread at a time for one registry.
 */
#ifndef TENON_HOST_PLUGIN_REGISTRY_H
#define TENON_HOST_PLUGIN_REGISTRY_H

#include "host/base/log.h"
#include "host/base/text.h"
#include "host/plugin/info.h"

typedef struct tn_registry tn_registry;

#define TN_FOUND      0 /* to be used */
#define TN_SHADOWED   1 /* another of the same key comes first: `reason` is its path */
#define TN_REFUSED    2 /* can not be used: `reason` begins with a reason code */
#define TN_NOT_PLUGIN 3 /* an ordinary library */

/* A component, or a file without one that could be read (then all but path, state and reason are empty). Owned by the
 * registry and valid as long; texts are never NULL; `state` and `reason` may change when a file is added. */
typedef struct tn_entry_info {
    const char *kind, *name, *device; /* name with '-' for '_' */
    uint32_t real;                    /* 32, 64, or 0: any */
    const char *plugin, *version;
    const char *summary;
    const char *interface;
    const char *path; /* absolute, without links */
    int32_t state;    /* TN_FOUND ... */
    const char *reason;
    int32_t loaded; /* 1: its file was mapped and its table taken by this registry */
    int32_t own;    /* 1: a component of the host itself (host/foreign); `path` is the file that holds the host */
} tn_entry_info;

/* Scans the search path. `log` is borrowed for the registry's life. What can not be read or trusted becomes an entry,
 * not an error: fails with TN_E_MEMORY only. The caller closes *ret. */
int32_t tn_registry_open(const tn_log *log, tn_registry **ret, tn_error *err);
/* Frees the registry; what was loaded stays loaded. Accepts NULL. */
void tn_registry_close(tn_registry *registry);

/* Adds a file that the user named, before all others. An untrusted path is warned about in the log. TN_E_PLUGIN if it
 * is no plugin (a refused component of a plugin is an entry), TN_E_NOT_FOUND, TN_E_IO, TN_E_MEMORY; then nothing
 * changes. */
int32_t tn_registry_add_file(tn_registry *registry, const char *path, tn_error *err);

/* Entries in the order kind, name, device, real type, search order; files without components last. */
size_t tn_registry_count(const tn_registry *registry);
const tn_entry_info *tn_registry_at(const tn_registry *registry, size_t i);

/* The component to use for a name. `kind` and `device` NULL: any, `real` 0: any; a component whose real type is 0 suits
 * every wish. '_' and '-' are equal. TN_E_NOT_FOUND with what comes near, TN_E_INVALID if several kinds have the name,
 * TN_E_PLUGIN with the reason if there is only one that is refused. */
int32_t tn_registry_find(const tn_registry *registry, const char *kind, const char *name, const char *device,
                         uint32_t real, const tn_entry_info **ret, tn_error *err);

/* TN_E_NOT_FOUND, with the nearest kind, when no component is of that kind. */
int32_t tn_registry_check_kind(const tn_registry *registry, const char *kind, tn_error *err);

/* All that the note says, parsed at the first call and kept by the registry. TN_E_PLUGIN for an entry that is refused
 * or no plugin, for a file that was changed since it was listed (STALE) or a text that does not parse; TN_E_MEMORY. */
int32_t tn_registry_info(tn_registry *registry, const tn_entry_info *entry, const tn_component_info **ret,
                         tn_error *err);

/* Maps the entry's file and copies the component's table into `table`, a struct of the entry's interface, `table_size`
 * bytes beginning with struct_size: see tn_component_table. Its pointers stay valid until the process ends. TN_E_PLUGIN
 * and the loader's reason codes, TN_E_MEMORY. [load] */
int32_t tn_registry_load(tn_registry *registry, const tn_entry_info *entry, void *table, size_t table_size,
                         tn_error *err);

/* As it was opened with. */
const tn_log *tn_registry_log(const tn_registry *registry);

/* ---- for people and programs (show.c) ----
 *
 * All add to `text`, which is the caller's, and fail with TN_E_MEMORY; the info functions also as tn_registry_info. */

/* A table of what is found, the builds of one component for f32 and f64 in one line, then a line for each that is
 * shadowed or refused; `all`: also files that are no plugins. kind NULL: every kind (files without components have none
 * and are then shown). An unknown `kind` is TN_E_NOT_FOUND, here and in tn_registry_list_json. */
int32_t tn_registry_list_text(const tn_registry *registry, const char *kind, int all, tn_text *text, tn_error *err);

/* The same as a JSON array of objects {kind, name, device, real (32, 64, 0: any), plugin, version, summary, interface,
 * path, state ("found", "shadowed", "refused", "not a tenon plugin"), reason}. */
int32_t tn_registry_list_json(const tn_registry *registry, const char *kind, int all, tn_text *text, tn_error *err);

/* "kind/name" of what is found, one a line, each once. */
int32_t tn_registry_list_names(const tn_registry *registry, const char *kind, tn_text *text, tn_error *err);

/* With the file's hash, and the bytes of state that the note tells of. Also TN_E_IO. */
int32_t tn_registry_info_text(tn_registry *registry, const tn_entry_info *entry, tn_text *text, tn_error *err);

/* One object: as in the list, and paper, formula, licence, abi ("1.0"), xxh128 of the file, state_bytes (of each
 * parameter's element; where the note names slots), hyper [{name, type, default, range, doc}] and facts, an object. */
int32_t tn_registry_info_json(tn_registry *registry, const tn_entry_info *entry, tn_text *text, tn_error *err);

#endif
