/* SPDX-License-Identifier: Apache-2.0
 *
 * loader.h: the only user of dlopen. A file is mapped after the gate (elf.h) and its notes passed, and
 * used after its record matched them (record.h). It is never unmapped.
 *
 * Reason codes beside those of elf.h, note.h and record.h: NOT_PLUGIN (no note), UNRESOLVED (a symbol or library is
 * missing), SYMBOL_CLASH (binding.h), QUARANTINED (quarantine.h), NO_ENTRY, ENTRY_FAILED, STALE (the file was replaced
 * or changed after this process had loaded it). Whether a path is to be trusted is the caller's business (trust.h).
 *
 * Thread rule: any thread; openings are done one at a time.
 */
#ifndef TENON_HOST_PLUGIN_LOADER_H
#define TENON_HOST_PLUGIN_LOADER_H

#include <tenon/plugin.h>

#include "host/base/log.h"

typedef struct tn_library tn_library;

/* Maps the plugin at `path` and checks its record. The same file (device, inode) is mapped once and gives the same
 * library. The path is logged before the plugin's code runs; floating-point modes that it changes are put back, with a
 * warning. *ret lives until the process ends. After a failure it may be tried again. TN_E_PLUGIN, TN_E_NOT_FOUND,
 * TN_E_IO, TN_E_MEMORY. */
int32_t tn_loader_open(const char *path, const tn_log *log, tn_library **ret, tn_error *err);

/* Maps a library that is no plugin, for its functions (host/foreign), with the same flags and care; the caller has
 * checked the file. *ret is what dlsym takes, and stays valid until the process ends. TN_E_PLUGIN, TN_E_MEMORY. */
int32_t tn_loader_map(const char *path, const tn_log *log, void **ret, tn_error *err);

/* The library's component with that key ('_' and '-' are equal in the name; `real` as in its note), or NULL. */
const tn_component *tn_library_component(const tn_library *library, const char *kind, const char *name,
                                         const char *device, uint32_t real);

/* Copies a component's table into `ret`, `size` bytes of the caller's that begin with uint32_t struct_size: what the
 * plugin's table lacks reads as zero, what it has beyond is dropped, struct_size becomes `size`. */
void tn_component_table(const tn_component *component, void *ret, size_t size);

#endif
