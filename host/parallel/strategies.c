/* SPDX-License-Identifier: Apache-2.0
 *
 * strategies.c: loading strategies; arithmetic of the mesh.
 */
#include "host/parallel/strategies.h"

#include "host/base/error.h"

int32_t tn_strategies_load(tn_registry *registry, tn_instance *const *instances, size_t count, tn_strategies *ret,
                           tn_error *err)
{
    tn_strategies loaded = {.count = count};
    if (count > TN_STRATEGIES_MAX)
        return tn_error_set(err, TN_E_INVALID, "%zu strategies; at most %d are allowed", count, TN_STRATEGIES_MAX);
    for (size_t i = 0; i < count; i++) {
        tn_strategy *table = &loaded.table[i];
        loaded.instance[i] = instances[i];
        int32_t status = tn_registry_load(registry, instances[i]->entry, table, sizeof *table, err);
        if (status != TN_OK)
            return status;
        if (!table->placements && !table->stages && !table->actions && !table->segments)
            return tn_error_set(err, TN_E_PLUGIN, "strategy %s: its table offers nothing", instances[i]->info->name);
        if (!table->stages != !table->actions)
            return tn_error_set(err, TN_E_PLUGIN, "strategy %s: its table has %s; needed: both or neither",
                                instances[i]->info->name,
                                table->stages ? "stages without actions" : "actions without stages");
    }
    *ret = loaded;
    return TN_OK;
}

int32_t tn_mesh_check(const tn_mesh *mesh, tn_error *err)
{
    int64_t size = 1;
    const int32_t extents[] = {mesh->data, mesh->tensor, mesh->pipeline};
    static const char *const names[] = {"data", "tensor", "pipeline"};
    for (int i = 0; i < 3; i++) {
        if (extents[i] < 1)
            return tn_error_set(err, TN_E_INVALID, "the mesh's `%s` is %d, needed at least 1", names[i], extents[i]);
        size *= extents[i];
        if (size > INT32_MAX)
            return tn_error_set(err, TN_E_INVALID, "a mesh of data %d x tensor %d x pipeline %d has too many processes",
                                mesh->data, mesh->tensor, mesh->pipeline);
    }
    return TN_OK;
}

int32_t tn_mesh_size(const tn_mesh *mesh) { return mesh->data * mesh->tensor * mesh->pipeline; }

void tn_mesh_place(const tn_mesh *mesh, int32_t rank, int32_t ret[3])
{
    ret[TN_MESH_TENSOR] = rank % mesh->tensor;
    ret[TN_MESH_DATA] = rank / mesh->tensor % mesh->data;
    ret[TN_MESH_PIPELINE] = rank / mesh->tensor / mesh->data;
}

int32_t tn_mesh_rank(const tn_mesh *mesh, const int32_t place[3])
{
    return (place[TN_MESH_PIPELINE] * mesh->data + place[TN_MESH_DATA]) * mesh->tensor + place[TN_MESH_TENSOR];
}

int32_t tn_mesh_group(const tn_mesh *mesh, int32_t rank, int32_t axis, int32_t *ret)
{
    const int32_t extents[] = {mesh->data, mesh->tensor, mesh->pipeline};
    int32_t place[3];
    tn_mesh_place(mesh, rank, place);
    for (int32_t i = 0; i < extents[axis]; i++) {
        place[axis] = i;
        ret[i] = tn_mesh_rank(mesh, place);
    }
    return extents[axis];
}
