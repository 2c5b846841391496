/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch normalisation of [batch, channels]. Ioffe and Szegedy, arXiv:1502.03167:
 *   y = weight n + bias,  n = (x - mean) r,  r = 1 / sqrt(variance + eps), over the batch, the biased variance
 *   dx = weight r (dy - mean(dy) - n mean(dy n)); in evaluation mean and variance are constants: dx = weight r dy
 * The running variance takes the unbiased one, as in PyTorch. Sums are taken in double, in the order of the rows.
 */
#include <tenon/layers.h>
#include <tenon/normalizer.h>

#define HYPER(X)                                                                                                       \
    X(fixed, eps, 1e-5, "(0, inf)", "added to the variance inside the root")                                           \
    X(real, momentum, 0.1, "[0, 1]", "weight of the new value in the running statistics")                              \
    X(flag, affine, true, "", "learn a gain and a shift")
TN_DECLARE(batchnorm, HYPER)

enum { WEIGHT, BIAS };
enum { RUNNING_MEAN, RUNNING_VAR };
#define BLOCK 64 /* columns at a time */

static int32_t batchnorm_infer(const void *hyper, const tn_tensor *x, int32_t inputs, const tn_layer_planner *planner,
                               tn_error *err)
{
    int32_t status = tn_one_input("batchnorm", x, inputs, 2, err);
    if (status)
        return status;
    if (x->ndim != 2)
        return tn_fail(err, TN_E_INVALID, "batchnorm: the input has shape %s, needs [batch, channels]",
                       tn_shape(x).text);
    int64_t channels = tn_columns(x), saved[] = {2, channels}; /* means, then r */
    if ((status = tn_plan_like(planner, x)) ||
        (status = planner->saved(planner->host, (tn_dtype){TN_FLOAT, 64, 1}, 2, saved)) ||
        (status = planner->buffer(planner->host, "running_mean", 1, &channels, 0)) ||
        (status = planner->buffer(planner->host, "running_var", 1, &channels, 1)))
        return status;
    return ((const batchnorm *)hyper)->affine ? tn_plan_affine(planner, channels) : TN_OK;
}

static int32_t batchnorm_check(const void *hyper, const tn_tensor *x, uint32_t flags, tn_error *err)
{
    (void)hyper;
    if ((flags & TN_TRAIN) && x->shape[0] < 2)
        return tn_fail(
            err, TN_E_INVALID,
            "batchnorm: a training batch of shape %s has one value a channel, whose variance is unknown; use "
            "batches of at least 2",
            tn_shape(x).text);
    return TN_OK;
}

/* ---- up to BLOCK columns ---- */

typedef struct {
    double mean[BLOCK], r[BLOCK];
} batchnorm_statistics;

/* y = (x - high - low) scale + shift */
typedef struct {
    tn_real high[BLOCK], low[BLOCK], scale[BLOCK], shift[BLOCK];
} batchnorm_map;

/* In one pass. Sums are taken of x less the first row: no element is further from the mean than sqrt(rows) deviations,
 * so the difference of squares loses at most the bits of rows. */
TN_CLONES static void batchnorm_moments(int64_t rows, int64_t stride, int64_t columns, const tn_real *restrict x,
                                        double *restrict mean, double *restrict variance)
{
    for (int64_t j = 0; j < columns; j++)
        mean[j] = variance[j] = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            double d = (double)x[i * stride + j] - (double)x[j];
            mean[j] += d;
            variance[j] += d * d;
        }
    for (int64_t j = 0; j < columns; j++) {
        mean[j] /= (double)rows;
        variance[j] = fmax(variance[j] / (double)rows - mean[j] * mean[j], 0);
        mean[j] += (double)x[j];
    }
}

TN_CLONES static void batchnorm_apply(int64_t rows, int64_t stride, int64_t columns, const batchnorm_map *restrict map,
                                      const tn_real *restrict x, tn_real *restrict y)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            y[i * stride + j] = (x[i * stride + j] - map->high[j] - map->low[j]) * map->scale[j] + map->shift[j];
}

