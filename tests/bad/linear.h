/* SPDX-License-Identifier: Apache-2.0
 *
 * linear.h: a good layer, y = x W^T + b with 8 outputs, in which parts may be replaced before this file is included, to
 * be wrong in one way.
 */
#ifndef TENON_TESTS_BAD_LINEAR_H
#define TENON_TESTS_BAD_LINEAR_H

#include <tenon/layers.h>

#ifndef LINEAR_SCALE /* of the bias */
#define LINEAR_SCALE 1
#endif
#ifndef LINEAR_ROW_Y /* what a part leaves in the form that takes a part of x */
#define LINEAR_ROW_Y "partial"
#endif

#define HYPER(X) X(integer, out, 8, "[1, 1024]", "features of the output")
TN_DECLARE(probe, HYPER)

static int32_t probe_infer(const void *hyper, const tn_tensor *x, int32_t inputs, const tn_layer_planner *planner,
                           tn_error *err)
{
    int32_t status = tn_one_input("probe", x, inputs, 2, err);
    if (status)
        return status;
    int64_t out = ((const probe *)hyper)->out, in = tn_columns(x), y[TN_MAX_DIMS], shape[] = {out, in};
    tn_weight weight = {sizeof weight, TN_ROLE_WEIGHT, "weight", 2, TN_INIT_CONSTANT, shape, 1, 0, 1, 0};
    tn_weight bias = {sizeof bias, TN_ROLE_BIAS, "bias", 1, TN_INIT_CONSTANT, shape, 0, 0, -1, 0};
    memcpy(y, x->shape, (size_t)x->ndim * sizeof *y);
    y[x->ndim - 1] = out;
    status = planner->output(planner->host, x->ndim, y);
    status = status ? status : planner->parameter(planner->host, &weight);
    return status ? status : planner->parameter(planner->host, &bias);
}

static void probe_forward(const tn_layer_call *call)
{
    int64_t in = tn_columns(call->x), out = ((const probe *)call->hyper)->out,
            rows = tn_extent(call->x, 0, call->x->ndim - 1);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t o = 0; o < out; o++) {
            double sum = LINEAR_SCALE * (double)tn_reals(&call->parameter[1])[o];
            for (int64_t i = 0; i < in; i++)
                sum += (double)tn_reals(call->x)[r * in + i] * (double)tn_reals(&call->parameter[0])[o * in + i];
            tn_reals(call->y)[r * out + o] = (tn_real)sum;
        }
}

static void probe_input(const tn_layer_call *call, int64_t rows, int64_t in, int64_t out)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < in; i++) {
            double sum = 0;
            for (int64_t o = 0; o < out; o++)
                sum += (double)tn_reals(call->dy)[r * out + o] * (double)tn_reals(&call->parameter[0])[o * in + i];
            tn_reals(call->dx)[r * in + i] = (tn_real)sum;
        }
}

static void probe_weights(const tn_layer_call *call, int64_t rows, int64_t in, int64_t out)
{
    tn_real *weight = tn_reals(&call->gradient[0]), *bias = tn_reals(&call->gradient[1]);
    for (int64_t o = 0; o < out; o++) {
        double total = 0;
        for (int64_t r = 0; r < rows; r++)
            total += LINEAR_SCALE * (double)tn_reals(call->dy)[r * out + o];
        bias[o] = tn_so_far(call, bias[o]) + (tn_real)total;
        for (int64_t i = 0; i < in; i++) {
            double sum = 0;
            for (int64_t r = 0; r < rows; r++)
                sum += (double)tn_reals(call->dy)[r * out + o] * (double)tn_reals(call->x)[r * in + i];
            weight[o * in + i] = tn_so_far(call, weight[o * in + i]) + (tn_real)sum;
        }
    }
}

static void probe_backward(const tn_layer_call *call)
{
    int64_t in = tn_columns(call->x), out = ((const probe *)call->hyper)->out,
            rows = tn_extent(call->x, 0, call->x->ndim - 1);
    if (tn_wants_dx(call))
        probe_input(call, rows, in, out);
    if (tn_wants_dw(call))
        probe_weights(call, rows, in, out);
}

static const tn_layer probe_table = {
    .struct_size = sizeof(tn_layer), .infer = probe_infer, .forward = probe_forward, .backward = probe_backward};

TN_COMPONENT(probe, "layer", TN_LAYER, TN_REAL, HYPER, "a test",
             TN_AXIS("whole") TN_KEEPS("input") TN_TEXT_FACT("tap", "linear")
                 TN_FACT("split", "[{\"name\":\"column\",\"parameters\":[0,0],\"x\":\"whole\",\"y\":\"last\","
                                  "\"rows\":[\"out\"]},{\"name\":\"row\",\"parameters\":[1,null],\"x\":\"last\",\"y\":"
                                  "\"" LINEAR_ROW_Y "\"}]"),
             probe_table);
TN_PLUGIN("org.tenon.test.probe", "0.1.0", "Apache-2.0", probe)

#endif
