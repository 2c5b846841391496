/* SPDX-License-Identifier: Apache-2.0
 *
 * pipeline.c: the executor. It decides nothing: order, peers and sets come with the steps (timetable.c).
 */
#include "host/parallel/pipeline.h"

#include <string.h>

#include "host/base/error.h"
#include "host/base/memory.h"

struct tn_pipeline {
    tn_pipeline_options options;
    tn_action *executed;
    int64_t count;
    int32_t stage, last;
    int32_t backwards; /* of this window */
};

int32_t tn_pipeline_create(const tn_pipeline_options *options, tn_pipeline **ret, tn_error *err)
{
    const tn_parallel *parallel = options->parallel;
    if (!parallel->timetable)
        return tn_error_set(err, TN_E_INVALID, "a pipeline over a mesh whose `pipeline` is 1; needed at least 2");
    tn_pipeline *p = tn_alloc(1, sizeof *p);
    if (p)
        p->executed = tn_alloc((size_t)parallel->step_count, sizeof *p->executed);
    if (!p || !p->executed) {
        tn_free(p);
        return tn_error_set(err, TN_E_MEMORY, "no memory for the pipeline");
    }
    p->options = *options;
    p->stage = parallel->place[TN_MESH_PIPELINE];
    p->last = parallel->mesh.pipeline - 1;
    *ret = p;
    return TN_OK;
}

void tn_pipeline_destroy(tn_pipeline *pipeline)
{
    if (!pipeline)
        return;
    tn_free(pipeline->executed);
    tn_free(pipeline);
}

int64_t tn_pipeline_executed(const tn_pipeline *pipeline, const tn_action **ret)
{
    *ret = pipeline->executed;
    return pipeline->count;
}

/* ---- steps ---- */

static int32_t transfer(tn_pipeline *p, const tn_pipeline_step *step, int64_t n, tn_error *err)
{
    tn_comm *group = p->options.parallel->group[TN_MESH_PIPELINE];
    const tn_stage_ends ends = tn_graph_ends(p->options.graph);
    int32_t at_input = (step->what == 'F') == (step->what_kind == TN_DO_RECEIVE);
    void *data = at_input            ? step->what == 'F' ? ends.input : ends.input_gradient
                 : step->what == 'F' ? ends.output
                                     : ends.output_gradient;
    int64_t bytes = n * (at_input ? ends.input_bytes : ends.output_bytes);
    if (!data)
        return TN_OK; /* nothing before it has parameters: no gradient, on both sides */
    int32_t status = step->what_kind == TN_DO_SEND ? tn_comm_send(group, data, bytes, step->peer, err)
                                                   : tn_comm_receive(group, data, bytes, step->peer, err);
    return status == TN_OK ? status
                           : tn_error_wrap(err, status, "stage %d, %s of micro-batch %d %s stage %d", p->stage,
                                           step->what == 'F' ? "activations" : "gradients", step->micro_batch,
                                           step->what_kind == TN_DO_SEND ? "to" : "from", step->peer);
}

static int32_t load(tn_pipeline *p, int32_t micro_batch, tn_error *err)
{
    tn_graph *graph = p->options.graph;
    void *x = p->stage == 0 ? tn_graph_input(graph) : NULL,
         *target = p->stage == p->last ? tn_graph_target(graph) : NULL;
    return x || target ? p->options.load(p->options.user, micro_batch, x, target, err) : TN_OK;
}

static int32_t act(tn_pipeline *p, const tn_pipeline_step *step, const tn_graph_run *window, int64_t n, tn_exact *sums,
                   tn_error *err)
{
    tn_graph_run run = *window;
    int32_t status = TN_OK;
    run.n = n;
    run.micro = step->micro_batch;
    switch (step->what) {
    case 'F':
        status = load(p, step->micro_batch, err);
        return status == TN_OK ? tn_graph_run_forward(p->options.graph, &run, sums, err) : status;
    case 'B':
        run.flags |= p->backwards++ > 0 ? TN_ACCUMULATE : 0;
        return tn_graph_run_backward(p->options.graph, &run, err);
    default:
        return p->options.update ? p->options.update(p->options.user, err) : TN_OK;
    }
}

static int32_t one_step(tn_pipeline *p, const tn_pipeline_step *step, const tn_graph_run *window, const int64_t *n,
                        tn_exact *sums, tn_error *err)
{
    int64_t samples = step->what == 'U' ? 0 : n[step->micro_batch];
    if (step->set >= 0)
        tn_graph_choose_set(p->options.graph, step->set);
    if (step->what_kind != TN_DO_ACTION)
        return transfer(p, step, samples, err);
    int32_t status = act(p, step, window, samples, sums, err);
    if (status != TN_OK)
        return tn_error_wrap(err, status, "stage %d, action %c of micro-batch %d", p->stage, step->what,
                             step->micro_batch);
    p->executed[p->count++] = (tn_action){p->stage, step->what, step->micro_batch, 0};
    return TN_OK;
}

int32_t tn_pipeline_run(tn_pipeline *pipeline, const tn_graph_run *run, const int64_t *n, tn_exact sums[TN_SUMS_MAX],
                        tn_error *err)
{
    const tn_parallel *parallel = pipeline->options.parallel;
    tn_exact own[TN_SUMS_MAX];
    int32_t status = TN_OK;
    memset(own, 0, sizeof own);
    pipeline->count = 0;
    pipeline->backwards = 0;
    for (int64_t i = 0; i < parallel->step_count && status == TN_OK; i++)
        status = one_step(pipeline, &parallel->steps[i], run, n, own, err);
    if (status == TN_OK)
        status = tn_comm_sum_exact(parallel->group[TN_MESH_PIPELINE], own, TN_SUMS_MAX, err);
    for (size_t i = 0; i < TN_SUMS_MAX && status == TN_OK; i++)
        tn_exact_merge(&sums[i], &own[i]);
    return status;
}
