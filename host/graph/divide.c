/* SPDX-License-Identifier: Apache-2.0
 *
 * divide.c: which part of a model is this process's: asks the strategies, checks their tables, and marks the nodes of
 * this stage. The parts of tensor parallelism are made in shard.c.
 */
#include "host/graph/divide.h"

#include <jansson.h>
#include <string.h>

#include "host/base/error.h"
#include "host/base/memory.h"
#include "host/graph/internal.h"

static int32_t no_memory(tn_error *err)
{
    return tn_error_set(err, TN_E_MEMORY, "no memory for the tables of the mesh");
}

/* ---- the view ---- */

static int32_t name_forms(const node *n, const json_t **ret_forms, tn_text *text, tn_error *err)
{
    const json_t *forms = json_object_get(n->instance->info->facts, "split");
    for (size_t i = 0; i < json_array_size(forms); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(forms, i), "name"));
        if (name)
            tn_text_addf(text, "%s%s", text->size ? " " : "", name);
    }
    *ret_forms = forms;
    return tn_text_status(text, err);
}

static void view_node(const tn_graph *graph, int32_t i, int32_t cut, tn_graph_view *view)
{
    const node *n = &graph->nodes[i];
    int64_t bytes = tn_tensor_bytes(&n->output.view);
    for (int32_t s = 0; s < n->saved_count; s++)
        bytes += tn_tensor_bytes(&n->saved[s].view);
    view->nodes[i - 1] = (tn_plan_node){.name = n->name,
                                        .splits = tn_text_string(&view->texts[i - 1]),
                                        .cost = tn_node_flops(graph, n),
                                        .bytes = bytes,
                                        .parameter = n->parameter,
                                        .parameters = n->parameter_count,
                                        .cut = cut};
    tn_flow_node *flow = &view->flow_nodes[i];
    flow->inputs = n->input_count;
    memcpy(flow->input, n->input, sizeof n->input);
    flow->elementwise = n->axis == AXIS_ELEMENTS;
    flow->needs_gradient = n->needs_gradient;
}

static int32_t fill_view(const tn_graph *graph, tn_graph_view *view, tn_error *err)
{
    int32_t furthest = graph->nodes[0].last_consumer, status = TN_OK; /* the last reader of anything before node i */
    for (int32_t i = 1; i < graph->node_count && status == TN_OK; i++) {
        status = name_forms(&graph->nodes[i], &view->forms[i - 1], &view->texts[i - 1], err);
        view_node(graph, i, furthest <= i, view);
        furthest = graph->nodes[i].last_consumer > furthest ? graph->nodes[i].last_consumer : furthest;
    }
    return status;
}

int32_t tn_graph_view_create(const tn_graph *graph, tn_graph_view **ret, tn_error *err)
{
    size_t count = (size_t)graph->node_count;
    tn_graph_view *view = tn_alloc(1, sizeof *view);
    if (!view)
        return no_memory(err);
    view->nodes = tn_alloc(count, sizeof *view->nodes);
    view->flow_nodes = tn_alloc(count, sizeof *view->flow_nodes);
    view->forms = tn_alloc(count, sizeof *view->forms);
    view->texts = tn_alloc(count, sizeof *view->texts);
    view->plan = (tn_plan_graph){sizeof view->plan,       0,           graph->node_count - 1,
                                 graph->parameters.count, view->nodes, graph->parameters.list};
    int32_t status =
        view->nodes && view->flow_nodes && view->forms && view->texts ? fill_view(graph, view, err) : no_memory(err);
    if (status != TN_OK) {
        tn_graph_view_destroy(view);
        return status;
    }
    *ret = view;
    return TN_OK;
}

void tn_graph_view_destroy(tn_graph_view *view)
{
    if (!view)
        return;
    for (int64_t i = 0; view->texts && i < view->plan.nodes; i++)
        tn_text_free(&view->texts[i]);
    tn_free(view->nodes);
    tn_free(view->flow_nodes);
    tn_free(view->forms);
    tn_free(view->texts);
    tn_free(view);
}

/* ---- tables ---- */

static int32_t check_stages(const tn_graph_view *view, const char *strategy, const tn_mesh *mesh, const int32_t *stage,
                            tn_error *err)
{
    const tn_plan_node *nodes = view->plan.node;
    int64_t count = view->plan.nodes;
    for (int64_t i = 0; i < count; i++) {
        int32_t before = i ? stage[i - 1] : 0;
        if (stage[i] != before && (i == 0 || stage[i] != before + 1))
            return tn_error_set(err, TN_E_PLUGIN, "strategy %s: stage %d of %s follows stage %d", strategy, stage[i],
                                nodes[i].name, before);
        if (stage[i] != before && !nodes[i - 1].cut)
            return tn_error_set(err, TN_E_PLUGIN,
                                "strategy %s: a stage ends behind %s, but later layers also read what comes before it",
                                strategy, nodes[i - 1].name);
    }
    if (stage[count - 1] != mesh->pipeline - 1)
        return tn_error_set(err, TN_E_PLUGIN, "strategy %s: %d stages, the mesh has %d", strategy, stage[count - 1] + 1,
                            mesh->pipeline);
    return TN_OK;
}

