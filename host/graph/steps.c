/* SPDX-License-Identifier: Apache-2.0
 *
 * steps.c: the steps of a batch. Forward of all nodes, the loss, then backward, each call preceded by the replays of
 * what it reads and the recompute policy did not keep. A node is replayed at most once.
 */
#include <tenon/recompute.h>

#include "host/base/error.h"
#include "host/base/memory.h"
#include "host/graph/internal.h"

static int32_t no_memory(tn_error *err) { return tn_error_set(err, TN_E_MEMORY, "no memory for the graph's steps"); }

/* ---- the policy ---- */

/* Of forward: two for each weight and row, and one for each element of the output. An estimate: layers do not tell. */
double tn_node_flops(const tn_graph *graph, const node *n)
{
    double elements = (double)tn_tensor_elements(&n->output.view), weights = 0;
    for (int32_t k = 0; k < n->parameter_count; k++)
        if (graph->parameters.list[n->parameter + k].ndim >= 2)
            weights += (double)graph->parameters.list[n->parameter + k].n;
    int64_t columns = n->output.shape[n->output.view.ndim - 1];
    return elements + (columns > 0 ? 2 * weights * elements / (double)columns : 0);
}

static tn_node_cost cost_of(const tn_graph *graph, int32_t i)
{
    const node *n = &graph->nodes[i];
    int64_t bytes = tn_tensor_bytes(&n->output.view);
    for (int32_t s = 0; s < n->saved_count; s++)
        bytes += tn_tensor_bytes(&n->saved[s].view);
    return (tn_node_cost){
        .bytes = bytes, .flops = tn_node_flops(graph, n), .node = i, .replayable = i != graph->output};
}

static int32_t apply_policy(tn_graph *graph, const tn_node_cost *costs, const int32_t *keep, tn_error *err)
{
    const char *policy = graph->options.recompute->info->name;
    for (int32_t i = 1; i < graph->node_count; i++) {
        node *n = &graph->nodes[i];
        if (keep[i - 1] != TN_KEEP && keep[i - 1] != TN_REPLAY)
            return tn_error_set(err, TN_E_PLUGIN, "recompute %s: says %d for %s; needed: 0 (keep) or 1 (replay)",
                                policy, keep[i - 1], n->name);
        n->replayed = keep[i - 1] == TN_REPLAY && !n->elsewhere;
        if (n->replayed && !costs[i - 1].replayable)
            return tn_error_set(err, TN_E_PLUGIN, "recompute %s: replays %s, which is not replayable", policy, n->name);
    }
    return TN_OK;
}

static int32_t run_policy(tn_graph *graph, const tn_recompute *policy, tn_error *err)
{
    const tn_instance *instance = graph->options.recompute;
    int32_t count = graph->node_count - 1, status = TN_OK;
    tn_node_cost *costs = tn_alloc((size_t)count, sizeof *costs);
    int32_t *keep = tn_alloc((size_t)count, sizeof *keep);
    tn_error_clear(err);
    if (!costs || !keep)
        status = no_memory(err);
    for (int32_t i = 0; i < count && status == TN_OK; i++)
        costs[i] = cost_of(graph, i + 1);
    if (status == TN_OK && (status = policy->plan(instance->hyper, costs, count, keep, err)) != TN_OK)
        status = tn_error_wrap(err, status, "recompute %s", instance->info->name);
    if (status == TN_OK)
        status = apply_policy(graph, costs, keep, err);
    tn_free(costs);
    tn_free(keep);
    return status;
}

static int32_t ask_policy(tn_graph *graph, tn_error *err)
{
    const tn_instance *instance = graph->options.recompute;
    tn_recompute policy;
    if (!instance)
        return TN_OK;
    int32_t status = tn_registry_load(graph->options.registry, instance->entry, &policy, sizeof policy, err);
    if (status == TN_OK && !policy.plan)
        status = tn_error_set(err, TN_E_PLUGIN, "recompute %s: its table lacks plan", instance->info->name);
    return status == TN_OK ? run_policy(graph, &policy, err) : status;
}

/* ---- the steps ---- */

enum { MISSING, WANTED, THERE }; /* of a replayed node in backward */

typedef struct {
    tn_graph *graph;
    unsigned char *state;
    int32_t low, high; /* all wanted nodes lie in [low, high] */
} replays;

static void add_step(tn_graph *graph, step_kind kind, int32_t node)
{
    graph->steps[graph->step_count++] = (step){kind, node};
}

static void want(replays *r, int32_t i)
{
    if (!r->graph->nodes[i].replayed || r->state[i] != MISSING)
        return;
    r->state[i] = WANTED;
    r->low = i < r->low ? i : r->low;
    r->high = i > r->high ? i : r->high;
}

/* Replays what is wanted, and before it what that reads, back to the nearest nodes that are there. */
static void replay_wanted(replays *r)
{
    for (int32_t i = r->high; i >= r->low; i--)
        for (int32_t k = 0; r->state[i] == WANTED && k < r->graph->nodes[i].input_count; k++)
            want(r, r->graph->nodes[i].input[k]);
    for (int32_t i = r->low; i <= r->high; i++)
        if (r->state[i] == WANTED) {
            add_step(r->graph, STEP_REPLAY, i);
            r->state[i] = THERE;
        }
}

static void add_backward(tn_graph *graph, unsigned char *state, int32_t i)
{
    const node *n = &graph->nodes[i];
    replays r = {graph, state, graph->node_count, -1};
    if (n->keeps_output || n->saved_count)
        want(&r, i);
    for (int32_t k = 0; k < n->input_count && n->keeps_input; k++)
        want(&r, n->input[k]);
    replay_wanted(&r);
    add_step(graph, STEP_BACKWARD, i);
}

int32_t tn_graph_list_steps(tn_graph *graph, tn_error *err)
{
    int32_t count = graph->node_count, status = ask_policy(graph, err);
    if (status != TN_OK)
        return status;
    unsigned char *state = tn_alloc((size_t)count, 1);
    graph->steps = tn_alloc(3 * (size_t)count, sizeof *graph->steps);
    if (!state || !graph->steps) {
        tn_free(state);
        return no_memory(err);
    }
    for (int32_t i = graph->first; i <= graph->last; i++)
        add_step(graph, STEP_FORWARD, i);
    graph->forward_steps = graph->step_count;
    if (graph->last == graph->output)
        add_step(graph, STEP_LOSS, graph->output);
    for (int32_t i = graph->last; i >= graph->first; i--)
        if (graph->nodes[i].needs_gradient)
            add_backward(graph, state, i);
    tn_free(state);
    return TN_OK;
}