/* The sums of dy and of dy n. */
TN_CLONES static void batchnorm_sums(int64_t rows, int64_t stride, int64_t columns, const batchnorm_map *restrict n,
                                     const tn_real *restrict x, const tn_real *restrict dy, double *restrict sum,
                                     double *restrict sum_n)
{
    for (int64_t j = 0; j < columns; j++)
        sum[j] = sum_n[j] = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            tn_real g = dy[i * stride + j];
            sum[j] += (double)g;
            sum_n[j] += (double)(g * ((x[i * stride + j] - n->high[j] - n->low[j]) * n->scale[j]));
        }
}

/* dx = gain (dy - mean - n mean_n) */
TN_CLONES static void batchnorm_dx(int64_t rows, int64_t stride, int64_t columns, const batchnorm_map *restrict n,
                                   const tn_real *restrict gain, const tn_real *restrict mean,
                                   const tn_real *restrict mean_n, const tn_real *restrict x,
                                   const tn_real *restrict dy, tn_real *restrict dx)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            tn_real normal = (x[i * stride + j] - n->high[j] - n->low[j]) * n->scale[j];
            dx[i * stride + j] = gain[j] * (dy[i * stride + j] - mean[j] - normal * mean_n[j]);
        }
}

static tn_real batchnorm_weight(const tn_layer_call *call, int64_t channel)
{
    return ((const batchnorm *)call->hyper)->affine ? tn_reals(&call->parameter[WEIGHT])[channel] : 1;
}

static void batchnorm_update_running(const tn_layer_call *call, int64_t lo, int64_t columns, const double *mean,
                                     const double *variance)
{
    const batchnorm *h = call->hyper;
    double rows = (double)call->x->shape[0];
    tn_real *running_mean = tn_reals(&call->buffer[RUNNING_MEAN]) + lo;
    tn_real *running_var = tn_reals(&call->buffer[RUNNING_VAR]) + lo;
    for (int64_t j = 0; rows > 1 && j < columns; j++) {
        double unbiased = variance[j] * rows / (rows - 1);
        running_mean[j] = (tn_real)((1 - h->momentum) * (double)running_mean[j] + h->momentum * mean[j]);
        running_var[j] = (tn_real)((1 - h->momentum) * (double)running_var[j] + h->momentum * unbiased);
    }
}

/* Mean and r of training: from the batch, also into saved and the running statistics. */
static void batchnorm_measure(const tn_layer_call *call, int64_t lo, int64_t columns, batchnorm_statistics *s)
{
    const batchnorm *h = call->hyper;
    int64_t channels = tn_columns(call->x);
    double *saved = (double *)call->saved->data + lo, variance[BLOCK];
    batchnorm_moments(call->x->shape[0], channels, columns, tn_reals(call->x) + lo, s->mean, variance);
    for (int64_t j = 0; j < columns; j++) {
        s->r[j] = 1 / sqrt(variance[j] + h->eps);
        saved[j] = s->mean[j];
        saved[channels + j] = s->r[j];
    }
    batchnorm_update_running(call, lo, columns, s->mean, variance);
}

/* Mean and r as known: what forward saved, or in evaluation the running ones. */
static void batchnorm_recall(const tn_layer_call *call, int64_t lo, int64_t columns, batchnorm_statistics *s)
{
    const batchnorm *h = call->hyper;
    for (int64_t j = 0; j < columns; j++)
        if (call->flags & TN_TRAIN) {
            s->mean[j] = ((const double *)call->saved->data)[lo + j];
            s->r[j] = ((const double *)call->saved->data)[tn_columns(call->x) + lo + j];
        } else {
            s->mean[j] = (double)tn_reals(&call->buffer[RUNNING_MEAN])[lo + j];
            s->r[j] = 1 / sqrt((double)tn_reals(&call->buffer[RUNNING_VAR])[lo + j] + h->eps);
        }
}

/* The map to n, without gain and shift. */
static void batchnorm_normal(const batchnorm_statistics *s, int64_t columns, batchnorm_map *map)
{
    for (int64_t j = 0; j < columns; j++) {
        map->high[j] = (tn_real)s->mean[j];
        map->low[j] = (tn_real)(s->mean[j] - (double)map->high[j]);
        map->scale[j] = (tn_real)s->r[j];
        map->shift[j] = 0;
    }
}

