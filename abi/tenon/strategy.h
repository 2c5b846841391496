/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/strategy.h: what lies where and who does what when. Interface "tenon.strategy/0.2", kind strategy.
 *
 * A strategy is a set of pure functions that return tables. The host executes them, and `tenon plan` evaluates them for
 * any number of processes. A run may name several; each table comes from the first that offers it.
 */
#ifndef TENON_STRATEGY_H
#define TENON_STRATEGY_H

#include <tenon/parameter.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TN_STRATEGY "tenon.strategy/0.2"

/* The processes as a mesh: rank = (pipeline place * data + data place) * tensor + tensor place. */
typedef struct tn_mesh {
    uint32_t struct_size;
    int32_t data, tensor, pipeline; /* extents, >= 1 */
} tn_mesh;
TN_SIZE(tn_mesh, 16);

#define TN_MESH_DATA     0
#define TN_MESH_TENSOR   1
#define TN_MESH_PIPELINE 2

/* FROZEN. A layer of the graph, in the order of execution; whole, as one process would run it. */
typedef struct tn_plan_node {
    const char *name;              /* "hidden.0.linear" */
    const char *splits;            /* names of the forms it can be split in (layer.h), with blanks between; "": none */
    double cost;                   /* flops of forward, estimated from shapes */
    int64_t bytes;                 /* output and saved tensors at the maximum batch */
    int32_t parameter, parameters; /* index of its first in tn_plan_graph; how many */
    int32_t cut;                   /* 1: a stage may end here, for later layers read its output only */
    int32_t reserved;
} tn_plan_node;
TN_SIZE(tn_plan_node, 48);

typedef struct tn_plan_graph {
    uint32_t struct_size;
    uint32_t reserved;
    int64_t nodes, parameters;
    const tn_plan_node *node;
    const tn_parameter *parameter;
} tn_plan_graph;
TN_SIZE(tn_plan_graph, 40);

#define TN_PLACE_REPLICATE 0 /* also what has no row */
#define TN_PLACE_SHARD     1 /* in equal parts along `axis` */
#define TN_PLACE_PARTIAL   2 /* a sum is owed over the mesh axis */

#define TN_TENSOR_PARAMETER 0
#define TN_TENSOR_GRADIENT  1
#define TN_TENSOR_STATE     2

/* FROZEN. Where a tensor lies along a mesh axis. How a layer then runs follows from its forms, and every collective
 * from what two users of a tensor need: the host derives both. */
typedef struct tn_placement {
    int32_t tensor_kind, parameter; /* TN_TENSOR_*, of which parameter */
    int32_t mesh_axis, place;       /* TN_MESH_*, TN_PLACE_* */
    int32_t axis, reserved;         /* of a shard */
} tn_placement;
TN_SIZE(tn_placement, 24);

/* FROZEN. What a stage does, in order. what, of one micro-batch: 'F' forward, 'B' backward, of which 'W' is the part
 * for the parameters where the table has it; 'U', last: the update. */
typedef struct tn_action {
    int32_t stage, what, micro_batch, reserved;
} tn_action;
TN_SIZE(tn_action, 16);

/* Entries that a strategy has nothing to say about are NULL. Each is a function of its arguments alone: every process
 * asks for the tables of all. */
typedef struct tn_strategy {
    uint32_t struct_size;
    uint32_t reserved;
    /* Fills at most `room` rows and returns how many there are, or a negative status with `err` filled. [load] */
    int64_t (*placements)(const void *hyper, const tn_mesh *mesh, const tn_plan_graph *graph, tn_placement *rows,
                          int64_t room, tn_error *err);
    /* The stage of each node, rising from 0 to mesh->pipeline - 1 and only behind nodes with `cut`. [load] */
    int32_t (*stages)(const void *hyper, const tn_mesh *mesh, const tn_plan_graph *graph, int32_t *stage_of_node,
                      tn_error *err);
    /* As placements. Each micro-batch once, in any order that the stages together can follow. [load] */
    int64_t (*actions)(const void *hyper, const tn_mesh *mesh, int32_t stage, int32_t micro_batches, tn_action *rows,
                       int64_t room, tn_error *err);
    /* Segments: the unit of recompute and of gathering, per node, as stages. [load] */
    int32_t (*segments)(const void *hyper, const tn_mesh *mesh, const tn_plan_graph *graph, int32_t *segment_of_node,
                        tn_error *err);
} tn_strategy;
TN_SIZE(tn_strategy, 40);

#ifdef __cplusplus
}
#endif
#endif
