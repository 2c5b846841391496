/* SPDX-License-Identifier: Apache-2.0
 *
 * divide.h: a whole graph as strategies see it, and their tables for any mesh, checked. Needs no processes.
 *
 * Nodes of tables are numbered from 0 in the order of execution, without the batch.
 */
#ifndef TENON_HOST_GRAPH_DIVIDE_H
#define TENON_HOST_GRAPH_DIVIDE_H

#include "host/graph/graph.h"
#include "host/parallel/placement.h"

typedef struct tn_graph_view {
    tn_plan_graph plan;
    tn_plan_node *nodes;
    tn_flow_node *flow_nodes; /* plan.nodes + 1: the batch first */
    const json_t **forms;     /* a node's fact `split`, or NULL */
    tn_text *texts;           /* a node's `splits` */
} tn_graph_view;

/* Of a graph made without a mesh, which must outlive it. The caller destroys it. [main] */
int32_t tn_graph_view_create(const tn_graph *graph, tn_graph_view **ret, tn_error *err);
/* Accepts NULL. */
void tn_graph_view_destroy(tn_graph_view *view);

/* stage_of_node: plan.nodes stages, from the first strategy that offers them; all 0 in a mesh without pipeline. Refuses
 * an order or a cut that can not be, naming the layer. [load] */
int32_t tn_view_stages(const tn_graph_view *view, const tn_strategies *strategies, const tn_mesh *mesh,
                       int32_t *stage_of_node, tn_error *err);
/* The placement rows, from the first strategy that offers them; none in a mesh without tensor axis. *ret is the
 * caller's (tn_free). [load] */
int32_t tn_view_placements(const tn_graph_view *view, const tn_strategies *strategies, const tn_mesh *mesh,
                           tn_placement **ret, int64_t *ret_count, tn_error *err);
/* How each node runs under those rows and which collectives follow: plan.nodes + 1 splits, plan.nodes + 2 flows, the
 * batch first, the loss last. [load] */
int32_t tn_view_flows(const tn_graph_view *view, const tn_placement *rows, int64_t count, tn_split *ret_splits,
                      tn_flow *ret_flows, tn_error *err);

#endif
