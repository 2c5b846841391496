/* SPDX-License-Identifier: Apache-2.0
 *
 * internal.h: the graph's own structs: build.c fills nodes, plan.c gives every tensor its place, graph.c sets the
 * values at the start, run.c executes. Nobody else includes it.
 */
#ifndef TENON_HOST_GRAPH_INTERNAL_H
#define TENON_HOST_GRAPH_INTERNAL_H

#include "host/graph/compute.h"
#include "host/graph/graph.h"

#define MAX_PORTS      8  /* inputs, parameters, buffers or saved tensors of one node */
#define PIECES_MAX     64 /* of a "rows" node: each has a partial of the parameter gradients */
#define PIECE_ELEMENTS 8192
/* Larger than any memory, small enough that sums over a graph stay in 63 bits: what lies above is refused. */
#define ELEMENTS_MAX ((int64_t)1 << 40)
#define NODES_MAX    65536

typedef enum { AXIS_WHOLE, AXIS_ROWS, AXIS_COLUMNS, AXIS_ELEMENTS } node_axis;

/* A tensor with room for its own extents. */
typedef struct {
    tn_tensor view;
    int64_t shape[TN_MAX_DIMS], strides[TN_MAX_DIMS];
} owned_tensor;

/* A place in the activation arena, alive from `first` to `last` on the clock of plan.c. */
typedef struct {
    int64_t bytes;
    int32_t first, last; /* first > last: never used */
    int32_t shares;      /* index of the place whose memory it uses; itself unless in place */
    int64_t offset;
} place;

typedef struct {
    char *name;
    tn_instance *instance;
    int32_t owned; /* the instance is this node's own */
    tn_layer table;
    node_axis axis;
    int32_t keeps_input, keeps_output, in_place;
    uint64_t key;

    int32_t input[MAX_PORTS], input_count; /* nodes */
    int32_t consumers, last_consumer;      /* how many inputs read this node's output; the largest such node */
    int32_t needs_gradient;                /* something before it, or itself, has parameters */

    owned_tensor output;
    int32_t parameter, parameter_count; /* first index in the graph's parameters */
    int32_t buffer, buffer_count;
    owned_tensor saved[MAX_PORTS];
    int32_t saved_count;
    int64_t workspace;

    int32_t y, dy, saved_place[MAX_PORTS]; /* places; -1: none */
    int32_t dx_extra[MAX_PORTS];           /* place of a gradient that must be added to another's; -1: none */
    int64_t partial_elements;              /* of one piece's partials, padded; 0: none */

    /* What calls see; data pointers are set by plan.c, extents of the batch by run.c. */
    tn_tensor x[MAX_PORTS], dx[MAX_PORTS], out, dout, param[MAX_PORTS], grad[MAX_PORTS], state[MAX_PORTS],
        keep[MAX_PORTS];
} node;

struct tn_graph {
    tn_graph_options options;
    tn_compute_host compute_host;
    tn_compute compute;
    tn_loss loss;
    uint64_t loss_key;
    const char **metrics;
    size_t metric_count;

    node *nodes; /* node 0 is the input */
    size_t node_capacity;
    int32_t node_count, output;
    tn_error *build_error; /* where builder callbacks leave errors */
    int32_t build_status;  /* of the first builder call that failed: later ones do nothing */

    tn_weight *weights; /* as planned, parallel to parameters.list; names inside parameters */
    size_t parameter_capacity;
    tn_parameters parameters;
    tn_graph_buffer *buffers;
    owned_tensor *buffer_tensors;
    double *buffer_initial;
    size_t buffer_capacity;
    int32_t buffer_count;

    place *places;
    int32_t place_count;
    unsigned char *arena, *buffer_arena, *partials, *workspace;
    int64_t arena_bytes, unshared_bytes, buffer_bytes, partial_bytes, workspace_bytes; /* workspace: a thread */
    void *input, *target;
    int64_t input_bytes;
    owned_tensor target_tensor;
    tn_tensor loss_dx;
    owned_tensor *parameter_tensors; /* shapes for calls, parallel to parameters.list */
    double loss_sums[PIECES_MAX][TN_SUMS_MAX];
};

static inline int64_t real_bytes(const tn_graph *graph) { return graph->options.real / 8; }
static inline tn_dtype real_dtype(const tn_graph *graph)
{
    return (tn_dtype){TN_FLOAT, (uint8_t)graph->options.real, 1};
}
static inline int64_t round_up(int64_t value, int64_t to) { return ceil_div(value, to) * to; }

/* build.c: a contiguous tensor of that shape, without data. */
void tn_tensor_set(owned_tensor *tensor, tn_dtype dtype, int32_t ndim, const int64_t *shape);
int64_t tn_tensor_elements(const tn_tensor *tensor);
int64_t tn_tensor_bytes(const tn_tensor *tensor);
/* build.c: refuses shapes that are negative, have too many dimensions or too many elements. `who` and `what` are for
 * the message. */
int32_t tn_shape_check(const char *who, const char *what, int32_t ndim, const int64_t *shape, tn_error *err);
/* build.c: nodes, shapes, parameter and buffer lists. */
int32_t tn_graph_build(tn_graph *graph, tn_error *err);
/* plan.c: places, arenas. */
int32_t tn_graph_plan(tn_graph *graph, tn_error *err);
/* graph.c: parameters and buffers at their start. */
int32_t tn_graph_initialise(tn_graph *graph, tn_error *err);

/* run.c: into how many pieces a node's call falls at batch n, their extent, and the axis's whole extent. */
int64_t tn_node_pieces(const node *n, int64_t batch, int64_t *ret_extent, int64_t *ret_total);

#endif
