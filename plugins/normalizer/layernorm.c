/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer normalisation. Ba, Kiros and Hinton, arXiv:1607.06450, over the last extent:
 *   y = weight n + bias,  n = (x - mean) r,  r = 1 / sqrt(variance + eps), the biased variance
 *   dx = r (g - mean(g) - n mean(g n)),  g = weight dy
 * Mean and variance are taken in double: large means and large values do no harm. The mean is subtracted as a high and
 * a low part, so that its rounding in float does none either.
 */
#include <tenon/layers.h>
#include <tenon/normalizer.h>

#define HYPER(X)                                                                                                       \
    X(fixed, eps, 1e-5, "(0, inf)", "added to the variance inside the root")                                           \
    X(flag, affine, true, "", "learn a gain and a shift")
TN_DECLARE(layernorm, HYPER)

enum { WEIGHT, BIAS };

static int32_t layernorm_infer(const void *hyper, const tn_tensor *x, int32_t inputs, const tn_layer_planner *planner,
                               tn_error *err)
{
    int64_t shape[TN_MAX_DIMS];
    int32_t status = tn_one_input("layernorm", x, inputs, 2, err);
    if (status)
        return status;
    if (tn_columns(x) < 1)
        return tn_fail(err, TN_E_INVALID,
                       "layernorm: the input has shape %s, needs at least one feature in its last extent",
                       tn_shape(x).text);
    memcpy(shape, x->shape, (size_t)x->ndim * sizeof *shape);
    shape[x->ndim - 1] = 2; /* mean, r */
    if ((status = tn_plan_like(planner, x)) ||
        (status = planner->saved(planner->host, (tn_dtype){TN_FLOAT, 64, 1}, x->ndim, shape)))
        return status;
    int64_t n = tn_columns(x);
    if (((const layernorm *)hyper)->affine)
        return tn_plan_affine(planner, n);
    return planner->workspace(planner->host, 2 * n * (int64_t)sizeof(tn_real)); /* see layernorm_affine */
}

/* ---- a row ---- */

typedef struct {
    tn_real mean_high, mean_low, r;
} layernorm_row;

TN_INLINE layernorm_row layernorm_read(const double *saved)
{
    tn_real high = (tn_real)saved[0];
    return (layernorm_row){high, (tn_real)(saved[0] - (double)high), (tn_real)saved[1]};
}

TN_INLINE tn_real layernorm_apply(layernorm_row s, tn_real x) { return (x - s.mean_high - s.mean_low) * s.r; }

/* Mean and r in one pass. Sums are taken of x - x[0]: no element is further from the mean than sqrt(n) deviations, so
 * the difference of squares loses at most the bits of n. */
TN_INLINE void layernorm_measure(int64_t n, double eps, const tn_real *restrict x, double *restrict saved)
{
    double lanes[TN_SUM_LANES] = {0}, square_lanes[TN_SUM_LANES] = {0}, first = (double)x[0];
    int64_t i = 0;
    for (; i + TN_SUM_LANES <= n; i += TN_SUM_LANES)
        for (int j = 0; j < TN_SUM_LANES; j++) {
            double d = (double)x[i + j] - first;
            lanes[j] += d;
            square_lanes[j] += d * d;
        }
    for (int j = 0; i + j < n; j++) {
        double d = (double)x[i + j] - first;
        lanes[j] += d;
        square_lanes[j] += d * d;
    }
    double mean = tn_fold_lanes(lanes) / (double)n;
    saved[0] = first + mean;
    saved[1] = 1 / sqrt(fmax(tn_fold_lanes(square_lanes) / (double)n - mean * mean, 0) + eps);
}

/* The sums of g and of g n. */
TN_INLINE void layernorm_sums(int64_t n, layernorm_row s, const tn_real *restrict x, const tn_real *restrict dy,
                              const tn_real *restrict weight, double ret[2])
{
    double g_lanes[TN_SUM_LANES] = {0}, gn_lanes[TN_SUM_LANES] = {0};
    int64_t i = 0;
    for (; i + TN_SUM_LANES <= n; i += TN_SUM_LANES)
        for (int j = 0; j < TN_SUM_LANES; j++) {
            tn_real g = weight[i + j] * dy[i + j];
            g_lanes[j] += (double)g;
            gn_lanes[j] += (double)(g * layernorm_apply(s, x[i + j]));
        }
    for (int j = 0; i + j < n; j++) {
        tn_real g = weight[i + j] * dy[i + j];
        g_lanes[j] += (double)g;
        gn_lanes[j] += (double)(g * layernorm_apply(s, x[i + j]));
    }
    ret[0] = tn_fold_lanes(g_lanes);
    ret[1] = tn_fold_lanes(gn_lanes);
}

