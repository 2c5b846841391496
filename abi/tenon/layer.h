/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/layer.h: a differentiable function with parameters. Interface "tenon.layer/0.2", behind the kinds layer,
 * normalizer, activation and regularizer.
 *
 * The first extent of every input and output is the batch: dynamic, up to the maximum that the host planned.
 *
 * Facts in the note's JSON text:
 *   axis      how the host cuts a call into pieces:
 *             "rows"      runs of the leading extent; parameter gradients then come as one partial a piece
 *             "elements"  runs of the flattened tensor, each beginning at a multiple of 64; input, output and saved
 *                         tensors have the same shape
 *             "columns"   runs of the last extent
 *             "whole"     one call, which may use the host's tn_compute
 *   keeps     what backward reads besides saved tensors: "input", "output", "both", "none"
 *   in_place  true: y may be x, and dx may be dy
 *   split     forms in which processes can share a layer, each running it on its part (tensor parallelism): a list of
 *             {name, parameters, x, y, rows}. parameters: along which axis each is cut; null: it only adds to y, whole
 *             on every process and lent as zeros to all but the first. x, y: "whole"; "last", a part of the last
 *             extent; y may be "partial": the sum over the processes. rows: the hyper-parameters divided by their count
 *   tap       "linear": y = x W^T + b in parameters 0 and 1 (matrix.h)
 *
 * Results must not depend on how the pieces fall, except through the count of partials, which depends on shapes.
 */
#ifndef TENON_LAYER_H
#define TENON_LAYER_H

#include <tenon/backend.h>
#include <tenon/parameter.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TN_LAYER "tenon.layer/0.2"

/* flags of a call */
#define TN_TRAIN      0x1u  /* batch statistics, dropout; else evaluation */
#define TN_ACCUMULATE 0x2u  /* add to the parameter gradients; else set them (they may hold anything, NaN included) */
#define TN_WANT_DX    0x4u  /* backward: the input gradient is wanted */
#define TN_WANT_DW    0x8u  /* backward: the parameter gradients are wanted */
#define TN_FREEZE     0x10u /* under TN_TRAIN: buffers are left alone; a replay, or a second look at the same batch */
#define TN_JOINT      0x20u /* check: the sums of rounds come from more than one process */

/* How a parameter starts. fan is a product of extents: TN_INIT_* names whose. */
#define TN_INIT_CONSTANT    0 /* a */
#define TN_INIT_UNIFORM     1 /* [a, b) */
#define TN_INIT_NORMAL      2 /* mean a, deviation b */
#define TN_INIT_KAIMING     3 /* uniform, bound a * sqrt(3 / fan_in) (He et al. 2015, arXiv:1502.01852) */
#define TN_INIT_XAVIER      4 /* uniform, bound a * sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010) */
#define TN_INIT_FAN_UNIFORM 5 /* uniform, bound a / sqrt(b): b is the fan, for biases */

typedef struct tn_weight {
    uint32_t struct_size;
    int32_t role;     /* TN_ROLE_* */
    const char *name; /* within the layer: "weight", "bias" */
    int32_t ndim;
    int32_t init; /* TN_INIT_* */
    const int64_t *shape;
    double a, b;                       /* of the initial-value rule */
    int32_t fan_in_axis, fan_out_axis; /* -1: none */
} tn_weight;
TN_AT(tn_weight, name, 8);
TN_AT(tn_weight, shape, 24);
TN_SIZE(tn_weight, 56);

/* Of the host, lent to `infer`. Every function copies what it is given; shapes have the planned maximum batch. The
 * order of the calls is the index in tn_layer_call; `output` is called once. A refusal holds: it fails the layer.
 * [load] */
typedef struct tn_layer_planner {
    uint32_t struct_size;
    uint32_t reserved;
    void *host;
    int32_t (*output)(void *host, int32_t ndim, const int64_t *shape);
    int32_t (*parameter)(void *host, const tn_weight *weight);
    /* State that training updates and evaluation reads, kept in the real type per view: running statistics. */
    int32_t (*buffer)(void *host, const char *name, int32_t ndim, const int64_t *shape, double initial);
    /* A tensor that forward leaves for backward. dtype.bits 0 means the real type. */
    int32_t (*saved)(void *host, tn_dtype dtype, int32_t ndim, const int64_t *shape);
    /* Scratch of each piece, in bytes; 64-byte aligned, its content arbitrary. The largest call counts. */
    int32_t (*workspace)(void *host, int64_t bytes);
} tn_layer_planner;
TN_SIZE(tn_layer_planner, 56);

/* One piece of a forward or backward call. Tensors are whole, in the real type, contiguous; the piece is
 * [lo, lo + n) on the declared axis (elements count elements). x, y, dx and dy have the batch at hand as their first
 * extent, saved tensors the planned one. Read-only: x, parameter, dy, and in backward y, saved and buffers. Buffers
 * change in forward under TN_TRAIN without TN_FREEZE only. Nothing overlaps but y and x, dx and dy where in_place
 * allows it. */
typedef struct tn_layer_call {
    uint32_t struct_size;
    uint32_t flags;
    const void *hyper;
    const tn_context *context;
    const tn_compute *compute; /* whole axis only, else NULL */
    int64_t lo, n;
    int32_t piece, pieces; /* which of how many */
    const tn_tensor *x;    /* inputs; data NULL in backward unless kept */
    const tn_tensor *y;    /* the output; data NULL in backward unless kept */
    const tn_tensor *dy;   /* backward */
    const tn_tensor *dx;   /* backward; data NULL: that input needs none */
    const tn_tensor *parameter;
    const tn_tensor *gradient; /* rows axis: this piece's partials, to be set; else see TN_ACCUMULATE */
    const tn_tensor *buffer;
    const tn_tensor *saved;
    void *workspace;
    const double *sums; /* of the rounds so far (normalizer.h); NULL: no rounds */
    int64_t refresh;    /* k > 0: the k-th batch since buffers were reset: they become the mean over k batches */
} tn_layer_call;
TN_AT(tn_layer_call, hyper, 8);
TN_AT(tn_layer_call, lo, 32);
TN_AT(tn_layer_call, piece, 48);
TN_AT(tn_layer_call, x, 56);
TN_AT(tn_layer_call, gradient, 96);
TN_AT(tn_layer_call, workspace, 120);
TN_SIZE(tn_layer_call, 144);

struct tn_layer_rounds;
struct tn_layer_tangents;

typedef struct tn_layer {
    uint32_t struct_size;
    uint32_t reserved;
    /* From hyper-parameters and input shapes (tensors without data) to everything the host must provide. Refuses
     * shapes that do not fit, naming them. NULL is refused, here and below, unless said otherwise. [load] */
    int32_t (*infer)(const void *hyper, const tn_tensor *x, int32_t inputs, const tn_layer_planner *planner,
                     tn_error *err);
    void (*forward)(const tn_layer_call *call);  /* [piece] */
    void (*backward)(const tn_layer_call *call); /* [piece] */
    /* May a batch of these shapes (x without data) be run? E.g. batch-norm refuses to train on one value a channel.
     * NULL: always. [main] */
    int32_t (*check)(const void *hyper, const tn_tensor *x, uint32_t flags, tn_error *err);
    const struct tn_layer_rounds *rounds;     /* sums over all processes (normalizer.h); NULL: none */
    const struct tn_layer_tangents *tangents; /* tangent.h; NULL: not offered */
} tn_layer;
TN_AT(tn_layer, infer, 8);
TN_AT(tn_layer, check, 32);
TN_SIZE(tn_layer, 56);

#ifdef __cplusplus
}
#endif
#endif
