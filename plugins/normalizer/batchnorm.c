/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch normalisation of [batch, channels]. Ioffe and Szegedy, arXiv:1502.03167:
 *   y = weight n + bias,  n = (x - mean) r,  r = 1 / sqrt(variance + eps), over the batch, the biased variance
 *   dx = weight r (dy - mean(dy) - n mean(dy n)); in evaluation mean and variance are constants: dx = weight r dy
 * The running variance takes the unbiased one, as in PyTorch. Sums are taken in double, in the order of the rows.
 *
 * With `sync` the batch is that of all processes. Rounds of forward: sums and counts; then, around the mean these give,
 * sums and squares. Round of backward: the sums of dy and dy n. Parameter gradients stay those of the rows at hand,
 * which whoever adds gradients over processes adds too.
 */
#include <tenon/layers.h>
#include <tenon/normalizer.h>

#define HYPER(X)                                                                                                       \
    X(fixed, eps, 1e-5, "(0, inf)", "added to the variance inside the root")                                           \
    X(real, momentum, 0.1, "[0, 1]", "weight of the new value in the running statistics")                              \
    X(flag, affine, true, "", "learn a gain and a shift")                                                              \
    X(flag, sync, false, "", "statistics over all processes that share a batch, not over this one's part")
TN_DECLARE(batchnorm, HYPER)

enum { WEIGHT, BIAS };
enum { RUNNING_MEAN, RUNNING_VAR };
enum { MEANS, RS, COUNTS, SAVED }; /* rows of the saved tensor; count: of values a channel */
#define BLOCK 64                   /* columns at a time */

static int32_t batchnorm_infer(const void *hyper, const tn_tensor *x, int32_t inputs, const tn_layer_planner *planner,
                               tn_error *err)
{
    int32_t status = tn_one_input("batchnorm", x, inputs, 2, err);
    if (status)
        return status;
    if (x->ndim != 2)
        return tn_fail(err, TN_E_INVALID, "batchnorm: the input has shape %s, needs [batch, channels]",
                       tn_shape(x).text);
    int64_t channels = tn_columns(x), saved[] = {SAVED, channels};
    if ((status = tn_plan_like(planner, x)) ||
        (status = planner->saved(planner->host, (tn_dtype){TN_FLOAT, 64, 1}, 2, saved)) ||
        (status = planner->buffer(planner->host, "running_mean", 1, &channels, 0)) ||
        (status = planner->buffer(planner->host, "running_var", 1, &channels, 1)))
        return status;
    return ((const batchnorm *)hyper)->affine ? tn_plan_affine(planner, channels) : TN_OK;
}

static int32_t batchnorm_check(const void *hyper, const tn_tensor *x, uint32_t flags, tn_error *err)
{
    int joint = ((const batchnorm *)hyper)->sync && (flags & TN_JOINT);
    if ((flags & TN_TRAIN) && x->shape[0] < 2 && !joint)
        return tn_fail(
            err, TN_E_INVALID,
            "batchnorm: a training batch of shape %s has one value a channel, whose variance is unknown; use "
            "batches of at least 2",
            tn_shape(x).text);
    return TN_OK;
}

/* ---- up to BLOCK columns ---- */

typedef struct {
    double mean[BLOCK], r[BLOCK], count[BLOCK];
} batchnorm_statistics;

/* y = (x - high - low) scale + shift */
typedef struct {
    tn_real high[BLOCK], low[BLOCK], scale[BLOCK], shift[BLOCK];
} batchnorm_map;

/* The sums of x less `around` and of its squares. */
TN_CLONES static void batchnorm_sum(int64_t rows, int64_t stride, int64_t columns, const double *restrict around,
                                    const tn_real *restrict x, double *restrict sum, double *restrict squares)
{
    for (int64_t j = 0; j < columns; j++)
        sum[j] = squares[j] = 0;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            double d = (double)x[i * stride + j] - around[j];
            sum[j] += d;
            squares[j] += d * d;
        }
}

/* Mean, and variance, from sums around a value near the mean: then the difference of squares loses no bits that count.
 */
