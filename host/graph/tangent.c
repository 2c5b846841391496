/* SPDX-License-Identifier: Apache-2.0
 *
 * tangent.c: products with the Hessian, by derivatives along a direction (Pearlmutter 1994). One pass forward carries
 * y and y~, one backward dy and dy~; of the parameters' gradients only g~ is computed. All of them have an arena of
 * their own in which nothing is shared, so a product leaves what the last run left.
 */
#include <string.h>

#include "host/base/error.h"
#include "host/base/memory.h"
#include "host/base/take.h"
#include "host/graph/internal.h"

#include <tenon/tangent.h>

/* A quantity and its derivative along the direction. */
typedef struct {
    tn_tensor at, along;
} dual;

/* Struct of arrays, since calls take arrays of tensors. */
typedef struct {
    tn_layer_tangents table;
    owned_tensor output; /* its extents are those of the batch at hand, for every tensor of this output */
    dual y, dy;
    tn_tensor x[MAX_PORTS], x_along[MAX_PORTS], dx[MAX_PORTS], dx_along[MAX_PORTS], parameter[MAX_PORTS],
        direction[MAX_PORTS], gradient[MAX_PORTS], saved[MAX_PORTS];
    int32_t added[MAX_PORTS]; /* 1: dx is added to the source's dy after the call */
} tangent_node;

struct tn_tangents {
    tangent_node *nodes;
    unsigned char *arena;
    int64_t extras; /* where gradients lie that are yet to be added, node after node */
    owned_tensor target;
    double sums[PIECES_MAX][TN_SUMS_MAX]; /* of the loss; nobody reads them */
};

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* ---- places ---- */

static tn_tensor with_data(const tn_tensor *tensor, void *data)
{
    tn_tensor ret = *tensor;
    ret.data = data;
    return ret;
}

/* The next `bytes` behind *at. */
static void *take(unsigned char *arena, int64_t *at, int64_t bytes)
{
    void *ret = arena ? arena + *at : NULL;
    *at += round_up(bytes, 64);
    return ret;
}

static void lay_node(tn_graph *graph, tn_tangents *t, int32_t i, int64_t *at)
{
    const node *n = &graph->nodes[i];
    tangent_node *own = &t->nodes[i];
    int64_t bytes = tn_tensor_bytes(&own->output.view);
    own->y.at = with_data(&own->output.view, i ? take(t->arena, at, bytes) : graph->input);
    own->y.along = own->dy.at = own->dy.along = own->output.view;
    if (n->needs_gradient) {
        own->y.along.data = take(t->arena, at, bytes);
        own->dy.at.data = take(t->arena, at, bytes);
        own->dy.along.data = take(t->arena, at, bytes);
    }
    for (int32_t k = 0; k < n->saved_count; k++)
        own->saved[k] = with_data(&n->saved[k].view, take(t->arena, at, tn_tensor_bytes(&n->saved[k].view)));
}

/* The backward that runs first writes the gradient of an output, each other one beside it: as in plan.c. */
static int32_t is_added(const tn_graph *graph, int32_t i, int32_t k)
{
    const node *n = &graph->nodes[i], *source = &graph->nodes[n->input[k]];
    for (int32_t e = 0; e < k; e++)
        if (n->input[e] == n->input[k])
            return source->needs_gradient;
    return source->needs_gradient && source->last_consumer != i;
}

/* Inputs and their gradients are the sources' tensors. Returns where this node's extras end. */
static int64_t wire_inputs(const tn_graph *graph, tn_tangents *t, int32_t i)
{
    const node *n = &graph->nodes[i];
    tangent_node *own = &t->nodes[i];
    int64_t at = t->extras;
    for (int32_t k = 0; k < n->input_count; k++) {
        const tangent_node *source = &t->nodes[n->input[k]];
        own->x[k] = source->y.at;
        own->x_along[k] = source->y.along;
        own->dx[k] = source->dy.at;
        own->dx_along[k] = source->dy.along;
        if (!(own->added[k] = is_added(graph, i, k)))
            continue;
        int64_t bytes = tn_tensor_bytes(&source->output.view);
        own->dx[k].data = take(t->arena, &at, bytes);
        own->dx_along[k].data = take(t->arena, &at, bytes);
    }
    return at;
}

