/* SPDX-License-Identifier: Apache-2.0
 *
 * internal.h: the graph's own structs. build.c fills nodes; divide.c and shard.c leave this process's part of them;
 * steps.c lists the steps of a batch, replays included; plan.c gives every tensor its place; graph.c sets the values at
 * the start; run.c executes the steps, each through call.c (a node's call, in pieces, with its rounds), loss.c and
 * storage.c. Nobody else includes it.
 */
#ifndef TENON_HOST_GRAPH_INTERNAL_H
#define TENON_HOST_GRAPH_INTERNAL_H

#include "host/base/compute.h"
#include "host/graph/graph.h"
#include "host/parallel/placement.h"

#include <tenon/normalizer.h>

#define MAX_PORTS      8  /* inputs, parameters, buffers or saved tensors of one node */
#define PIECES_MAX     64 /* of a "rows" node: each has a partial of the parameter gradients */
#define PIECE_ELEMENTS 8192
/* Larger than any memory, small enough that sums over a graph stay in 63 bits: what lies above is refused. */
#define ELEMENTS_MAX ((int64_t)1 << 40)
#define NODES_MAX    16384

typedef enum { AXIS_WHOLE, AXIS_ROWS, AXIS_COLUMNS, AXIS_ELEMENTS } node_axis;

/* A tensor with room for its own extents. */
typedef struct {
    tn_tensor view;
    int64_t shape[TN_MAX_DIMS], strides[TN_MAX_DIMS];
} owned_tensor;

/* A step of a batch; its index in tn_graph.steps is the time at which it happens. */
typedef enum { STEP_FORWARD, STEP_LOSS, STEP_REPLAY, STEP_BACKWARD } step_kind;
typedef struct {
    step_kind kind;
    int32_t node;
} step;

/* A place in the activation arena, alive from step `first` to step `last`. */
typedef struct {
    int64_t bytes;
    int32_t first, last; /* first > last: never used */
    int32_t shares;      /* index of the place whose memory it uses; itself unless in place */
    int64_t offset;
} place;

/* What calls see of a node: once in the forward pass, once in replays and backward. The same memory where the node is
 * kept. Extents of the batch are set by run.c. */
enum { FIRST, AGAIN, PASSES };
typedef struct {
    tn_tensor x[MAX_PORTS], out, keep[MAX_PORTS];
} node_pass;

typedef struct {
    char *name;
    tn_instance *instance;
    int32_t owned; /* the instance is this node's own */
    tn_layer table;
    tn_layer_rounds rounds; /* no functions: none */
    node_axis axis;
    int32_t keeps_input, keeps_output, in_place, taps;
    int32_t replayed; /* 1: output and saved tensors end with their last reader of the forward pass */
    uint64_t key, storage_key;

    int32_t input[MAX_PORTS], input_count; /* nodes */
    int32_t consumers, last_consumer;      /* how many inputs read this node's output; the largest such node */
    int32_t needs_gradient;                /* something before it, or itself, has parameters */

    owned_tensor output;
    int32_t parameter, parameter_count; /* first index in the graph's parameters */
    int32_t buffer, buffer_count;
    owned_tensor saved[MAX_PORTS];
    int32_t saved_count;
    int64_t workspace;

    int32_t y[PASSES], saved_place[PASSES][MAX_PORTS], dy; /* places; -1: none */
    int32_t dx_extra[MAX_PORTS];                           /* of a gradient that is added to another's; -1: none */
    int64_t partial_elements;                              /* of one piece's partials, padded; 0: none */
    int64_t sums;       /* where forward's rounds lie in tn_graph.round_sums, kept for replays */
    int64_t sums_count; /* room for each round */

    int32_t elsewhere;                      /* 1: another stage runs it */
    int32_t reduce_y, reduce_dx[MAX_PORTS]; /* 1: all-reduced over the tensor group after the call */
    uint32_t lent_zero;                     /* bit k: parameter k is added by another process, here zeros are */

    node_pass pass[PASSES];
    tn_tensor dx[MAX_PORTS], dout, param[MAX_PORTS], grad[MAX_PORTS], state[2][MAX_PORTS]; /* state: of each view */
} node;

struct tn_graph {
    tn_graph_options options;
    tn_compute_host compute_host;
    tn_compute compute;
    tn_loss loss;
    uint64_t loss_key, sample_key;
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

    int32_t first, last, entry; /* the nodes of this stage; whose output it receives, 0: the batch */
    tn_parameter *wholes;       /* before shards, parallel to parameters.list; NULL: no tensor parallelism */
    void *zeros;                /* see lent_zero */
    int64_t reductions[2];      /* all-reduces so far, forward and backward */

