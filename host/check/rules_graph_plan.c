/* SPDX-License-Identifier: Apache-2.0
 *
 * rules_graph_plan.c: tables that strategies and recompute policies return, for a few graphs made here.
 */
#include <stdio.h>
#include <string.h>

#include <tenon/recompute.h>

#include "host/base/memory.h"
#include "host/check/guard.h"
#include "host/check/rules_graph.h"
#include "host/graph/divide.h"
#include "host/parallel/timetable.h"

#define NODES_MOST 64
#define ROWS_MOST  512
#define UNSET      (-77)
#define MICRO_MOST 9

static bool is_interface(const tn_check_subject *subject, const char *interface)
{
    return subject->entry && strcmp(subject->entry->interface, interface) == 0;
}

bool tn_check_is_strategy(const tn_check_subject *subject) { return is_interface(subject, TN_STRATEGY); }
bool tn_check_is_recompute(const tn_check_subject *subject) { return is_interface(subject, TN_RECOMPUTE); }

static tn_instance *open_instance(const tn_check_subject *subject, tn_check_finding *finding, void *table, size_t size)
{
    tn_instance *instance = NULL;
    tn_error err = {0};
    const tn_entry_info *entry = subject->entry;
    if (!tn_check_load(subject, table, size, finding))
        return NULL;
    if (tn_instance_create(subject->registry, entry->kind, entry->name, entry->real ? entry->real : 32, entry->name,
                           NULL, 0, &instance, &err) != TN_OK)
        tn_check_skip(finding, "no instance with its defaults: %s", err.msg);
    tn_guard_watch(subject->stage, 256);
    return instance;
}

/* ---- graphs: linear layers with activations between, in memory that can only be read ---- */

static const char *const forms_text =
    "[{\"name\":\"column\",\"parameters\":[0,0],\"x\":\"whole\",\"y\":\"last\",\"rows\":[\"out\"]},"
    "{\"name\":\"row\",\"parameters\":[1,null],\"x\":\"last\",\"y\":\"partial\"}]";

typedef struct {
    tn_guard nodes, parameters, names;
    tn_graph_view view;
    json_t *forms;
    tn_flow_node flow_nodes[NODES_MOST + 1];
    const json_t *forms_of[NODES_MOST];
} drawing;

static char *name_at(drawing *d, int64_t i, const char *what)
{
    char *name = (char *)d->names.data + i * 48;
    snprintf(name, 48, "%lld.%s", (long long)i, what);
    return name;
}

static void draw_linear(drawing *d, int64_t node, int32_t layer, int64_t in, int64_t out, int32_t cut)
{
    tn_plan_node *n = (tn_plan_node *)d->nodes.data + node;
    tn_parameter *p = (tn_parameter *)d->parameters.data + 2 * layer;
    *n = (tn_plan_node){.name = name_at(d, node, "linear"),
                        .splits = "column row",
                        .cost = 2.0 * (double)(in * out),
                        .bytes = 4 * out,
                        .parameter = 2 * layer,
                        .parameters = 2,
                        .cut = cut};
    p[0] = (tn_parameter){.struct_size = sizeof *p,
                          .name = n->name,
                          .layer = n->name,
                          .role = TN_ROLE_WEIGHT,
                          .ndim = 2,
                          .dtype = {TN_FLOAT, 32, 1},
                          .fan_in_axis = 1,
                          .n = in * out,
                          .tied = -1,
                          .replicas = 1};
    p[0].shape[0] = out;
    p[0].shape[1] = in;
    p[1] = (tn_parameter){.struct_size = sizeof *p,
                          .name = n->name,
                          .layer = n->name,
                          .role = TN_ROLE_BIAS,
                          .ndim = 1,
                          .dtype = {TN_FLOAT, 32, 1},
                          .fan_in_axis = -1,
                          .n = out,
                          .tied = -1,
                          .replicas = 1};
    p[1].shape[0] = out;
}