/* Without an arena yet this counts; the size is returned. */
static int64_t lay(tn_graph *graph, tn_tangents *t)
{
    int64_t at = 0, end;
    for (int32_t i = 0; i < graph->node_count; i++)
        lay_node(graph, t, i, &at);
    t->extras = end = at;
    for (int32_t i = 1; i < graph->node_count; i++)
        end = larger(end, wire_inputs(graph, t, i));
    return end;
}

static void own_shape(owned_tensor *to, const owned_tensor *from)
{
    *to = *from;
    to->view.shape = to->shape;
    to->view.strides = to->strides;
}

static void shape_node(const tn_graph *graph, tn_tangents *t, int32_t i)
{
    const node *n = &graph->nodes[i];
    tangent_node *own = &t->nodes[i];
    own_shape(&own->output, &n->output);
    own->output.shape[0] = graph->options.batch;
    if (n->table.tangents)
        tn_take(&own->table, sizeof own->table, n->table.tangents);
    for (int32_t k = 0; k < n->parameter_count; k++)
        own->parameter[k] = own->direction[k] = own->gradient[k] = n->param[k];
}

static int32_t plan_tangents(tn_graph *graph, tn_tangents *t, tn_error *err)
{
    t->nodes = tn_alloc((size_t)graph->node_count, sizeof *t->nodes);
    if (!t->nodes)
        return tn_error_set(err, TN_E_MEMORY, "no memory for the graph's tangents");
    for (int32_t i = 0; i < graph->node_count; i++)
        shape_node(graph, t, i);
    own_shape(&t->target, &graph->target_tensor);
    int64_t bytes = lay(graph, t);
    t->arena = tn_alloc_aligned((size_t)bytes + 64);
    if (!t->arena)
        return tn_error_set(err, TN_E_MEMORY, "no memory for %lld bytes of tangents; a smaller batch needs less",
                            (long long)bytes);
    lay(graph, t);
    return TN_OK;
}

/* ---- what is offered ---- */

static int32_t check_node(const tn_graph *graph, const node *n, tn_error *err)
{
    tn_layer_tangents table = {0};
    if (n->rounds.count && tn_comm_size(graph->options.data) > 1)
        return tn_error_set(err, TN_E_UNSUPPORTED,
                            "%s (%s): Hessian products through sums over processes are not driven yet; use another "
                            "normalizer, such as layernorm",
                            n->name, n->instance->info->name);
    if (!n->needs_gradient)
        return TN_OK;
    if (!n->table.tangents)
        return tn_error_set(err, TN_E_UNSUPPORTED,
                            "%s (%s): offers no tangents, which Hessian products need; use another layer, or an update "
                            "rule without such products",
                            n->name, n->instance->info->name);
    tn_take(&table, sizeof table, n->table.tangents);
    if (!table.forward || !table.backward)
        return tn_error_set(err, TN_E_PLUGIN, "%s (%s): its tangents lack forward or backward; correct the plugin",
                            n->name, n->instance->info->name);
    return TN_OK;
}

static int32_t check_offers(const tn_graph *graph, tn_error *err)
{
    int32_t status = TN_OK;
    if (!graph->loss.curvature)
        return tn_error_set(err, TN_E_UNSUPPORTED,
                            "loss %s: offers no curvature, which Hessian products need; use an update rule without "
                            "such products",
                            graph->options.loss->info->name);
    if (graph->options.storage.table)
        return tn_error_set(err, TN_E_UNSUPPORTED,
                            "Hessian products of activations stored in another type are not driven yet; use precision "
                            "f32 or f64");
    for (int32_t i = 1; i < graph->node_count && status == TN_OK; i++)
        status = check_node(graph, &graph->nodes[i], err);
    return status;
}

