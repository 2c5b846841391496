/* SPDX-License-Identifier: Apache-2.0
 *
 * record.h: is the record that a mapped plugin returned what its file promised? Nothing is read through a
 * pointer before it is known to lie in the mapped object.
 *
 * Reason codes: BAD_RECORD (a struct's size, a pointer or a count is impossible), METADATA_MISMATCH (a note differs
 * from the bytes in the file). Thread rule: any thread, any time.
 */
#ifndef TENON_HOST_PLUGIN_RECORD_H
#define TENON_HOST_PLUGIN_RECORD_H

#include "host/plugin/note.h"

/* The readable segments of a mapped object, as addresses [lo, hi). */
typedef struct tn_object {
    size_t count;
    struct {
        uintptr_t lo, hi;
    } ranges[TN_ELF_SEGMENTS_MAX];
} tn_object;

/* 1 if `bytes` bytes at `pointer`, a multiple of `alignment`, lie in one readable segment. */
int tn_object_holds(const tn_object *object, const void *pointer, size_t bytes, size_t alignment);

/* Checks the record, its components, their tables and their notes against `notes` and bytes[i], the whole descriptor
 * of notes->items[i]. TN_E_PLUGIN. */
int32_t tn_record_check(const char *file, const tn_plugin *plugin, const tn_object *object, const tn_notes *notes,
                        tn_note *const *bytes, tn_error *err);

#endif
