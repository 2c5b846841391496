/* SPDX-License-Identifier: Apache-2.0
 *
 * Layer normalisation. Ba, Kiros and Hinton, arXiv:1607.06450, over the last extent:
 *   y = weight n + bias,  n = (x - mean) r,  r = 1 / sqrt(variance + eps), the biased variance
 *   dx = r (g - mean(g) - n mean(g n)),  g = weight dy
 * Along a direction: n~ = r (x~ - mean(x~) - n mean(n x~)),  r~ = -r^2 mean(n x~),  y~ = weight n~ + weight~ n + bias~,
 *   dx~ = r (g~ - mean(g~) - n (mean(g~ n) + mean(g n~)) - n~ mean(g n)) + dx r~ / r
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
    if ((status = planner->workspace(planner->host, 2 * n * (int64_t)sizeof(tn_real)))) /* see layernorm_constants */
        return status;
    return ((const layernorm *)hyper)->affine ? tn_plan_affine(planner, n) : TN_OK;
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

/* A row of ones and one of zeros, in the workspace. */
static const tn_real *layernorm_constants(const tn_layer_call *call)
{
    int64_t n = tn_columns(call->x);
    tn_real *plain = (tn_real *)call->workspace;
    for (int64_t i = 0; i < n; i++) {
        plain[i] = 1;
        plain[n + i] = 0;
    }
    return plain;
}