int32_t tn_graph_offers_tangents(tn_graph *graph, tn_error *err)
{
    if (graph->tangents)
        return TN_OK;
    int32_t status = check_offers(graph, err);
    if (status == TN_OK && graph->options.parallel &&
        graph->options.parallel->mesh.tensor * graph->options.parallel->mesh.pipeline > 1)
        status = tn_error_set(err, TN_E_UNSUPPORTED,
                              "products with the Hessian need the whole model in each process; the mesh's `tensor` is "
                              "%d, `pipeline` %d",
                              graph->options.parallel->mesh.tensor, graph->options.parallel->mesh.pipeline);
    if (status != TN_OK)
        return status;
    tn_tangents *t = tn_alloc(1, sizeof *t);
    if (!t)
        return tn_error_set(err, TN_E_MEMORY, "no memory for the graph's tangents");
    status = plan_tangents(graph, t, err);
    if (status != TN_OK)
        tn_tangents_free(t);
    else
        graph->tangents = t;
    return status;
}

void tn_tangents_free(tn_tangents *tangents)
{
    if (!tangents)
        return;
    tn_free(tangents->nodes);
    tn_free(tangents->arena);
    tn_free(tangents);
}

/* ---- one node ---- */

/* A call on this node's own tensors. */
static void prepare(tn_graph *graph, int32_t i, const tn_graph_run *run, uint32_t flags, execution *ret)
{
    tangent_node *own = &graph->tangents->nodes[i];
    tn_node_prepare(graph, &graph->nodes[i], run, FIRST, (run->flags & TN_TRAIN) | TN_FREEZE | flags, ret);
    ret->call.x = own->x;
    ret->call.y = &own->y.at;
    ret->call.dy = &own->dy.at;
    ret->call.dx = own->dx;
    ret->call.parameter = own->parameter;
    ret->call.gradient = own->gradient;
    ret->call.saved = own->saved;
    ret->arg = own;
}

static tn_tangent_call along(const tangent_node *own, const tn_layer_call *call)
{
    return (tn_tangent_call){.struct_size = sizeof(tn_tangent_call),
                             .call = call,
                             .x = own->x_along,
                             .parameter = own->direction,
                             .y = &own->y.along,
                             .dy = &own->dy.along,
                             .dx = own->dx_along,
                             .gradient = call->gradient};
}

static void visit_forward(const execution *e, const tn_layer_call *piece)
{
    const tangent_node *own = e->arg;
    e->node->table.forward(piece);
    if (!e->node->needs_gradient)
        return;
    const tn_tangent_call call = along(own, piece);
    own->table.forward(&call);
}

/* dx first, without the parameters' gradients; then dx~ and theirs. */
static void visit_backward(const execution *e, const tn_layer_call *piece)
{
    const tangent_node *own = e->arg;
    tn_tensor dx[MAX_PORTS], gradient[MAX_PORTS];
    tn_layer_call plain = *piece;
    tn_tangent_call call = along(own, &plain);
    for (int32_t k = 0; k < e->node->input_count; k++)
        dx[k] = with_data(&own->dx[k], NULL);
    for (int32_t k = 0; k < e->node->parameter_count; k++)
        gradient[k] = with_data(&own->gradient[k], NULL);
    plain.gradient = gradient;
    plain.flags &= ~(TN_WANT_DW | TN_ACCUMULATE);
    if (plain.flags & TN_WANT_DX)
        e->node->table.backward(&plain);
    plain.dx = dx;
    plain.flags = piece->flags;
    own->table.backward(&call);
}

static void backward_node(tn_graph *graph, int32_t i, const tn_graph_run *run)
{
    const node *n = &graph->nodes[i];
    tangent_node *own = &graph->tangents->nodes[i];
    uint32_t flags = (run->flags & TN_ACCUMULATE) | (n->parameter_count ? TN_WANT_DW : 0);
    execution e;
    for (int32_t k = 0; k < n->input_count; k++)
        flags |= own->dx[k].data ? TN_WANT_DX : 0;
    prepare(graph, i, run, flags, &e);
    e.visit = visit_backward;
    e.partial = n->axis == AXIS_ROWS && n->parameter_count > 0;
    tn_node_run(&e);
    if (e.partial)
        tn_node_sum_partials(&e, own->gradient);
    for (int32_t k = 0; k < n->input_count; k++) {
        const tangent_node *source = &graph->tangents->nodes[n->input[k]];
        int64_t elements = tn_tensor_elements(&source->y.at);
        if (!own->added[k])
            continue;
        tn_add(graph, source->dy.at.data, own->dx[k].data, elements);
        tn_add(graph, source->dy.along.data, own->dx_along[k].data, elements);
    }
}