static void batchnorm_forward_block(const tn_layer_call *call, int64_t lo, int64_t columns)
{
    const batchnorm *h = call->hyper;
    batchnorm_statistics s;
    batchnorm_map map;
    if (call->flags & TN_TRAIN)
        batchnorm_measure(call, lo, columns, &s);
    else
        batchnorm_recall(call, lo, columns, &s);
    batchnorm_normal(&s, columns, &map);
    for (int64_t j = 0; h->affine && j < columns; j++) {
        map.scale[j] *= batchnorm_weight(call, lo + j);
        map.shift[j] = tn_reals(&call->parameter[BIAS])[lo + j];
    }
    batchnorm_apply(call->x->shape[0], tn_columns(call->x), columns, &map, tn_reals(call->x) + lo,
                    tn_reals(call->y) + lo);
}

static void batchnorm_set_gradients(const tn_layer_call *call, int64_t lo, int64_t columns, const double *sum,
                                    const double *sum_n)
{
    tn_real *dweight = tn_reals(&call->gradient[WEIGHT]) + lo, *dbias = tn_reals(&call->gradient[BIAS]) + lo;
    for (int64_t j = 0; j < columns; j++) {
        dweight[j] = tn_so_far(call, dweight[j]) + (tn_real)sum_n[j];
        dbias[j] = tn_so_far(call, dbias[j]) + (tn_real)sum[j];
    }
}

static void batchnorm_backward_block(const tn_layer_call *call, int64_t lo, int64_t columns)
{
    int64_t rows = call->x->shape[0], channels = tn_columns(call->x);
    const tn_real *x = tn_reals(call->x) + lo, *dy = tn_reals(call->dy) + lo;
    batchnorm_statistics s;
    batchnorm_map n;
    double sum[BLOCK], sum_n[BLOCK];
    tn_real gain[BLOCK], mean[BLOCK], mean_n[BLOCK];
    batchnorm_recall(call, lo, columns, &s);
    batchnorm_normal(&s, columns, &n);
    batchnorm_sums(rows, channels, columns, &n, x, dy, sum, sum_n);
    if (tn_wants_dw(call) && ((const batchnorm *)call->hyper)->affine)
        batchnorm_set_gradients(call, lo, columns, sum, sum_n);
    if (!tn_wants_dx(call))
        return;
    for (int64_t j = 0; j < columns; j++) {
        double share = call->flags & TN_TRAIN ? 1 / (double)rows : 0;
        gain[j] = n.scale[j] * batchnorm_weight(call, lo + j);
        mean[j] = (tn_real)(sum[j] * share);
        mean_n[j] = (tn_real)(sum_n[j] * share);
    }
    batchnorm_dx(rows, channels, columns, &n, gain, mean, mean_n, x, dy, tn_reals(call->dx) + lo);
}

/* ---- the calls ---- */

static void batchnorm_blocks(const tn_layer_call *call,
                             void (*work)(const tn_layer_call *, int64_t lo, int64_t columns))
{
    for (int64_t lo = call->lo, end = call->lo + call->n; lo < end; lo += BLOCK)
        work(call, lo, end - lo < BLOCK ? end - lo : BLOCK);
}

static void batchnorm_forward(const tn_layer_call *call) { batchnorm_blocks(call, batchnorm_forward_block); }
static void batchnorm_backward(const tn_layer_call *call) { batchnorm_blocks(call, batchnorm_backward_block); }

static const tn_layer batchnorm_table = {.struct_size = sizeof(tn_layer),
                                         .infer = batchnorm_infer,
                                         .forward = batchnorm_forward,
                                         .backward = batchnorm_backward,
                                         .check = batchnorm_check};

TN_COMPONENT(batchnorm, "normalizer", TN_LAYER, TN_REAL, HYPER, "batch normalisation of [batch, channels]",
             TN_AXIS("columns") TN_KEEPS("input") TN_PAPER("arXiv:1502.03167")
                 TN_FORMULA("y = weight (x - mean) / sqrt(variance + eps) + bias"),
             batchnorm_table);
TN_PLUGIN("org.tenon.batchnorm", "0.1.0", "Apache-2.0", batchnorm)