    step *steps; /* forward of all nodes of the stage, the loss if it has it, then replays and backward */
    int32_t step_count, forward_steps; /* forward_steps: without the loss */
    int32_t sets, set;                 /* of activations, batches and sums: how many, which one calls see */
    place *places;
    int32_t place_count;
    unsigned char *arena, *buffer_arena, *partials, *workspace, *stored;
    int64_t arena_bytes, unshared_bytes, partial_bytes; /* arena_bytes: of one set */
    int64_t buffer_bytes;                               /* of one view */
    int64_t workspace_bytes, stored_bytes;              /* a thread */
    double *round_sums;                                 /* forward's of each node, then backward's, which all share */
    int64_t backward_sums;                              /* where those begin */
    int64_t set_sums;                                   /* of one set */
    unsigned char *inputs, *targets;                    /* of all sets */
    void *input, *target, *sampled; /* sampled: targets drawn for one run; NULL: the loss offers none */
    int64_t input_bytes, target_bytes;
    owned_tensor target_tensor;
    owned_tensor *parameter_tensors; /* shapes for calls, parallel to parameters.list */
    double loss_sums[PIECES_MAX][TN_SUMS_MAX];
    struct tn_tangents *tangents; /* of tangent.c; NULL: not asked for yet */
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
/* divide.c: which nodes and parts are this process's; sets first, last and entry. */
int32_t tn_graph_divide(tn_graph *graph, tn_error *err);
/* steps.c: flops of a forward call at the maximum batch, estimated from shapes. */
double tn_node_flops(const tn_graph *graph, const node *n);
/* steps.c: asks the recompute policy and fills `steps`. */
int32_t tn_graph_list_steps(tn_graph *graph, tn_error *err);
/* plan.c: places, arenas. */
int32_t tn_graph_plan(tn_graph *graph, tn_error *err);
/* plan.c: makes calls see another set. */
void tn_graph_use_set(tn_graph *graph, int32_t set);
/* graph.c: parameters and buffers at their start. */
int32_t tn_graph_initialise(tn_graph *graph, tn_error *err);

/* ---- call.c: one call of a node, cut into pieces that depend on shapes only ---- */

/* Into how many pieces a node's call falls at batch n, their extent, and the axis's whole extent. */
int64_t tn_node_pieces(const node *n, int64_t batch, int64_t *ret_extent, int64_t *ret_total);

/* A call about to be made. `call` may be changed before tn_node_run; its pointers must stay valid until then. */
typedef struct execution execution;
struct execution {
    const tn_graph *graph;
    const node *node;
    /* Run for each piece, with the piece's own lo, n, workspace and, with `partial`, gradients. [piece] */
    void (*visit)(const execution *e, const tn_layer_call *piece);
    void *arg; /* of `visit` */
    tn_layer_call call;
    tn_context context;
    int64_t extent, total; /* of a piece; of the axis */
    int32_t partial;       /* 1: parameter gradients go to each piece's partials */
    int32_t replay;        /* 1: rounds were summed in the forward pass */
};

/* The context of a call under a key: each micro-batch of a window draws its own numbers under one attempt. */
tn_context tn_run_context(const tn_graph *graph, uint64_t key, const tn_graph_run *run);
/* Fills *e for a call with what the node sees in `pass` (FIRST, AGAIN). */
void tn_node_prepare(const tn_graph *graph, const node *n, const tn_graph_run *run, int32_t pass, uint32_t flags,
                     execution *ret);
/* Runs all pieces, over the pool where that is worth while. */
void tn_node_run(execution *e);
/* Visits of the layer's own functions. */
void tn_visit_forward(const execution *e, const tn_layer_call *piece);
void tn_visit_backward(const execution *e, const tn_layer_call *piece);
/* Under `partial`: each piece's partials into the tensors `gradient`, in the order of the pieces. */
void tn_node_sum_partials(const execution *e, const tn_tensor *gradient);
/* to += from, n numbers of the real type. */
void tn_add(const tn_graph *graph, void *to, const void *from, int64_t n);
/* The layer's rounds in the direction at hand, summed over options.data; sets e->call.sums. A replay does without: it
 * sees what the forward pass left. */
int32_t tn_node_rounds(execution *e, int32_t backward, tn_error *err);

/* ---- shard.c ---- */

/* Applies placements over the tensor group: each node's part of the shapes, its parameters, where sums are owed. */
int32_t tn_graph_shard(tn_graph *graph, const tn_split *splits, const tn_flow *flows, tn_error *err);
/* Elements of this process's part of parameter `index`, out of a whole of the same type. */
void tn_shard_copy(const tn_graph *graph, int64_t index, const void *whole, void *ret);
/* Sums what is owed after a call: of y in forward, of the input gradients in backward. */
int32_t tn_shard_reduce_forward(tn_graph *graph, const node *n, const tn_tensor *y, tn_error *err);
int32_t tn_shard_reduce_backward(tn_graph *graph, const node *n, tn_error *err);

/* ---- run.c ---- */

/* Steps [from, to) of a run. */
int32_t tn_graph_run_steps(tn_graph *graph, const tn_graph_run *run, int32_t from, int32_t to, tn_exact *sums,
                           tn_error *err);

/* Before a run's first call: checks it, sets the extents of the batch and the parameters that calls see. */
int32_t tn_graph_begin(tn_graph *graph, const tn_graph_run *run, tn_error *err);
/* After its last: `status`, or what went wrong in a matrix product. */
int32_t tn_graph_end(tn_graph *graph, int32_t status, tn_error *err);

/* ---- loss.c ---- */

/* Loads the loss; the graph is planned by now. */
int32_t tn_loss_open(tn_graph *graph, tn_error *err);
/* The loss of the output, and under TN_TRAIN its gradient. Adds to `sums` unless run->sampled. */
void tn_loss_run(tn_graph *graph, const tn_graph_run *run, tn_exact *sums);

/* ---- tangent.c ---- */

typedef struct tn_tangents tn_tangents;
/* Accepts NULL. */
void tn_tangents_free(tn_tangents *tangents);

/* ---- storage.c ---- */

/* Bytes that each thread needs to round through options.storage; 0 without. */
int64_t tn_storage_bytes(const tn_graph_options *options);
/* Rounds a contiguous tensor of the real type to what options.storage can hold. Draws from (key, run, element). */
void tn_storage_round(const tn_graph *graph, uint64_t key, const tn_graph_run *run, const tn_tensor *tensor);

#endif