/* `layers` linear ones of `width`; every second cut is none. */
static bool draw(drawing *d, int32_t layers, int64_t width, bool has_cuts)
{
    tn_error err;
    int64_t nodes = 2 * layers - 1;
    *d = (drawing){.forms = json_loads(forms_text, 0, NULL)};
    if (!d->forms || tn_guard_open("the names", (size_t)nodes * 48, 8, TN_GUARD_END, &d->names, &err) != TN_OK ||
        tn_guard_open("the nodes", (size_t)nodes * sizeof(tn_plan_node), 8, TN_GUARD_END, &d->nodes, &err) != TN_OK ||
        tn_guard_open("the parameters", (size_t)layers * 2 * sizeof(tn_parameter), 8, TN_GUARD_END, &d->parameters,
                      &err) != TN_OK)
        return false;
    for (int32_t i = 0; i < layers; i++) {
        draw_linear(d, 2 * i, i, width * (2 - i % 2), width * (1 + i % 2), !has_cuts || i % 2);
        d->forms_of[2 * i] = d->forms;
        if (i + 1 < layers)
            ((tn_plan_node *)d->nodes.data)[2 * i + 1] = (tn_plan_node){.name = name_at(d, 2 * i + 1, "relu"),
                                                                        .splits = "",
                                                                        .cost = (double)width,
                                                                        .bytes = 4 * width,
                                                                        .parameter = 2 * i + 2,
                                                                        .cut = 1};
    }
    ((tn_plan_node *)d->nodes.data)[nodes - 1].cut = 1;
    for (int64_t i = 1; i <= nodes; i++)
        d->flow_nodes[i] =
            (tn_flow_node){.inputs = 1, .input = {(int32_t)i - 1}, .elementwise = i % 2 == 0, .needs_gradient = 1};
    d->view = (tn_graph_view){.plan = {sizeof d->view.plan, 0, nodes, 2 * layers, d->nodes.data, d->parameters.data},
                              .nodes = d->nodes.data,
                              .flow_nodes = d->flow_nodes,
                              .forms = d->forms_of};
    tn_guard_read_only(&d->names, 1);
    tn_guard_read_only(&d->nodes, 1);
    tn_guard_read_only(&d->parameters, 1);
    return true;
}

static void erase(drawing *d)
{
    tn_guard_close(&d->names);
    tn_guard_close(&d->nodes);
    tn_guard_close(&d->parameters);
    json_decref(d->forms);
}

/* ---- strategies ---- */

static const tn_mesh meshes[] = {{sizeof(tn_mesh), 1, 1, 1}, {sizeof(tn_mesh), 2, 1, 2}, {sizeof(tn_mesh), 1, 2, 1},
                                 {sizeof(tn_mesh), 1, 4, 1}, {sizeof(tn_mesh), 1, 1, 4}, {sizeof(tn_mesh), 1, 2, 3},
                                 {sizeof(tn_mesh), 1, 1, 7}};
static const struct {
    int32_t layers;
    int64_t width;
    bool has_cuts;
} drawings[] = {{1, 8, false}, {2, 8, false}, {4, 16, false}, {6, 16, true}, {9, 12, false}};
#define MESHES   (sizeof meshes / sizeof *meshes)
#define DRAWINGS (sizeof drawings / sizeof *drawings)

typedef struct {
    const tn_check_subject *subject;
    tn_check_finding *finding;
    tn_strategies strategies;
    const tn_strategy *table;
    const void *hyper;
    int32_t offered[4], given[4]; /* stages, placements, actions, segments: asked for, and answered */
} planner;

typedef void visit_plan(planner *p, drawing *d, const tn_mesh *mesh);

static void each_plan(const tn_check_subject *subject, tn_check_finding *finding, planner *p, visit_plan *visit)
{
    static drawing d;
    *p = (planner){.subject = subject, .finding = finding, .table = &p->strategies.table[0]};
    p->strategies.table[0].struct_size = sizeof p->strategies.table[0];
    p->strategies.count = 1;
    tn_instance *instance = open_instance(subject, finding, &p->strategies.table[0], sizeof p->strategies.table[0]);
    if (!instance)
        return;
    p->strategies.instance[0] = instance;
    p->hyper = instance->hyper;
    for (size_t g = 0; g < DRAWINGS; g++)
        for (size_t m = 0; m < MESHES && finding->verdict == TN_CHECK_PASSED; m++) {
            if (draw(&d, drawings[g].layers, drawings[g].width, drawings[g].has_cuts)) {
                tn_check_stage(subject, "a table for %d layers and a mesh of %d x %d x %d", drawings[g].layers,
                               meshes[m].data, meshes[m].tensor, meshes[m].pipeline);
                visit(p, &d, &meshes[m]);
            }
            erase(&d);
        }
}