static double batchnorm_mean(double around, double sum, double count) { return around + sum / count; }
static double batchnorm_variance(double sum, double squares, double count)
{
    double mean = sum / count;
    return fmax(squares / count - mean * mean, 0);
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

/* The weight w of what is new: 1 forgets even what was no number. */
static tn_real batchnorm_blend(tn_real old, double new, double w)
{
    return (tn_real)(w == 1 ? new : (1 - w) * (double)old + w *new);
}

static void batchnorm_update_running(const tn_layer_call *call, int64_t lo, int64_t columns,
                                     const batchnorm_statistics *s, const double *variance)
{
    double w = call->refresh > 0 ? 1 / (double)call->refresh : ((const batchnorm *)call->hyper)->momentum;
    tn_real *running_mean = tn_reals(&call->buffer[RUNNING_MEAN]) + lo;
    tn_real *running_var = tn_reals(&call->buffer[RUNNING_VAR]) + lo;
    for (int64_t j = 0; j < columns && !(call->flags & TN_FREEZE); j++) {
        double count = s->count[j];
        if (count < 2)
            continue;
        running_mean[j] = batchnorm_blend(running_mean[j], s->mean[j], w);
        running_var[j] = batchnorm_blend(running_var[j], variance[j] * count / (count - 1), w);
    }
}

/* Mean, count and biased variance of the rows at hand. */
static void batchnorm_own(const tn_layer_call *call, int64_t lo, int64_t columns, batchnorm_statistics *s,
                          double *variance)
{
    const tn_real *x = tn_reals(call->x) + lo;
    double around[BLOCK] = {0}, sum[BLOCK], squares[BLOCK], rows = (double)call->x->shape[0];
    for (int64_t j = 0; j < columns; j++)
        around[j] = (double)x[j]; /* no element is further from the mean than sqrt(rows) deviations */
    batchnorm_sum(call->x->shape[0], tn_columns(call->x), columns, around, x, sum, squares);
    for (int64_t j = 0; j < columns; j++) {
        s->count[j] = rows;
        s->mean[j] = batchnorm_mean(around[j], sum[j], rows);
        variance[j] = batchnorm_variance(sum[j], squares[j], rows);
    }
}

/* The rounds' sums, of two numbers a channel: sums, counts; sums around their mean, squares. */
static void batchnorm_joint(const tn_layer_call *call, int64_t lo, int64_t columns, batchnorm_statistics *s,
                            double *variance)
{
    int64_t channels = tn_columns(call->x);
    const double *first = call->sums + lo, *second = first + 2 * channels;
    for (int64_t j = 0; j < columns; j++) {
        double count = first[channels + j];
        s->count[j] = count;
        s->mean[j] = batchnorm_mean(first[j] / count, second[j], count);
        variance[j] = batchnorm_variance(second[j], second[channels + j], count);
    }
}

/* The statistics of training: from the batch, also into saved and the running ones. */
static void batchnorm_measure(const tn_layer_call *call, int64_t lo, int64_t columns, batchnorm_statistics *s)
{
    const batchnorm *h = call->hyper;
    int64_t channels = tn_columns(call->x);
    double *saved = (double *)call->saved->data + lo, variance[BLOCK];
    (call->sums ? batchnorm_joint : batchnorm_own)(call, lo, columns, s, variance);
    for (int64_t j = 0; j < columns; j++) {
        s->r[j] = 1 / sqrt(variance[j] + h->eps);
        saved[MEANS * channels + j] = s->mean[j];
        saved[RS * channels + j] = s->r[j];
        saved[COUNTS * channels + j] = s->count[j];
    }
    batchnorm_update_running(call, lo, columns, s, variance);
}

/* The statistics as known: what forward saved, or in evaluation the running ones, constants as of no batch. */
static void batchnorm_recall(const tn_layer_call *call, int64_t lo, int64_t columns, batchnorm_statistics *s)
{
    const batchnorm *h = call->hyper;
    int64_t channels = tn_columns(call->x);
    const double *saved = call->flags & TN_TRAIN ? (const double *)call->saved->data + lo : NULL;
    for (int64_t j = 0; j < columns; j++)
        if (saved) {
            s->mean[j] = saved[MEANS * channels + j];
            s->r[j] = saved[RS * channels + j];
            s->count[j] = saved[COUNTS * channels + j];
        } else {
            s->mean[j] = (double)tn_reals(&call->buffer[RUNNING_MEAN])[lo + j];
            s->r[j] = 1 / sqrt((double)tn_reals(&call->buffer[RUNNING_VAR])[lo + j] + h->eps);
            s->count[j] = INFINITY;
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
    const double *all = sum, *all_n = sum_n; /* over the whole batch */
    batchnorm_recall(call, lo, columns, &s);
    batchnorm_normal(&s, columns, &n);
    batchnorm_sums(rows, channels, columns, &n, x, dy, sum, sum_n);
    if (tn_wants_dw(call) && ((const batchnorm *)call->hyper)->affine)
        batchnorm_set_gradients(call, lo, columns, sum, sum_n);
    if (!tn_wants_dx(call))
        return;
    if (call->sums) {
        all = call->sums + lo;
        all_n = call->sums + channels + lo;
    }
    for (int64_t j = 0; j < columns; j++) {
        gain[j] = n.scale[j] * batchnorm_weight(call, lo + j);
        mean[j] = (tn_real)(all[j] / s.count[j]);
        mean_n[j] = (tn_real)(all_n[j] / s.count[j]);
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

/* ---- rounds ---- */

enum { SUMS_ROUND, SQUARES_ROUND, FORWARD_ROUNDS };

static int64_t batchnorm_count(const void *hyper, const tn_tensor *x, uint32_t flags)
{
    return ((const batchnorm *)hyper)->sync && (flags & TN_TRAIN) ? 2 * tn_columns(x) : 0;
}

static void batchnorm_forward_partial(const tn_layer_call *call, int32_t round, int64_t lo, int64_t columns,
                                      double *sums)
{
    int64_t rows = call->x->shape[0], channels = tn_columns(call->x);
    double around[BLOCK] = {0};
    for (int64_t j = 0; round == SQUARES_ROUND && j < columns; j++)
        around[j] = call->sums[lo + j] / call->sums[channels + lo + j];
    batchnorm_sum(rows, channels, columns, around, tn_reals(call->x) + lo, sums + lo, sums + channels + lo);
    for (int64_t j = 0; round == SUMS_ROUND && j < columns; j++)
        sums[channels + lo + j] = (double)rows;
}

static void batchnorm_backward_partial(const tn_layer_call *call, int64_t lo, int64_t columns, double *sums)
{
    int64_t channels = tn_columns(call->x);
    batchnorm_statistics s;
    batchnorm_map n;
    batchnorm_recall(call, lo, columns, &s);
    batchnorm_normal(&s, columns, &n);
    batchnorm_sums(call->x->shape[0], channels, columns, &n, tn_reals(call->x) + lo, tn_reals(call->dy) + lo, sums + lo,
                   sums + channels + lo);
}

static void batchnorm_partial(const tn_layer_call *call, int32_t round, double *sums)
{
    for (int64_t lo = call->lo, end = call->lo + call->n; lo < end; lo += BLOCK) {
        int64_t columns = end - lo < BLOCK ? end - lo : BLOCK;
        if (tn_reals(call->dy))
            batchnorm_backward_partial(call, lo, columns, sums);
        else
            batchnorm_forward_partial(call, round, lo, columns, sums);
    }
}

static const tn_layer_rounds batchnorm_rounds = {.struct_size = sizeof(tn_layer_rounds),
                                                 .forward = FORWARD_ROUNDS,
                                                 .backward = 1,
                                                 .count = batchnorm_count,
                                                 .partial = batchnorm_partial};

static const tn_layer batchnorm_table = {.struct_size = sizeof(tn_layer),
                                         .infer = batchnorm_infer,
                                         .forward = batchnorm_forward,
                                         .backward = batchnorm_backward,
                                         .check = batchnorm_check,
                                         .rounds = &batchnorm_rounds};

TN_COMPONENT(batchnorm, "normalizer", TN_LAYER, TN_REAL, HYPER, "batch normalisation of [batch, channels]",
             TN_AXIS("columns") TN_KEEPS("input") TN_PAPER("arXiv:1502.03167")
                 TN_FORMULA("y = weight (x - mean) / sqrt(variance + eps) + bias"),
             batchnorm_table);
TN_PLUGIN("org.tenon.batchnorm", "0.1.0", "Apache-2.0", batchnorm)