/* ---- the loss ---- */

typedef struct {
    tn_graph *graph;
    tn_context context;
    tn_loss_call call;
    int64_t extent;
} loss_execution;

static void loss_piece(void *arg, int64_t index, int32_t thread)
{
    const loss_execution *e = arg;
    tn_tangents *t = e->graph->tangents;
    const tangent_node *output = &t->nodes[e->graph->output];
    tn_loss_call call = e->call;
    (void)thread;
    call.lo = index * e->extent;
    call.n = call.n - call.lo < e->extent ? call.n - call.lo : e->extent;
    call.sums = t->sums[index];
    e->graph->loss.evaluate(&call);
    call.dx = &output->dy.along;
    e->graph->loss.curvature(&call, &output->y.along);
}

static void run_loss(tn_graph *graph, const tn_graph_run *run)
{
    tn_tangents *t = graph->tangents;
    const tangent_node *output = &t->nodes[graph->output];
    int64_t row = larger(1, tn_tensor_elements(&output->y.at) / run->n);
    loss_execution e = {.graph = graph, .context = tn_run_context(graph, graph->loss_key, run)};
    e.extent = larger(ceil_div(PIECE_ELEMENTS, row), ceil_div(run->n, PIECES_MAX));
    e.call = (tn_loss_call){.struct_size = sizeof e.call,
                            .hyper = graph->options.loss->hyper,
                            .context = &e.context,
                            .n = run->n,
                            .x = &output->y.at,
                            .target = &t->target.view,
                            .dx = &output->dy.at,
                            .seed = run->seed};
    tn_pool_run(graph->options.pool, loss_piece, &e, ceil_div(run->n, e.extent));
}

/* ---- the product ---- */

/* Points the parameters, the direction and the result at their arenas, and sets the batch's extent. */
static void aim(tn_graph *graph, const tn_graph_run *run, const void *v, void *ret)
{
    const char *p = run->p ? run->p : graph->parameters.p;
    for (int32_t i = 0; i < graph->node_count; i++) {
        const node *n = &graph->nodes[i];
        tangent_node *own = &graph->tangents->nodes[i];
        own->output.shape[0] = run->n;
        for (int32_t k = 0; k < n->parameter_count; k++) {
            int64_t at = graph->parameters.at[n->parameter + k] * real_bytes(graph);
            own->parameter[k].data = (void *)(p + at);
            own->direction[k].data = (char *)v + at;
            own->gradient[k].data = (char *)ret + at;
        }
    }
    graph->tangents->target.shape[0] = run->n;
}

int32_t tn_graph_product(tn_graph *graph, const tn_graph_run *run, const void *v, void *ret, tn_error *err)
{
    if (run->sampled)
        return tn_error_set(err, TN_E_UNSUPPORTED, "Hessian products under drawn targets are not driven yet");
    int32_t status = tn_graph_offers_tangents(graph, err);
    if (status == TN_OK)
        status = tn_graph_check(graph, run->n, run->flags, err);
    if (status != TN_OK)
        return status;
    aim(graph, run, v, ret);
    graph->compute_host.failed = TN_OK;
    for (int32_t i = 1; i < graph->node_count; i++) {
        execution e;
        prepare(graph, i, run, 0, &e);
        e.call.dy = e.call.dx = e.call.gradient = NULL; /* of backward */
        e.visit = visit_forward;
        tn_node_run(&e);
    }
    run_loss(graph, run);
    for (int32_t i = graph->node_count - 1; i > 0; i--)
        if (graph->nodes[i].needs_gradient)
            backward_node(graph, i, run);
    return tn_graph_end(graph, TN_OK, err);
}