/* What the host thinks of a table: a refusal of the strategy's own is an answer, with words. */
static void judge(planner *p, int32_t which, int32_t status, const tn_error *err)
{
    p->offered[which] = 1;
    p->given[which] |= status == TN_OK;
    if (status == TN_E_PLUGIN)
        tn_check_fail(p->finding, "%s", err->msg);
    else if (status != TN_OK && !*err->msg)
        tn_check_fail(p->finding, "it refuses a mesh and does not say why");
}

static void check_placements(planner *p, drawing *d, const tn_mesh *mesh)
{
    tn_error err = {0};
    tn_placement *rows = NULL;
    tn_split splits[NODES_MOST + 1];
    tn_flow flows[NODES_MOST + 2];
    int64_t count = 0;
    if (!p->table->placements || mesh->tensor == 1)
        return;
    int32_t status = tn_view_placements(&d->view, &p->strategies, mesh, &rows, &count, &err);
    judge(p, 1, status, &err);
    if (status == TN_OK && tn_view_flows(&d->view, rows, count, splits, flows, &err) != TN_OK)
        tn_check_fail(p->finding, "its placements are none of the forms of their layers: %s", err.msg);
    tn_free(rows);
}

static void check_segments(planner *p, drawing *d, const tn_mesh *mesh)
{
    int32_t segments[NODES_MOST];
    tn_error err = {0};
    if (!p->table->segments)
        return;
    for (int i = 0; i < NODES_MOST; i++)
        segments[i] = UNSET;
    int32_t status = p->table->segments(p->hyper, mesh, &d->view.plan, segments, &err);
    judge(p, 3, status, &err);
    for (int64_t i = 0; status == TN_OK && i < d->view.plan.nodes; i++) {
        int32_t before = i ? segments[i - 1] : 0;
        if (segments[i] != before && (i == 0 || segments[i] != before + 1))
            tn_check_fail(p->finding, "segment %d of node %lld follows segment %d; they rise from 0 by 1", segments[i],
                          (long long)i, before);
    }
}

static void visit_tables(planner *p, drawing *d, const tn_mesh *mesh)
{
    int32_t stages[NODES_MOST];
    tn_error err = {0};
    tn_timetable *timetable = NULL;
    if (p->table->stages && mesh->pipeline > 1)
        judge(p, 0, tn_view_stages(&d->view, &p->strategies, mesh, stages, &err), &err);
    check_placements(p, d, mesh);
    for (int32_t micro = 1; p->table->actions && micro <= MICRO_MOST; micro += micro < 4 ? 1 : 5) {
        err = (tn_error){0};
        int32_t status = tn_timetable_create(&p->strategies, mesh, micro, &timetable, &err);
        judge(p, 2, status, &err);
        if (status == TN_OK)
            tn_timetable_destroy(timetable);
    }
    check_segments(p, d, mesh);
}

void tn_check_strategy_tables(const tn_check_subject *subject, tn_check_finding *finding)
{
    static const char *const names[] = {"stages", "placements", "actions", "segments"};
    static planner p;
    each_plan(subject, finding, &p, visit_tables);
    if (finding->verdict != TN_CHECK_PASSED)
        return;
    const tn_strategy *t = p.table;
    if (!t->stages && !t->placements && !t->actions && !t->segments)
        tn_check_fail(finding, "it offers no table at all");
    for (int i = 0; i < 4; i++)
        if (p.offered[i] && !p.given[i])
            tn_check_fail(finding, "it offers %s, and has refused all of %zu graphs on %zu meshes", names[i], DRAWINGS,
                          MESHES);
}

/* ---- the same again; within what was lent ---- */

typedef struct {
    int64_t counts[2];
    int32_t stages[NODES_MOST], segments[NODES_MOST];
    tn_placement placements[ROWS_MOST];
    tn_action actions[ROWS_MOST];
} answers;

