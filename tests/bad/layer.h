/* SPDX-License-Identifier: Apache-2.0
 *
 * layer.h: a good layer, normalizer/probe, in which parts may be replaced before this file is included, to be wrong in
 * one way. It centres columns: y = (x - mean) weight + bias, mean over the batch, in evaluation the running one.
 */
#ifndef TENON_TESTS_BAD_LAYER_H
#define TENON_TESTS_BAD_LAYER_H

#include <tenon/layers.h>
#include <tenon/normalizer.h>

#ifndef PROBE_INFER /* (x, planner, err): before all else */
#define PROBE_INFER(x, planner, err)
#endif
#ifndef PROBE_FORWARD /* (call): behind the work, as the next three */
#define PROBE_FORWARD(call)
#endif
#ifndef PROBE_BACKWARD
#define PROBE_BACKWARD(call)
#endif
#ifndef PROBE_TANGENT /* (along) */
#define PROBE_TANGENT(along)
#endif
#ifndef PROBE_MOMENTUM /* (call): weight of the new mean */
#define PROBE_MOMENTUM(call) ((call)->refresh > 0 ? 1.0 / (double)(call)->refresh : 0.1)
#endif
#ifndef PROBE_TRAINS /* (call): is the mean that of the batch? */
#define PROBE_TRAINS(call) ((call)->flags & TN_TRAIN)
#endif
#ifndef PROBE_COUNTS /* (call): do buffers change? */
#define PROBE_COUNTS(call) (((call)->flags & TN_TRAIN) && !((call)->flags & TN_FREEZE))
#endif
#ifndef PROBE_ADDS /* (call): are gradients added to? */
#define PROBE_ADDS(call) ((call)->flags & TN_ACCUMULATE)
#endif
#ifndef PROBE_ROLE
#define PROBE_ROLE TN_ROLE_NORM
#endif
#ifndef PROBE_SCALE /* of dx */
#define PROBE_SCALE 1
#endif

TN_DECLARE(probe, TN_NO_HYPER)

static int32_t probe_infer(const void *hyper, const tn_tensor *x, int32_t inputs, const tn_layer_planner *planner,
                           tn_error *err)
{
    (void)hyper;
    PROBE_INFER(x, planner, err)
    if (inputs != 1 || x->ndim != 2)
        return tn_fail(err, TN_E_INVALID, "probe: has %d inputs, the first of shape %s, needs one of [batch, channels]",
                       inputs, tn_shape(x).text);
    int64_t channels = tn_columns(x);
    tn_weight weight = {sizeof weight, PROBE_ROLE, "weight", 1, TN_INIT_CONSTANT, &channels, 1, 0, -1, -1};
    tn_weight bias = {sizeof bias, PROBE_ROLE, "bias", 1, TN_INIT_CONSTANT, &channels, 0, 0, -1, -1};
    int32_t status = tn_plan_like(planner, x);
    status = status ? status : planner->saved(planner->host, (tn_dtype){TN_FLOAT, 64, 1}, 1, &channels);
    status = status ? status : planner->buffer(planner->host, "running_mean", 1, &channels, 0);
    status = status ? status : planner->workspace(planner->host, 64);
    status = status ? status : planner->parameter(planner->host, &weight);
    return status ? status : planner->parameter(planner->host, &bias);
}

/* Mean of column j of a tensor; 0 of no rows. */
static TN_UNUSED double probe_mean(const tn_tensor *t, int64_t j)
{
    int64_t rows = t->shape[0], columns = tn_columns(t);
    double sum = 0;
    for (int64_t i = 0; i < rows; i++)
        sum += (double)tn_reals(t)[i * columns + j];
    return rows ? sum / (double)rows : 0;
}

static double probe_centre(const tn_layer_call *call, int64_t j)
{
    return PROBE_TRAINS(call) ? ((const double *)call->saved->data)[j] : (double)tn_reals(call->buffer)[j];
}

static void probe_measure(const tn_layer_call *call, int64_t j)
{
    double mean = probe_mean(call->x, j), w = PROBE_MOMENTUM(call);
    tn_real *running = tn_reals(call->buffer) + j;
    ((double *)call->saved->data)[j] = mean;
    if (PROBE_COUNTS(call))
        *running = (tn_real)(w == 1 ? mean : (1 - w) * (double)*running + w * mean);
}

static void probe_forward(const tn_layer_call *call)
{
    int64_t rows = call->x->shape[0], columns = tn_columns(call->x);
    for (int64_t j = call->lo; j < call->lo + call->n; j++) {
        if (PROBE_TRAINS(call))
            probe_measure(call, j);
        double mean = probe_centre(call, j);
        for (int64_t i = j; i < rows * columns; i += columns)
            tn_reals(call->y)[i] =
                (tn_real)(((double)tn_reals(call->x)[i] - mean) * (double)tn_reals(&call->parameter[0])[j] +
                          (double)tn_reals(&call->parameter[1])[j]);
    }
    PROBE_FORWARD(call)
}

