/* SPDX-License-Identifier: Apache-2.0
 *
 * foreign.c: instances of the components ffi.
 */
#include "host/experiment/foreign.h"

#include <string.h>

#include "host/foreign/foreign.h"

/* The place of byte `at` of a scalar, where the file's text is the scalar's own, in quotes or without; else, as with
 * escapes, where the scalar begins. */
static tn_place place_within(const tn_yaml *node, size_t at)
{
    tn_place place = node->place;
    size_t length = strlen(node->value);
    if (!place.text || place.at >= place.text->size)
        return place;
    char first = place.text->bytes[place.at];
    size_t start = place.at + (first == '"' || first == '\'');
    if (length <= place.text->size - start && memcmp(place.text->bytes + start, node->value, length) == 0)
        place.at = start + at;
    return place;
}

int32_t tn_foreign_examine(const tn_instance *instance, const tn_yaml *node, tn_place place, tn_error *err)
{
    tn_foreign_fault fault = {"", 0};
    tn_error why = {0};
    if (!instance->entry->own)
        return TN_OK;
    int32_t status = tn_foreign_check(instance->info->kind, instance->hyper, instance->real, &fault, &why);
    if (status == TN_OK)
        return TN_OK;
    if (status == TN_E_MEMORY)
        return tn_place_no_memory(err);
    const tn_yaml *value = tn_yaml_get(node, fault.row);
    if (value)
        place = place_within(value, fault.at);
    if (value && !place.text->is_file && fault.at > 0)
        return tn_place_error(err, status, place, "%s 'ffi': %s, character %zu: %s", instance->info->kind, fault.row,
                              fault.at + 1, why.msg);
    return tn_place_error(err, status, place, "%s 'ffi': %s: %s", instance->info->kind, fault.row, why.msg);
}

void tn_foreign_unbind(tn_instance *instance)
{
    tn_foreign_free(instance->foreign);
    instance->foreign = NULL;
}

int32_t tn_instance_load(const tn_instance *instance, tn_registry *registry, void *table, size_t table_size,
                         tn_error *err)
{
    tn_instance *bound = (tn_instance *)(uintptr_t)instance; /* what is bound shows in nothing but its calls */
    int32_t status = tn_registry_load(registry, instance->entry, table, table_size, err);
    if (status == TN_OK && instance->entry->own && !instance->foreign)
        status = tn_foreign_bind(instance->info->kind, instance->path, instance->hyper, instance->real,
                                 tn_registry_log(registry), &bound->foreign, err);
    if (status == TN_OK && instance->entry->own)
        memcpy((char *)instance->hyper + instance->hyper_size, &instance->foreign, sizeof instance->foreign);
    return status;
}