static void ask_all(planner *p, drawing *d, const tn_mesh *mesh, answers *ret)
{
    memset(ret, 0, sizeof *ret);
    const tn_plan_graph *plan = &d->view.plan;
    if (p->table->stages && p->table->stages(p->hyper, mesh, plan, ret->stages, NULL) != TN_OK)
        memset(ret->stages, 0, sizeof ret->stages);
    if (p->table->segments && p->table->segments(p->hyper, mesh, plan, ret->segments, NULL) != TN_OK)
        memset(ret->segments, 0, sizeof ret->segments);
    if (p->table->placements)
        ret->counts[0] = p->table->placements(p->hyper, mesh, plan, ret->placements, ROWS_MOST, NULL);
    if (p->table->actions)
        ret->counts[1] = p->table->actions(p->hyper, mesh, mesh->pipeline - 1, 4, ret->actions, ROWS_MOST, NULL);
}

static void visit_repeat(planner *p, drawing *d, const tn_mesh *mesh)
{
    static answers first, second, between;
    ask_all(p, d, mesh, &first);
    ask_all(p, d, &meshes[0], &between);
    ask_all(p, d, mesh, &second);
    if (memcmp(&first, &second, sizeof first) != 0)
        tn_check_fail(p->finding,
                      "asked again it gives another table; every process asks for the tables of all, and they "
                      "must agree");
}

void tn_check_strategy_repeat(const tn_check_subject *subject, tn_check_finding *finding)
{
    static planner p;
    each_plan(subject, finding, &p, visit_repeat);
}

static int64_t fill_rows(planner *p, drawing *d, const tn_mesh *mesh, bool of_actions, tn_guard *rows, int64_t room)
{
    if (of_actions)
        return p->table->actions ? p->table->actions(p->hyper, mesh, 0, 4, rows->data, room, NULL) : -1;
    return p->table->placements ? p->table->placements(p->hyper, mesh, &d->view.plan, rows->data, room, NULL) : -1;
}

static void check_room(planner *p, drawing *d, const tn_mesh *mesh, bool of_actions)
{
    static tn_guard rows;
    tn_error err;
    size_t size = of_actions ? sizeof(tn_action) : sizeof(tn_placement);
    int64_t needed = -1;
    for (int64_t room = ROWS_MOST; room >= 0; room = room == ROWS_MOST ? needed : room - 1) {
        if (tn_guard_open("the rows", (size_t)room * size, 8, TN_GUARD_END, &rows, &err) != TN_OK)
            return;
        int64_t count = fill_rows(p, d, mesh, of_actions, &rows, room);
        size_t damage = tn_guard_damage(&rows);
        tn_guard_close(&rows);
        needed = room == ROWS_MOST ? count : needed;
        if (damage)
            tn_check_fail(p->finding, "with room for %lld rows it writes %zu bytes behind them", (long long)room,
                          damage);
        else if (count != needed && needed >= 0)
            tn_check_fail(p->finding, "with room for %lld rows it says there are %lld, with more room %lld",
                          (long long)room, (long long)count, (long long)needed);
        if (needed < 0)
            return;
    }
}

static void visit_room(planner *p, drawing *d, const tn_mesh *mesh)
{
    static tn_guard stages;
    tn_error err;
    if (p->table->stages && mesh->pipeline > 1 &&
        tn_guard_open("the stages", (size_t)d->view.plan.nodes * sizeof(int32_t), 4, TN_GUARD_END, &stages, &err) ==
            TN_OK) {
        p->table->stages(p->hyper, mesh, &d->view.plan, stages.data, &err);
        tn_guard_close(&stages);
    }
    check_room(p, d, mesh, false);
    check_room(p, d, mesh, true);
}

void tn_check_strategy_room(const tn_check_subject *subject, tn_check_finding *finding)
{
    static planner p;
    each_plan(subject, finding, &p, visit_room);
}

/* ---- recompute ---- */

static const int64_t counts[] = {1, 2, 3, 5, 16, 33, 1000};
#define COUNTS (sizeof counts / sizeof *counts)

typedef void visit_costs(const tn_recompute *table, const void *hyper, tn_guard *costs, tn_guard *keep, int64_t count,
                         tn_check_finding *finding);