/* Gain and shift: learned, or 1 and 0. */
static void layernorm_affine(const tn_layer_call *call, const tn_real **ret_weight, const tn_real **ret_bias)
{
    int32_t affine = ((const layernorm *)call->hyper)->affine != 0;
    const tn_real *plain = affine ? NULL : layernorm_constants(call);
    *ret_weight = affine ? tn_reals(&call->parameter[WEIGHT]) : plain;
    *ret_bias = affine ? tn_reals(&call->parameter[BIAS]) : plain + tn_columns(call->x);
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

/* ---- derivatives along a direction ---- */

/* One row: what is there, and its derivatives. Rows that are missing stand for zeros. */
typedef struct {
    layernorm_row s;
    const tn_real *x, *weight, *dy, *x_along, *weight_along, *bias_along, *dy_along;
    tn_real x_mean, nx_mean; /* mean(x~), mean(n x~) */
} layernorm_dual;

TN_INLINE tn_real layernorm_normal_along(const layernorm_dual *d, int64_t i, tn_real normal)
{
    return d->s.r * (d->x_along[i] - d->x_mean - normal * d->nx_mean);
}

TN_INLINE void layernorm_means_along(int64_t n, layernorm_dual *d)
{
    double lanes[TN_SUM_LANES] = {0}, normal_lanes[TN_SUM_LANES] = {0};
    for (int64_t i = 0; i < n; i += TN_SUM_LANES)
        for (int64_t j = i; j < i + TN_SUM_LANES && j < n; j++) {
            lanes[j - i] += (double)d->x_along[j];
            normal_lanes[j - i] += (double)(layernorm_apply(d->s, d->x[j]) * d->x_along[j]);
        }
    d->x_mean = (tn_real)(tn_fold_lanes(lanes) / (double)n);
    d->nx_mean = (tn_real)(tn_fold_lanes(normal_lanes) / (double)n);
}

/* The means of g, g n, g~, and g~ n + g n~. */
TN_INLINE void layernorm_sums_along(int64_t n, const layernorm_dual *d, tn_real ret[4])
{
    double lanes[4][TN_SUM_LANES] = {{0}};
    for (int64_t i = 0; i < n; i += TN_SUM_LANES)
        for (int64_t j = i; j < i + TN_SUM_LANES && j < n; j++) {
            tn_real normal = layernorm_apply(d->s, d->x[j]), g = d->weight[j] * d->dy[j];
            tn_real g_along = d->weight_along[j] * d->dy[j] + d->weight[j] * d->dy_along[j];
            lanes[0][j - i] += (double)g;
            lanes[1][j - i] += (double)(g * normal);
            lanes[2][j - i] += (double)g_along;
            lanes[3][j - i] += (double)(g_along * normal + g * layernorm_normal_along(d, j, normal));
        }
    for (int k = 0; k < 4; k++)
        ret[k] = (tn_real)(tn_fold_lanes(lanes[k]) / (double)n);
}

TN_INLINE void layernorm_dx_along(int64_t n, const layernorm_dual *d, tn_real *restrict dx)
{
    tn_real m[4], bend = -d->s.r * d->nx_mean; /* r~ / r */
    layernorm_sums_along(n, d, m);
    for (int64_t i = 0; i < n; i++) {
        tn_real normal = layernorm_apply(d->s, d->x[i]), g = d->weight[i] * d->dy[i];
        tn_real g_along = d->weight_along[i] * d->dy[i] + d->weight[i] * d->dy_along[i];
        dx[i] = d->s.r * (g_along - m[2] - normal * m[3] - layernorm_normal_along(d, i, normal) * m[1] +
                          bend * (g - m[0] - normal * m[1]));
    }
}

TN_INLINE void layernorm_dw_along(int64_t n, const layernorm_dual *d, tn_real *restrict dweight,
                                  tn_real *restrict dbias)
{
    for (int64_t i = 0; i < n; i++) {
        tn_real normal = layernorm_apply(d->s, d->x[i]);
        dweight[i] += d->dy_along[i] * normal + d->dy[i] * layernorm_normal_along(d, i, normal);
        dbias[i] += d->dy_along[i];
    }
}

/* `step`: elements from row to row of x~, 0 where it is one row of zeros. */
TN_CLONES static void layernorm_rows_along(int64_t rows, int64_t n, layernorm_dual d, int64_t step, const double *saved,
                                           tn_real *restrict y)
{
    for (int64_t row = 0; row < rows; row++, d.x += n, d.x_along += step, y += n) {
        d.s = layernorm_read(saved + row * 2);
        layernorm_means_along(n, &d);
        for (int64_t i = 0; i < n; i++) {
            tn_real normal = layernorm_apply(d.s, d.x[i]);
            y[i] = d.weight[i] * layernorm_normal_along(&d, i, normal) + d.weight_along[i] * normal + d.bias_along[i];
        }
    }
}

/* Sets dx unless it is NULL; adds to dweight and dbias unless they are. */
TN_CLONES static void layernorm_backward_along(int64_t rows, int64_t n, layernorm_dual d, int64_t step,
                                               const double *saved, tn_real *dx, tn_real *dweight, tn_real *dbias)
{
    for (int64_t row = 0; row < rows; row++, d.x += n, d.x_along += step, d.dy += n, d.dy_along += n) {
        d.s = layernorm_read(saved + row * 2);
        layernorm_means_along(n, &d);
        if (dx)
            layernorm_dx_along(n, &d, dx + row * n);
        if (dweight)
            layernorm_dw_along(n, &d, dweight, dbias);
    }
}

/* The piece's first row. */
static layernorm_dual layernorm_dual_of(const tn_tangent_call *along, int64_t at, int64_t *ret_step)
{
    const tn_layer_call *call = along->call;
    int64_t n = tn_columns(call->x);
    int affine = ((const layernorm *)call->hyper)->affine != 0;
    const tn_real *ones = layernorm_constants(call), *zeros = ones + n, *x_along = tn_reals(along->x);
    *ret_step = x_along ? n : 0;
    return (layernorm_dual){.x = tn_reals(call->x) + at,
                            .weight = affine ? tn_reals(&call->parameter[WEIGHT]) : ones,
                            .x_along = x_along ? x_along + at : zeros,
                            .weight_along = affine ? tn_reals(&along->parameter[WEIGHT]) : zeros,
                            .bias_along = affine ? tn_reals(&along->parameter[BIAS]) : zeros};
}

static void layernorm_tangent_forward(const tn_tangent_call *along)
{
    const tn_layer_call *call = along->call;
    int64_t inner = tn_extent(call->x, 1, call->x->ndim - 1), n = tn_columns(call->x), at = call->lo * inner, step;
    layernorm_dual d = layernorm_dual_of(along, at * n, &step);
    layernorm_rows_along(call->n * inner, n, d, step, (const double *)call->saved->data + at * 2,
                         tn_reals(along->y) + at * n);
}

static void layernorm_tangent_backward(const tn_tangent_call *along)
{
    const tn_layer_call *call = along->call;
    int64_t inner = tn_extent(call->x, 1, call->x->ndim - 1), n = tn_columns(call->x), at = call->lo * inner, step;
    tn_real *dx = tn_reals(along->dx), *dweight = NULL, *dbias = NULL;
    layernorm_dual d = layernorm_dual_of(along, at * n, &step);
    d.dy = tn_reals(call->dy) + at * n;
    d.dy_along = tn_reals(along->dy) + at * n;
    if (((const layernorm *)call->hyper)->affine && tn_wants_dw(call)) {
        dweight = memset(along->gradient[WEIGHT].data, 0, (size_t)n * sizeof *dweight);
        dbias = memset(along->gradient[BIAS].data, 0, (size_t)n * sizeof *dbias);
    }
    layernorm_backward_along(call->n * inner, n, d, step, (const double *)call->saved->data + at * 2,
                             dx ? dx + at * n : NULL, dweight, dbias);
}

static const tn_layer_tangents layernorm_tangents = {sizeof(tn_layer_tangents), 0, layernorm_tangent_forward,
                                                     layernorm_tangent_backward};

static const tn_layer layernorm_table = {.struct_size = sizeof(tn_layer),
                                         .infer = layernorm_infer,
                                         .forward = layernorm_forward,
                                         .backward = layernorm_backward,
                                         .tangents = &layernorm_tangents};

TN_COMPONENT(layernorm, "normalizer", TN_LAYER, TN_REAL, HYPER, "layer normalisation over the last extent",
             TN_AXIS("rows") TN_KEEPS("input") TN_PAPER("arXiv:1607.06450")
                 TN_FORMULA("y = weight (x - mean) / sqrt(variance + eps) + bias"),
             layernorm_table);
TN_PLUGIN("org.tenon.layernorm", "0.1.0", "Apache-2.0", layernorm)
