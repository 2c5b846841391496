/* SPDX-License-Identifier: Apache-2.0
 *
 * pipeline.h: executes a stage's steps: the actions that its strategy planned and the transfers that follow from them.
 */
#ifndef TENON_HOST_PARALLEL_PIPELINE_H
#define TENON_HOST_PARALLEL_PIPELINE_H

#include "host/graph/stage.h"

typedef struct tn_pipeline tn_pipeline;

typedef struct tn_pipeline_options {
    tn_graph *graph;             /* made for `parallel` with as many sets; must outlive it */
    const tn_parallel *parallel; /* of a mesh with pipeline > 1; must outlive it */
    void *user;
    /* Puts a micro-batch where the graph's input (`x`, NULL on all stages but the first) and targets (`target`, NULL on
     * all but the last) are. */
    int32_t (*load)(void *user, int32_t micro_batch, void *x, void *target, tn_error *err);
    /* Action 'U'; NULL: nothing. */
    int32_t (*update)(void *user, tn_error *err);
} tn_pipeline_options;

/* [main] */
int32_t tn_pipeline_create(const tn_pipeline_options *options, tn_pipeline **ret, tn_error *err);
/* Accepts NULL. */
void tn_pipeline_destroy(tn_pipeline *pipeline);

/* One window. n: samples of each micro-batch, the same on all stages. `run` is as for one process: its n, micro are set
 * here; without TN_ACCUMULATE the first backward sets the gradients and the others add. sums: on every stage the
 * window's are added, exact. Every stage calls it; any failure is final for the groups. Allocates nothing after the
 * first window. [main] */
int32_t tn_pipeline_run(tn_pipeline *pipeline, const tn_graph_run *run, const int64_t *n, tn_exact sums[TN_SUMS_MAX],
                        tn_error *err);
/* The actions of the last window in the order in which they were executed; lives as long as the pipeline. */
int64_t tn_pipeline_executed(const tn_pipeline *pipeline, const tn_action **ret);

#endif