static void probe_set(const tn_layer_call *call, int32_t which, int64_t j, double sum)
{
    tn_real *gradient = tn_reals(&call->gradient[which]) + j;
    *gradient = (PROBE_ADDS(call) ? *gradient : 0) + (tn_real)sum;
}

static void probe_backward(const tn_layer_call *call)
{
    int64_t rows = call->x->shape[0], columns = tn_columns(call->x);
    const tn_real *x = tn_reals(call->x), *dy = tn_reals(call->dy);
    for (int64_t j = call->lo; j < call->lo + call->n; j++) {
        double mean = probe_centre(call, j), mean_dy = PROBE_TRAINS(call) ? probe_mean(call->dy, j) : 0;
        double sum = 0, sum_x = 0, weight = PROBE_SCALE * (double)tn_reals(&call->parameter[0])[j];
        for (int64_t i = j; i < rows * columns; i += columns) {
            sum += (double)dy[i];
            sum_x += (double)dy[i] * ((double)x[i] - mean);
            if (tn_wants_dx(call))
                tn_reals(call->dx)[i] = (tn_real)(weight * ((double)dy[i] - mean_dy));
        }
        if (tn_wants_dw(call)) {
            probe_set(call, 0, j, sum_x);
            probe_set(call, 1, j, sum);
        }
    }
    PROBE_BACKWARD(call)
}

/* ---- along a direction ---- */

static double probe_along(const tn_tensor *t, int64_t i) { return t->data ? (double)tn_reals(t)[i] : 0; }

/* y~ = (x~ - mean~) weight + (x - mean) weight~ + bias~ */
static void probe_tangent_forward(const tn_tangent_call *along)
{
    const tn_layer_call *call = along->call;
    int64_t rows = call->x->shape[0], columns = tn_columns(call->x);
    for (int64_t j = call->lo; j < call->lo + call->n; j++) {
        double mean = probe_centre(call, j);
        double mean_x = along->x->data && PROBE_TRAINS(call) ? probe_mean(along->x, j) : 0;
        for (int64_t i = j; i < rows * columns; i += columns)
            tn_reals(along->y)[i] =
                (tn_real)((probe_along(along->x, i) - mean_x) * (double)tn_reals(&call->parameter[0])[j] +
                          ((double)tn_reals(call->x)[i] - mean) * (double)tn_reals(&along->parameter[0])[j] +
                          (double)tn_reals(&along->parameter[1])[j]);
    }
    PROBE_TANGENT(along)
}

/* dx~ = weight~ (dy - mean) + weight (dy~ - mean~);  weight's: the sum of dy~ (x - mean) + dy (x~ - mean~) */
static void probe_tangent_backward(const tn_tangent_call *along)
{
    const tn_layer_call *call = along->call;
    int64_t rows = call->x->shape[0], columns = tn_columns(call->x);
    const tn_real *x = tn_reals(call->x), *dy = tn_reals(call->dy), *dy_along = tn_reals(along->dy);
    for (int64_t j = call->lo; j < call->lo + call->n; j++) {
        int trains = PROBE_TRAINS(call) != 0;
        double mean = probe_centre(call, j), mean_x = trains && along->x->data ? probe_mean(along->x, j) : 0;
        double mean_dy = trains ? probe_mean(call->dy, j) : 0, mean_along = trains ? probe_mean(along->dy, j) : 0;
        double sum = 0, sum_x = 0;
        for (int64_t i = j; i < rows * columns; i += columns) {
            sum += (double)dy_along[i];
            sum_x += (double)dy_along[i] * ((double)x[i] - mean) + (double)dy[i] * (probe_along(along->x, i) - mean_x);
            if (along->dx->data)
                tn_reals(along->dx)[i] =
                    (tn_real)((double)tn_reals(&along->parameter[0])[j] * ((double)dy[i] - mean_dy) +
                              (double)tn_reals(&call->parameter[0])[j] * ((double)dy_along[i] - mean_along));
        }
        tn_real *weight = tn_reals(&along->gradient[0]) + j, *bias = tn_reals(&along->gradient[1]) + j;
        *weight = tn_so_far(call, *weight) + (tn_real)sum_x;
        *bias = tn_so_far(call, *bias) + (tn_real)sum;
    }
}

static const tn_layer_tangents probe_tangents = {sizeof(tn_layer_tangents), 0, probe_tangent_forward,
                                                 probe_tangent_backward};
static const tn_layer probe_table = {.struct_size = sizeof(tn_layer),
                                     .infer = probe_infer,
                                     .forward = probe_forward,
                                     .backward = probe_backward,
                                     .tangents = &probe_tangents};

TN_COMPONENT(probe, "normalizer", TN_LAYER, TN_REAL, TN_NO_HYPER, "a test", TN_AXIS("columns") TN_KEEPS("input"),
             probe_table);
TN_PLUGIN("org.tenon.test.probe", "0.1.0", "Apache-2.0", probe)

#endif
