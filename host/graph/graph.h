/* SPDX-License-Identifier: Apache-2.0
 *
 * graph.h: layers -> a static graph: shapes, lifetimes, one arena, parameters. A step then runs tables and buffers only
 * and allocates nothing.
 */
#ifndef TENON_HOST_GRAPH_GRAPH_H
#define TENON_HOST_GRAPH_GRAPH_H

#include <tenon/backend.h>
#include <tenon/layer.h>
#include <tenon/loss.h>

#include "host/base/exact.h"
#include "host/base/pool.h"
#include "host/base/text.h"
#include "host/experiment/instance.h"
#include "host/parallel/parallel.h"
#include "host/update/chain.h"
#include "host/update/parameters.h"

typedef struct tn_graph tn_graph;

#define TN_SUMS_MAX 16 /* loss, count and metrics */

typedef struct tn_graph_options {
    tn_registry *registry;
    tn_instance *model; /* borrowed, as all here; must outlive the graph */
    tn_instance *loss;
    uint32_t real;        /* 32 or 64 */
    int64_t batch;        /* the largest batch that will be run */
    int32_t ndim;         /* of one sample */
    const int64_t *shape; /* of one sample */
    int64_t classes;      /* targets are int32 classes; 0: real targets of target_shape */
    int32_t target_ndim;
    const int64_t *target_shape;
    const tn_backend *backend;
    tn_pool *pool;
    const tn_services *services;
    uint64_t seed;
    const tn_instance *recompute; /* a policy; NULL: every activation that backward reads is kept */
    tn_comm *data;                /* processes that share a batch, for layers with rounds; NULL: one */
    tn_codec_use storage;  /* what outputs, their gradients and parameter gradients are rounded to; or no table */
    int32_t micro_batches; /* activations of so many are held at a time, for pipelines; 0: one */
    /* The mesh that this process is a place of: the graph is then this stage's and this part's of the model (divide.h).
     * All processes of the world create theirs together. NULL: the whole model. */
    const tn_parallel *parallel;
} tn_graph_options;

/* Loads the layers and the loss, infers all shapes, plans memory, allocates it and sets the initial parameters.
 * Errors name the node. [main] */
int32_t tn_graph_create(const tn_graph_options *options, tn_graph **ret, tn_error *err);
/* Accepts NULL. */
void tn_graph_destroy(tn_graph *graph);

/* The parameters with arenas p and g; present[] is 1 for all. Lives as long as the graph. */
tn_parameters *tn_graph_parameters(tn_graph *graph);

/* Where the caller puts a batch: x [batch, shape] in the real type, targets int32 or real. */
void *tn_graph_input(tn_graph *graph);
void *tn_graph_target(tn_graph *graph);

#define TN_VIEW_TRAIN 0
#define TN_VIEW_EVAL  1

/* A layer that offers taps, as its backward is about to run: x and dy as [n, ...], dy being `seed` times each sample's
 * gradient. On the calling thread. */
typedef void (*tn_graph_tap)(void *user, int64_t weight, const tn_tensor *x, const tn_tensor *dy, double seed);

typedef struct tn_graph_run {
    int64_t n; /* samples at hand in input and target, 1..batch */
    uint32_t
        flags; /* TN_TRAIN: batch statistics, dropout and backward; TN_ACCUMULATE: add to the gradients; TN_FREEZE */
    int64_t attempt; /* for random numbers: the same attempt and micro draw the same */
    int64_t micro;   /* which micro-batch of the window */
    int64_t update;
    double seed;          /* factor on the gradient of the loss's sum */
    const void *p;        /* parameters to use: NULL for the graph's own, or an arena of the same layout */
    int32_t view;         /* whose buffers: TN_VIEW_TRAIN, TN_VIEW_EVAL */
    int32_t forward_only; /* 1: under TN_TRAIN no loss and no backward */
    int64_t refresh;      /* as in tn_layer_call: k > 0 for the k-th batch of a refresh */
    int32_t sampled;      /* 1: targets drawn from the model's distribution, for this run only; not added to `sums` */
    int32_t no_gradient;  /* 1: backward leaves the parameters' gradients alone: for taps */
    tn_graph_tap tap;     /* NULL: none */
    void *user;
} tn_graph_run;

/* Would a batch of n samples be accepted? Layers may refuse some for training: batch statistics need two values.
 * `flags` as in tn_graph_run. [main] */
int32_t tn_graph_check(tn_graph *graph, int64_t n, uint32_t flags, tn_error *err);

/* Forward and loss, with TN_TRAIN backward too. Adds the loss's sums (TN_SUM_*) into `sums`. [main] */
int32_t tn_graph_run_batch(tn_graph *graph, const tn_graph_run *run, tn_exact sums[TN_SUMS_MAX], tn_error *err);
/* The output of the last run: [n, ...] of the planned shape; row-major, real type. */
const tn_tensor *tn_graph_output(const tn_graph *graph);

/* The derivative along `v` (an arena in the parameters' layout) of the gradient of the loss's sum times run->seed, for
 * the batch at hand and run's random numbers, statistics frozen: set, or added to under TN_ACCUMULATE, in `ret`, a like
 * arena. g keeps its content. Refused by tn_graph_offers_tangents. [main] */
int32_t tn_graph_product(tn_graph *graph, const tn_graph_run *run, const void *v, void *ret, tn_error *err);
/* TN_OK, or TN_E_UNSUPPORTED naming a layer, or the loss, that offers no tangents. Plans and allocates what products
 * need; call it before the first. [main] */
int32_t tn_graph_offers_tangents(tn_graph *graph, tn_error *err);
/* TN_OK if the loss can draw targets, for `sampled`. */
int32_t tn_graph_offers_samples(const tn_graph *graph, tn_error *err);
/* Sets the eval view's buffers to those of training. */
void tn_graph_copy_buffers(tn_graph *graph);

/* Names of the metrics after loss and count; the count of names is returned. */
size_t tn_graph_metrics(const tn_graph *graph, const char *const **ret);

/* State of layers, for checkpoints. */
typedef struct tn_graph_buffer {
    const char *name; /* "hidden.0.norm.running_mean" */
    tn_tensor tensor; /* of the training view */
    tn_tensor eval;   /* of the eval view */
} tn_graph_buffer;
size_t tn_graph_buffers(const tn_graph *graph, const tn_graph_buffer **ret);

/* Memory by part, in bytes. */
typedef struct tn_graph_memory {
    int64_t parameters, gradients, buffers, input, activations, partials, workspace;
    int64_t activations_unshared; /* what the activations would take without reuse */
} tn_graph_memory;
tn_graph_memory tn_graph_memory_of(const tn_graph *graph);
/* A line a node: name, component, output shape, parameters. */
void tn_graph_describe(const tn_graph *graph, tn_text *text);

#endif