int32_t tn_view_stages(const tn_graph_view *view, const tn_strategies *strategies, const tn_mesh *mesh,
                       int32_t *stage_of_node, tn_error *err)
{
    memset(stage_of_node, 0, (size_t)view->plan.nodes * sizeof *stage_of_node);
    for (size_t i = 0; i < strategies->count && mesh->pipeline > 1; i++) {
        const tn_instance *instance = strategies->instance[i];
        if (!strategies->table[i].stages)
            continue;
        tn_error_clear(err);
        int32_t status = strategies->table[i].stages(instance->hyper, mesh, &view->plan, stage_of_node, err);
        if (status != TN_OK)
            return err && err->msg[0] ? status
                                      : tn_error_set(err, status, "strategy %s: no stages", instance->info->name);
        return check_stages(view, instance->info->name, mesh, stage_of_node, err);
    }
    if (mesh->pipeline == 1)
        return TN_OK;
    return tn_error_set(err, TN_E_INVALID, "the mesh's `pipeline` is %d, but no strategy offers stages",
                        mesh->pipeline);
}

static int32_t check_row(const tn_graph_view *view, const char *strategy, const tn_mesh *mesh, const tn_placement *row,
                         tn_error *err)
{
    if (row->tensor_kind != TN_TENSOR_PARAMETER || row->mesh_axis != TN_MESH_TENSOR || row->place == TN_PLACE_PARTIAL)
        return tn_error_set(err, TN_E_UNSUPPORTED,
                            "strategy %s: places tensors of kind %d along mesh axis %d as %d; this host drives parts "
                            "of parameters along the tensor axis",
                            strategy, row->tensor_kind, row->mesh_axis, row->place);
    if (row->parameter < 0 || row->parameter >= view->plan.parameters)
        return tn_error_set(err, TN_E_PLUGIN, "strategy %s: places parameter %d of %lld", strategy, row->parameter,
                            (long long)view->plan.parameters);
    const tn_parameter *p = &view->plan.parameter[row->parameter];
    if (row->place == TN_PLACE_SHARD && (row->axis < 0 || row->axis >= p->ndim || p->shape[row->axis] % mesh->tensor))
        return tn_error_set(
            err, TN_E_INVALID, "strategy %s: splits %s along axis %d, of %lld, into %d equal parts", strategy, p->name,
            row->axis, row->axis >= 0 && row->axis < p->ndim ? (long long)p->shape[row->axis] : -1LL, mesh->tensor);
    return TN_OK;
}

static int32_t ask_rows(const tn_graph_view *view, const tn_strategy *table, const tn_instance *instance,
                        const tn_mesh *mesh, tn_placement **ret, int64_t *ret_count, tn_error *err)
{
    int64_t room = 4 * view->plan.parameters + 1;
    tn_placement *rows = tn_alloc((size_t)room, sizeof *rows);
    if (!rows)
        return no_memory(err);
    tn_error_clear(err);
    int64_t count = table->placements(instance->hyper, mesh, &view->plan, rows, room, err);
    int32_t status = TN_OK;
    if (count < 0)
        status = err && err->msg[0] ? (int32_t)-count
                                    : tn_error_set(err, (int32_t)-count, "strategy %s: no rows", instance->info->name);
    else if (count > room)
        status = tn_error_set(err, TN_E_PLUGIN, "strategy %s: %lld rows for %lld parameters", instance->info->name,
                              (long long)count, (long long)view->plan.parameters);
    for (int64_t i = 0; i < count && status == TN_OK; i++)
        status = check_row(view, instance->info->name, mesh, &rows[i], err);
    if (status != TN_OK) {
        tn_free(rows);
        return status;
    }
    *ret = rows;
    *ret_count = count;
    return TN_OK;
}

int32_t tn_view_placements(const tn_graph_view *view, const tn_strategies *strategies, const tn_mesh *mesh,
                           tn_placement **ret, int64_t *ret_count, tn_error *err)
{
    for (size_t i = 0; i < strategies->count && mesh->tensor > 1; i++)
        if (strategies->table[i].placements)
            return ask_rows(view, &strategies->table[i], strategies->instance[i], mesh, ret, ret_count, err);
    if (mesh->tensor > 1)
        return tn_error_set(err, TN_E_INVALID,
                            "the mesh's `tensor` is %d, but no strategy offers placements; name one, such as "
                            "tensor-pair",
                            mesh->tensor);
    *ret = NULL;
    *ret_count = 0;
    return TN_OK;
}