static void fill_costs(tn_node_cost *costs, int64_t count, int variant)
{
    for (int64_t i = 0; i < count; i++)
        costs[i] = (tn_node_cost){.bytes = variant == 2 ? 0 : (i * 37 % 11) << 10,
                                  .flops = variant == 1 ? 1e18 : (double)(i * 13 % 7),
                                  .node = (int32_t)i + 1,
                                  .replayable = i + 1 < count && i % 5 != 3};
}

static void each_costs(const tn_check_subject *subject, tn_check_finding *finding, visit_costs *visit)
{
    static tn_guard costs, keep;
    tn_recompute table = {.struct_size = sizeof table};
    tn_error err;
    tn_instance *instance = open_instance(subject, finding, &table, sizeof table);
    if (instance && !table.plan)
        tn_check_fail(finding, "its table lacks plan");
    for (size_t i = 0; instance && i < COUNTS * 3 && finding->verdict == TN_CHECK_PASSED; i++) {
        int64_t count = counts[i / 3];
        if (tn_guard_open("the costs", (size_t)count * sizeof(tn_node_cost), 8, TN_GUARD_END, &costs, &err) != TN_OK ||
            tn_guard_open("keep", (size_t)count * sizeof(int32_t), 4, TN_GUARD_END, &keep, &err) != TN_OK)
            return;
        fill_costs(costs.data, count, (int)(i % 3));
        tn_guard_read_only(&costs, 1);
        tn_check_stage(subject, "plan of %lld nodes", (long long)count);
        visit(&table, instance->hyper, &costs, &keep, count, finding);
        tn_guard_close(&costs);
        tn_guard_close(&keep);
    }
}

static void visit_table(const tn_recompute *table, const void *hyper, tn_guard *costs, tn_guard *keep, int64_t count,
                        tn_check_finding *finding)
{
    int32_t *rows = keep->data;
    tn_error err = {0};
    for (int64_t i = 0; i < count; i++)
        rows[i] = UNSET;
    int32_t status = table->plan(hyper, costs->data, count, rows, &err);
    if (status != TN_OK)
        tn_check_fail(finding, "it refuses %lld nodes: %s", (long long)count, err.msg);
    if (tn_guard_damage(keep))
        tn_check_fail(finding, "it writes beside the rows of %lld nodes", (long long)count);
    for (int64_t i = 0; status == TN_OK && i < count; i++) {
        if (rows[i] != TN_KEEP && rows[i] != TN_REPLAY)
            tn_check_fail(finding, "of %lld nodes row %lld is %d%s; needed TN_KEEP or TN_REPLAY", (long long)count,
                          (long long)i, rows[i], rows[i] == UNSET ? ", as it was" : "");
        else if (rows[i] == TN_REPLAY && !((const tn_node_cost *)costs->data)[i].replayable)
            tn_check_fail(finding, "of %lld nodes it replays node %lld, which must be kept", (long long)count,
                          (long long)i);
    }
}

void tn_check_recompute_table(const tn_check_subject *subject, tn_check_finding *finding)
{
    each_costs(subject, finding, visit_table);
}

static void visit_again(const tn_recompute *table, const void *hyper, tn_guard *costs, tn_guard *keep, int64_t count,
                        tn_check_finding *finding)
{
    int32_t *first = tn_alloc((size_t)count, sizeof *first);
    static const tn_node_cost other = {1, 1, 1, 1};
    int32_t unused;
    if (!first)
        return;
    table->plan(hyper, costs->data, count, keep->data, NULL);
    memcpy(first, keep->data, (size_t)count * sizeof *first);
    table->plan(hyper, &other, 1, &unused, NULL);
    table->plan(hyper, costs->data, count, keep->data, NULL);
    if (memcmp(first, keep->data, (size_t)count * sizeof *first) != 0)
        tn_check_fail(finding,
                      "asked again for the same %lld nodes it gives another table; a policy is a function of its "
                      "arguments",
                      (long long)count);
    tn_free(first);
}

void tn_check_recompute_repeat(const tn_check_subject *subject, tn_check_finding *finding)
{
    each_costs(subject, finding, visit_again);
}