/* ---- rows of n ---- */

TN_CLONES static void layernorm_forward_rows(int64_t rows, int64_t n, double eps, const tn_real *restrict x,
                                             const tn_real *restrict weight, const tn_real *restrict bias,
                                             tn_real *restrict y, double *restrict saved)
{
    for (int64_t row = 0; row < rows; row++, x += n, y += n, saved += 2) {
        layernorm_measure(n, eps, x, saved);
        layernorm_row s = layernorm_read(saved);
        for (int64_t i = 0; i < n; i++)
            y[i] = layernorm_apply(s, x[i]) * weight[i] + bias[i];
    }
}

/* Sets dx unless it is NULL; adds to dweight and dbias unless they are. */
TN_CLONES static void layernorm_backward_rows(int64_t rows, int64_t n, const tn_real *restrict x,
                                              const tn_real *restrict dy, const tn_real *restrict weight,
                                              const double *restrict saved, tn_real *restrict dx,
                                              tn_real *restrict dweight, tn_real *restrict dbias)
{
    for (int64_t row = 0; row < rows; row++) {
        const tn_real *x_row = x + row * n, *dy_row = dy + row * n;
        layernorm_row s = layernorm_read(saved + row * 2);
        double sums[2] = {0};
        if (dx)
            layernorm_sums(n, s, x_row, dy_row, weight, sums);
        tn_real g_mean = (tn_real)(sums[0] / (double)n), gn_mean = (tn_real)(sums[1] / (double)n);
        for (int64_t i = 0; i < n; i++) {
            tn_real normal = layernorm_apply(s, x_row[i]), g = weight[i] * dy_row[i];
            if (dx)
                dx[row * n + i] = s.r * (g - g_mean - normal * gn_mean);
            if (dweight) {
                dweight[i] += dy_row[i] * normal;
                dbias[i] += dy_row[i];
            }
        }
    }
}

/* ---- the calls ---- */

/* Gain and shift: learned, or 1 and 0 in the workspace. */
static void layernorm_affine(const tn_layer_call *call, const tn_real **ret_weight, const tn_real **ret_bias)
{
    int64_t n = tn_columns(call->x);
    tn_real *plain = (tn_real *)call->workspace;
    if (((const layernorm *)call->hyper)->affine) {
        *ret_weight = tn_reals(&call->parameter[WEIGHT]);
        *ret_bias = tn_reals(&call->parameter[BIAS]);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        plain[i] = 1;
        plain[n + i] = 0;
    }
    *ret_weight = plain;
    *ret_bias = plain + n;
}

static void layernorm_forward(const tn_layer_call *call)
{
    int64_t inner = tn_extent(call->x, 1, call->x->ndim - 1), n = tn_columns(call->x), at = call->lo * inner;
    const tn_real *weight, *bias;
    layernorm_affine(call, &weight, &bias);
    layernorm_forward_rows(call->n * inner, n, ((const layernorm *)call->hyper)->eps, tn_reals(call->x) + at * n,
                           weight, bias, tn_reals(call->y) + at * n, (double *)call->saved->data + at * 2);
}

static void layernorm_backward(const tn_layer_call *call)
{
    int64_t inner = tn_extent(call->x, 1, call->x->ndim - 1), n = tn_columns(call->x), at = call->lo * inner;
    tn_real *dx = tn_wants_dx(call) ? tn_reals(call->dx) + at * n : NULL, *dweight = NULL, *dbias = NULL;
    const tn_real *weight, *bias;
    layernorm_affine(call, &weight, &bias);
    if (((const layernorm *)call->hyper)->affine && tn_wants_dw(call)) {
        dweight = memset(call->gradient[WEIGHT].data, 0, (size_t)n * sizeof *dweight);
        dbias = memset(call->gradient[BIAS].data, 0, (size_t)n * sizeof *dbias);
    }
    layernorm_backward_rows(call->n * inner, n, tn_reals(call->x) + at * n, tn_reals(call->dy) + at * n, weight,
                            (const double *)call->saved->data + at * 2, dx, dweight, dbias);
}

static const tn_layer layernorm_table = {.struct_size = sizeof(tn_layer),
                                         .infer = layernorm_infer,
                                         .forward = layernorm_forward,
                                         .backward = layernorm_backward};

TN_COMPONENT(layernorm, "normalizer", TN_LAYER, TN_REAL, HYPER, "layer normalisation over the last extent",
             TN_AXIS("rows") TN_KEEPS("input") TN_PAPER("arXiv:1607.06450")
                 TN_FORMULA("y = weight (x - mean) / sqrt(variance + eps) + bias"),
             layernorm_table);
TN_PLUGIN("org.tenon.layernorm", "0.1.0", "Apache-2.0", layernorm)
