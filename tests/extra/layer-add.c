/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of the graph: y = x0 + x1, a layer of two inputs.
 */
#include <tenon/sdk.h>
#include <tenon/tangent.h>

TN_DECLARE(add, TN_NO_HYPER)

static int32_t add_infer(const void *hyper, const tn_tensor *x, int32_t inputs, const tn_layer_planner *planner,
                         tn_error *err)
{
    (void)hyper;
    if (inputs != 2 || x[0].ndim != x[1].ndim)
        return tn_fail(err, TN_E_INVALID, "add takes two inputs of one shape");
    return planner->output(planner->host, x[0].ndim, x[0].shape);
}

static void add_forward(const tn_layer_call *call)
{
    const tn_real *a = (const tn_real *)call->x[0].data, *b = (const tn_real *)call->x[1].data;
    tn_real *y = (tn_real *)call->y->data;
    for (int64_t i = call->lo; i < call->lo + call->n; i++)
        y[i] = a[i] + b[i];
}

static void add_backward(const tn_layer_call *call)
{
    const tn_real *dy = (const tn_real *)call->dy->data;
    for (int k = 0; k < 2; k++)
        if (call->dx[k].data)
            memcpy((tn_real *)call->dx[k].data + call->lo, dy + call->lo, (size_t)call->n * sizeof *dy);
}

static void add_tangent_forward(const tn_tangent_call *along)
{
    const tn_real *a = (const tn_real *)along->x[0].data, *b = (const tn_real *)along->x[1].data;
    tn_real *y = (tn_real *)along->y->data;
    for (int64_t i = along->call->lo; i < along->call->lo + along->call->n; i++)
        y[i] = (a ? a[i] : 0) + (b ? b[i] : 0);
}

static void add_tangent_backward(const tn_tangent_call *along)
{
    tn_layer_call call = *along->call;
    call.dy = along->dy;
    call.dx = along->dx;
    add_backward(&call);
}

static const tn_layer_tangents add_tangents = {sizeof(tn_layer_tangents), 0, add_tangent_forward, add_tangent_backward};

static const tn_layer add_table = {.struct_size = sizeof(tn_layer),
                                   .infer = add_infer,
                                   .forward = add_forward,
                                   .backward = add_backward,
                                   .tangents = &add_tangents};
TN_COMPONENT(add, "layer", TN_LAYER, TN_REAL, TN_NO_HYPER, "Sum of two inputs",
             TN_FACT("axis", "\"elements\"") TN_FACT("keeps", "\"none\""), add_table);
TN_PLUGIN("org.tenon.test.add", "0.1.0", "Apache-2.0", add)
