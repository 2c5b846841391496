/* SPDX-License-Identifier: Apache-2.0
 *
 * record.c: is the record of a mapped plugin what its file promised?
 */
#include "host/plugin/record.h"

#include <inttypes.h>
#include <string.h>

#include "host/base/error.h"

#define STRUCT_MAX 4096u /* bytes; larger than any struct of the contract will be */

int tn_object_holds(const tn_object *object, const void *pointer, size_t bytes, size_t alignment)
{
    uintptr_t at = (uintptr_t)pointer;
    if (at % alignment != 0)
        return 0;
    for (size_t i = 0; i < object->count; i++) {
        if (at >= object->ranges[i].lo && at <= object->ranges[i].hi && bytes <= object->ranges[i].hi - at)
            return 1;
    }
    return 0;
}

/* A struct that begins with its size: at least `least` bytes, a multiple of 8, all of it in the object. */
static int32_t check_struct(const char *file, const char *what, const void *pointer, size_t least,
                            const tn_object *object, tn_error *err)
{
    if (!tn_object_holds(object, pointer, sizeof(uint32_t), 8))
        return tn_error_set(err, TN_E_PLUGIN,
                            "BAD_RECORD: %s: the pointer to its %s is %p, not in the file's own static tables", file,
                            what, pointer);
    uint32_t size;
    memcpy(&size, pointer, sizeof size);
    if (size < least || size > STRUCT_MAX || size % 8 != 0 || !tn_object_holds(object, pointer, size, 8))
        return tn_error_set(err, TN_E_PLUGIN,
                            "BAD_RECORD: %s: its %s has struct_size %" PRIu32
                            ", needed %zu to %u and a multiple of 8; set it to sizeof",
                            file, what, size, least, STRUCT_MAX);
    return TN_OK;
}

static int same_note(const tn_object *object, const tn_note *mapped, const tn_note *read)
{
    return tn_object_holds(object, mapped, read->size, 4) && memcmp(mapped, read, read->size) == 0;
}

/* Finds the component's note among those of the file that no other component has taken. */
static int32_t match_note(const char *file, const tn_component *component, const tn_object *object,
                          const tn_notes *notes, tn_note *const *bytes, char *taken, tn_error *err)
{
    for (size_t i = 0; i < notes->count; i++) {
        if (notes->items[i].type == TN_NOTE_COMPONENT && !taken[i] && same_note(object, component->note, bytes[i])) {
            taken[i] = 1;
            return TN_OK;
        }
    }
    return tn_error_set(err, TN_E_PLUGIN,
                        "METADATA_MISMATCH: %s: a component's note in memory is none of those in the file; rebuild it",
                        file);
}

static int32_t check_component(const char *file, const tn_component *component, const tn_object *object, tn_error *err)
{
    int32_t status = check_struct(file, "component record", component, sizeof *component, object, err);
    if (!status)
        status = check_struct(file, "component's table", component->table, 8, object, err);
    return status;
}

static int32_t check_plugin(const char *file, const tn_plugin *plugin, const tn_object *object, const tn_notes *notes,
                            tn_error *err)
{
    int32_t status = check_struct(file, "plugin record", plugin, sizeof *plugin, object, err);
    if (status)
        return status;
    if (plugin->component_count != notes->count - 1)
        return tn_error_set(err, TN_E_PLUGIN,
                            "METADATA_MISMATCH: %s: its record has %" PRIu32 " components, its notes %zu; rebuild it",
                            file, plugin->component_count, notes->count - 1);
    if (!tn_object_holds(object, plugin->components, plugin->component_count * sizeof *plugin->components, 8))
        return tn_error_set(err, TN_E_PLUGIN,
                            "BAD_RECORD: %s: the pointer to its components is %p, not in the file's own static tables",
                            file, (const void *)plugin->components);
    return TN_OK;
}

int32_t tn_record_check(const char *file, const tn_plugin *plugin, const tn_object *object, const tn_notes *notes,
                        tn_note *const *bytes, tn_error *err)
{
    char taken[TN_NOTES_MAX] = {0};
    int32_t status = check_plugin(file, plugin, object, notes, err);
    if (status)
        return status;
    size_t own = (size_t)(tn_notes_plugin(notes) - notes->items);
    if (!same_note(object, plugin->note, bytes[own]))
        return tn_error_set(err, TN_E_PLUGIN,
                            "METADATA_MISMATCH: %s: the plugin's note in memory is not the one in the file; rebuild it",
                            file);
    for (uint32_t i = 0; i < plugin->component_count && !status; i++) {
        const tn_component *component = plugin->components[i];
        status = check_component(file, component, object, err);
        if (!status)
            status = match_note(file, component, object, notes, bytes, taken, err);
    }
    return status;
}
