/* SPDX-License-Identifier: Apache-2.0
 *
 * A learned factor for each feature, small at first, as at the end of a residual branch (LayerScale: Touvron and others
 * 2021, arXiv:2103.17239):  y = gain x
 */
#include <tenon/layers.h>

#define HYPER(X) X(fixed, initial, 0.1, "(-inf, inf)", "what every factor begins with")
TN_DECLARE(my_thing, HYPER)

/* Once, with the largest batch: what the host must provide. The order is the index in tn_layer_call. */
static int32_t my_thing_infer(const void *hyper, const tn_tensor *x, int32_t inputs, const tn_layer_planner *planner,
                              tn_error *err)
{
    int32_t status = tn_one_input("my-thing", x, inputs, 2, err);
    if (status || (status = tn_plan_like(planner, x)))
        return status;
    int64_t features = tn_columns(x);
    double initial = ((const my_thing *)hyper)->initial;
    tn_weight gain = {sizeof gain, TN_ROLE_OTHER, "gain", 1, TN_INIT_CONSTANT, &features, initial, 0, -1, -1};
    return planner->parameter(planner->host, &gain);
}

/* A piece is the samples [lo, lo + n), each of `inner` rows of features; tensors are whole. */
static void my_thing_forward(const tn_layer_call *call)
{
    int64_t n = tn_columns(call->x), inner = tn_extent(call->x, 1, call->x->ndim - 1);
    const tn_real *gain = tn_reals(&call->parameter[0]);
    for (int64_t row = call->lo * inner; row < (call->lo + call->n) * inner; row++) {
        const tn_real *x = tn_reals(call->x) + row * n;
        tn_real *y = tn_reals(call->y) + row * n;
        for (int64_t i = 0; i < n; i++)
            y[i] = gain[i] * x[i];
    }
}

/* dx = gain dy;  dgain = the sum of dy x over this piece's rows, the host adds the pieces */
static void my_thing_backward(const tn_layer_call *call)
{
    int64_t n = tn_columns(call->x), inner = tn_extent(call->x, 1, call->x->ndim - 1);
    const tn_real *gain = tn_reals(&call->parameter[0]);
    tn_real *dgain = tn_wants_dw(call) ? tn_reals(&call->gradient[0]) : NULL;
    for (int64_t i = 0; dgain && i < n; i++)
        dgain[i] = 0;
    for (int64_t row = call->lo * inner; row < (call->lo + call->n) * inner; row++) {
        const tn_real *x = tn_reals(call->x) + row * n, *dy = tn_reals(call->dy) + row * n;
        for (int64_t i = 0; tn_wants_dx(call) && i < n; i++)
            tn_reals(call->dx)[row * n + i] = gain[i] * dy[i];
        for (int64_t i = 0; dgain && i < n; i++)
            dgain[i] += dy[i] * x[i];
    }
}

static const tn_layer my_thing_table = {.struct_size = sizeof(tn_layer),
                                        .infer = TN_CALL(my_thing_infer),
                                        .forward = TN_CALL(my_thing_forward),
                                        .backward = TN_CALL(my_thing_backward)};
TN_COMPONENT(my_thing, "layer", TN_LAYER, TN_REAL, HYPER, "A learned factor for each feature",
             TN_AXIS("rows") TN_KEEPS("input") TN_PAPER("arXiv:2103.17239") TN_FORMULA("y = gain x"), my_thing_table);
TN_PLUGIN("org.example.my-thing", "0.1.0", "Apache-2.0", my_thing)
