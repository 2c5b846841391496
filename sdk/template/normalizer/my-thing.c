/* SPDX-License-Identifier: Apache-2.0
 *
 * RMSNorm (Zhang and Sennrich, NeurIPS 2019, arXiv:1910.07467):  y = weight x r,  r = 1 / sqrt(mean(x^2) + eps), the
 * mean over the last extent.
 */
#include <tenon/layers.h>

#define HYPER(X) X(fixed, eps, 1e-6, "(0, inf)", "added to the mean square inside the root")
TN_DECLARE(my_thing, HYPER)

/* Once, with the largest batch: what the host must provide. The order is the index in tn_layer_call. */
static int32_t my_thing_infer(const void *hyper, const tn_tensor *x, int32_t inputs, const tn_layer_planner *planner,
                              tn_error *err)
{
    int64_t shape[TN_MAX_DIMS], n;
    int32_t status = tn_one_input("my-thing", x, inputs, 2, err); /* the batch and at least one more extent */
    if (status || (status = tn_plan_like(planner, x)))
        return status;
    (void)hyper;
    n = tn_columns(x);
    memcpy(shape, x->shape, sizeof *shape * (size_t)x->ndim);
    shape[x->ndim - 1] = 1; /* r: one number a row */
    tn_weight weight = {sizeof weight, TN_ROLE_NORM, "weight", 1, TN_INIT_CONSTANT, &n, 1, 0, -1, -1};
    const tn_dtype f64 = {TN_FLOAT, 64, 1};
    status = planner->saved(planner->host, f64, x->ndim, shape);
    return status ? status : planner->parameter(planner->host, &weight);
}

/* y = weight x r,  r = 1 / sqrt(mean(x^2) + eps) */
static void my_thing_forward(const tn_layer_call *call)
{
    int64_t n = tn_columns(call->x), inner = tn_extent(call->x, 1, call->x->ndim - 1);
    const tn_real *weight = tn_reals(&call->parameter[0]);
    for (int64_t row = call->lo * inner; row < (call->lo + call->n) * inner; row++) {
        const tn_real *x = tn_reals(call->x) + row * n;
        tn_real *y = tn_reals(call->y) + row * n;
        double square = 0;
        for (int64_t i = 0; i < n; i++)
            square += (double)x[i] * (double)x[i];
        double r = 1 / sqrt(square / (double)n + ((const my_thing *)call->hyper)->eps);
        ((double *)call->saved[0].data)[row] = r;
        for (int64_t i = 0; i < n; i++)
            y[i] = weight[i] * x[i] * (tn_real)r;
    }
}

/* dx = r (g - x r^2 mean(g x)),  g = weight dy;  dweight = the sum of dy x r over the rows */
static void my_thing_backward(const tn_layer_call *call)
{
    int64_t n = tn_columns(call->x), inner = tn_extent(call->x, 1, call->x->ndim - 1);
    const tn_real *weight = tn_reals(&call->parameter[0]);
    tn_real *dweight = tn_wants_dw(call) ? tn_reals(&call->gradient[0]) : NULL;
    for (int64_t i = 0; dweight && i < n; i++)
        dweight[i] = 0;
    for (int64_t row = call->lo * inner; row < (call->lo + call->n) * inner; row++) {
        const tn_real *x = tn_reals(call->x) + row * n, *dy = tn_reals(call->dy) + row * n;
        double r = ((const double *)call->saved[0].data)[row], gx = 0;
        for (int64_t i = 0; i < n; i++)
            gx += (double)(weight[i] * dy[i]) * (double)x[i];
        tn_real scale = (tn_real)r, back = (tn_real)(r * r * r * gx / (double)n);
        for (int64_t i = 0; tn_wants_dx(call) && i < n; i++)
            tn_reals(call->dx)[row * n + i] = scale * weight[i] * dy[i] - back * x[i];
        for (int64_t i = 0; dweight && i < n; i++)
            dweight[i] += dy[i] * x[i] * scale;
    }
}

static const tn_layer my_thing_table = {.struct_size = sizeof(tn_layer),
                                        .infer = TN_CALL(my_thing_infer),
                                        .forward = TN_CALL(my_thing_forward),
                                        .backward = TN_CALL(my_thing_backward)};
TN_COMPONENT(my_thing, "normalizer", TN_LAYER, TN_REAL, HYPER, "Divides by the root mean square of the last extent",
             TN_AXIS("rows") TN_KEEPS("input") TN_PAPER("arXiv:1910.07467")
                 TN_FORMULA("y = weight x / sqrt(mean(x^2) + eps)"),
             my_thing_table);
TN_PLUGIN("org.example.my-thing", "0.1.0", "Apache-2.0", my_thing)