int32_t tn_view_flows(const tn_graph_view *view, const tn_placement *rows, int64_t count, tn_split *ret_splits,
                      tn_flow *ret_flows, tn_error *err)
{
    ret_splits[0] = (tn_split){0};
    for (int64_t i = 0; i < view->plan.nodes; i++) {
        const tn_plan_node *n = &view->plan.node[i];
        int32_t status =
            tn_split_choose(n->name, view->forms[i], rows, count, n->parameter, n->parameters, &ret_splits[i + 1], err);
        if (status != TN_OK)
            return status;
        view->flow_nodes[i + 1].split = ret_splits[i + 1];
    }
    tn_flow_derive(view->flow_nodes, (int32_t)view->plan.nodes + 1, (int32_t)view->plan.nodes, ret_flows);
    return TN_OK;
}

/* ---- this process's part ---- */

static void keep_stage(tn_graph *graph, const int32_t *stage_of_node, int32_t stage)
{
    graph->first = graph->last = 0;
    for (int32_t i = 1; i < graph->node_count; i++) {
        node *n = &graph->nodes[i];
        n->elsewhere = stage_of_node[i - 1] != stage;
        if (!n->elsewhere) {
            graph->first = graph->first ? graph->first : i;
            graph->last = i;
        }
        for (int32_t k = 0; k < n->parameter_count && n->elsewhere; k++)
            graph->parameters.list[n->parameter + k].n = 0;
    }
    graph->entry = graph->first - 1;
}

static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
    return hash;
}

static uint64_t hash_tables(const tn_graph_view *view, const int32_t *stages, const tn_placement *rows, int64_t count)
{
    uint64_t hash = hash_bytes(14695981039346656037u, stages, (size_t)view->plan.nodes * sizeof *stages);
    if (count)
        hash = hash_bytes(hash, rows, (size_t)count * sizeof *rows);
    for (int64_t i = 0; i < view->plan.parameters; i++) {
        const tn_parameter *p = &view->plan.parameter[i];
        hash = hash_bytes(hash, p->name, strlen(p->name));
        hash = hash_bytes(hash, p->shape, (size_t)p->ndim * sizeof *p->shape);
    }
    return hash;
}

typedef struct {
    tn_graph_view *view;
    int32_t *stages;
    tn_placement *rows;
    int64_t row_count;
    tn_split *splits;
    tn_flow *flows;
} tables;

static int32_t make_tables(const tn_graph *graph, tables *t, tn_error *err)
{
    const tn_parallel *p = graph->options.parallel;
    size_t count = (size_t)graph->node_count + 1;
    int32_t status = tn_graph_view_create(graph, &t->view, err);
    if (status != TN_OK)
        return status;
    t->stages = tn_alloc(count, sizeof *t->stages);
    t->splits = tn_alloc(count, sizeof *t->splits);
    t->flows = tn_alloc(count, sizeof *t->flows);
    if (!t->stages || !t->splits || !t->flows)
        return no_memory(err);
    status = tn_view_stages(t->view, &p->strategies, &p->mesh, t->stages, err);
    if (status == TN_OK)
        status = tn_view_placements(t->view, &p->strategies, &p->mesh, &t->rows, &t->row_count, err);
    if (status == TN_OK)
        status = tn_view_flows(t->view, t->rows, t->row_count, t->splits, t->flows, err);
    return status;
}

static void set_replicas(tn_graph *graph)
{
    const tn_mesh *mesh = &graph->options.parallel->mesh;
    for (int64_t i = 0; i < graph->parameters.count; i++)
        graph->parameters.list[i].replicas = mesh->data * (graph->parameters.list[i].tensor_count ? 1 : mesh->tensor);
}

int32_t tn_graph_divide(tn_graph *graph, tn_error *err)
{
    const tn_parallel *p = graph->options.parallel;
    tables t = {0};
    graph->first = 1;
    graph->last = graph->output;
    if (!p)
        return TN_OK;
    int32_t status = make_tables(graph, &t, err);
    if (status == TN_OK)
        status = tn_parallel_agree(p, hash_tables(t.view, t.stages, t.rows, t.row_count),
                                   "the model, its stages or its placements", err);
    if (status == TN_OK && p->mesh.tensor > 1)
        status = tn_graph_shard(graph, t.splits, t.flows, err);
    if (status == TN_OK) {
        set_replicas(graph);
        keep_stage(graph, t.stages, p->place[TN_MESH_PIPELINE]);
    }
    tn_graph_view_destroy(t.view);
    tn_free(t.stages);
    tn_free(t.rows);
    tn_free(t.splits);
    tn_free(t.flows);
    return status;
}
