/* SPDX-License-Identifier: Apache-2.0
 *
 * Cross-entropy of a softmax over classes, with label smoothing (Szegedy et al., arXiv:1512.00567, section 7):
 *   q = (1 - smoothing) [class = target] + smoothing / classes,  loss = -sum q log softmax(x)
 *   dx = s - q,  dx~ = s (x~ - s . x~),  s = softmax(x)
 * In terms of d = x - max(x): loss = log(sum exp d) - (1 - smoothing) d[target] - smoothing mean(d). Targets below 0
 * are ignored. A target that is no class makes loss and gradient of its row NaN.
 */
#include <tenon/layers.h>
#include <tenon/loss.h>

#define HYPER(X) X(real, smoothing, 0, "[0, 1]", "part of the target that is spread over all classes")
TN_DECLARE(cross_entropy, HYPER)

enum { CORRECT = TN_SUM_FIRST, SUMS };
#define RUN 256 /* logits at a time; a multiple of TN_SUM_LANES */

static int32_t cross_entropy_check(const void *hyper, const tn_tensor *x, const tn_tensor *target, tn_error *err)
{
    (void)hyper;
    if (x->ndim != 2 || target->ndim != 1 || x->shape[0] != target->shape[0] || x->shape[1] < 1)
        return tn_fail(
            err, TN_E_INVALID,
            "cross-entropy: the prediction has shape %s and the target %s, needed [n, classes] and [n]; shapes "
            "are never broadcast",
            tn_shape(x).text, tn_shape(target).text);
    if (target->dtype.code != TN_INT || target->dtype.bits != 32)
        return tn_fail(err, TN_E_INVALID, "cross-entropy: targets have type code %d of %d bits, needed int32 class ids",
                       target->dtype.code, target->dtype.bits);
    return TN_OK;
}

/* ---- one row of n logits ---- */

typedef struct {
    tn_real max;
    double exp_sum, d_sum; /* of exp(x - max), of x - max */
} cross_entropy_row;

TN_INLINE tn_real cross_entropy_max(int64_t n, const tn_real *restrict x)
{
    tn_real lanes[TN_LANES], max = -(tn_real)INFINITY;
    int64_t i = 0;
    for (int j = 0; j < TN_LANES; j++)
        lanes[j] = max;
    for (; i + TN_LANES <= n; i += TN_LANES)
        for (int j = 0; j < TN_LANES; j++)
            lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
    for (; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (int j = 0; j < TN_LANES; j++)
        max = lanes[j] > max ? lanes[j] : max;
    return max;
}

/* d and exp(d) of a run; both 0 from n to the next multiple of TN_SUM_LANES, which is returned. */
TN_INLINE int64_t cross_entropy_exp(int64_t n, tn_real max, const tn_real *restrict x, tn_real *restrict d,
                                    tn_real *restrict e)
{
    int64_t padded = (n + TN_SUM_LANES - 1) & -TN_SUM_LANES;
    for (int64_t j = 0; j < n; j++)
        d[j] = x[j] - max;
    for (int64_t j = n; j < padded; j++)
        d[j] = -(tn_real)INFINITY;
    for (int64_t j = 0; j < padded; j++)
        e[j] = tn_exp(d[j]);
    for (int64_t j = n; j < padded; j++)
        d[j] = 0;
    return padded;
}

TN_INLINE void cross_entropy_lanes(int64_t n, const tn_real *restrict x, double *restrict lanes)
{
    for (int64_t i = 0; i < n; i += TN_SUM_LANES)
        for (int j = 0; j < TN_SUM_LANES; j++)
            lanes[j] += (double)x[i + j];
}

/* Leaves exp(d) in `e` unless that is NULL. */
TN_INLINE cross_entropy_row cross_entropy_read(int64_t n, const tn_real *restrict x, tn_real *restrict e)
{
    tn_real max = cross_entropy_max(n, x), d[RUN], run[RUN];
    double exp_lanes[TN_SUM_LANES] = {0}, d_lanes[TN_SUM_LANES] = {0};
    for (int64_t lo = 0; lo < n; lo += RUN) {
        int64_t count = n - lo < RUN ? n - lo : RUN, padded = cross_entropy_exp(count, max, x + lo, d, run);
        cross_entropy_lanes(padded, run, exp_lanes);
        cross_entropy_lanes(padded, d, d_lanes);
        if (e)
            memcpy(e + lo, run, (size_t)count * sizeof *e);
    }
    return (cross_entropy_row){max, tn_fold_lanes(exp_lanes), tn_fold_lanes(d_lanes)};
}

/* Is `target` the first class with the largest logit? */
TN_INLINE int cross_entropy_correct(const tn_real *x, int32_t target, tn_real max)
{
    int64_t first = 0;
    while (first < target && x[first] != max)
        first++;
    return first == target && x[target] == max;
}

/* dx from exp(d), in place. */
TN_INLINE void cross_entropy_gradient(int64_t n, double exp_sum, int32_t target, double smoothing, double seed,
                                      tn_real *restrict dx)
{
    tn_real factor = (tn_real)(seed / exp_sum), spread = (tn_real)(seed * smoothing / (double)n);
    for (int64_t j = 0; j < n; j++)
        dx[j] = dx[j] * factor - spread;
    dx[target] -= (tn_real)(seed * (1 - smoothing));
}

TN_INLINE void cross_entropy_fill(int64_t n, tn_real value, tn_real *dx)
{
    for (int64_t j = 0; dx && j < n; j++)
        dx[j] = value;
}

TN_INLINE void cross_entropy_add(int64_t n, const tn_real *x, int32_t target, double smoothing, double seed,
                                 tn_real *dx, double *sums)
{
    if (target < 0) {
        cross_entropy_fill(n, 0, dx);
        return;
    }
    sums[TN_SUM_COUNT] += 1;
    if (target >= n) {
        sums[TN_SUM_LOSS] += NAN;
        cross_entropy_fill(n, NAN, dx);
        return;
    }
    cross_entropy_row row = cross_entropy_read(n, x, dx);
    double spread = smoothing > 0 ? smoothing * row.d_sum / (double)n : 0; /* no 0 * -inf */
    sums[TN_SUM_LOSS] += log(row.exp_sum) - (1 - smoothing) * (double)(x[target] - row.max) - spread;
    sums[CORRECT] += cross_entropy_correct(x, target, row.max);
    if (dx)
        cross_entropy_gradient(n, row.exp_sum, target, smoothing, seed, dx);
}

/* ---- the calls ---- */

TN_CLONES static void cross_entropy_rows(int64_t rows, int64_t n, const tn_real *x, const int32_t *target,
                                         double smoothing, double seed, tn_real *dx, double *sums)
{
    for (int64_t r = 0; r < rows; r++)
        cross_entropy_add(n, x + r * n, target[r], smoothing, seed, dx ? dx + r * n : NULL, sums);
}

static void cross_entropy_evaluate(const tn_loss_call *call)
{
    int64_t n = tn_columns(call->x);
    tn_real *dx = tn_reals(call->dx);
    for (int s = 0; s < SUMS; s++)
        call->sums[s] = 0;
    cross_entropy_rows(call->n, n, tn_reals(call->x) + call->lo * n, (const int32_t *)call->target->data + call->lo,
                       ((const cross_entropy *)call->hyper)->smoothing, call->seed, dx ? dx + call->lo * n : NULL,
                       call->sums);
}

/* dx = seed s (v - s . v) of one row, where s is the softmax. */
TN_INLINE void cross_entropy_curve(int64_t n, const tn_real *restrict x, int32_t target, double seed,
                                   const tn_real *restrict v, tn_real *restrict dx)
{
    double lanes[TN_SUM_LANES] = {0};
    if (target < 0 || target >= n) {
        cross_entropy_fill(n, target < 0 ? 0 : NAN, dx);
        return;
    }
    cross_entropy_row row = cross_entropy_read(n, x, dx);
    for (int64_t j = 0; j < n; j++)
        lanes[j % TN_SUM_LANES] += (double)dx[j] * (double)v[j];
    tn_real mean = (tn_real)(tn_fold_lanes(lanes) / row.exp_sum), factor = (tn_real)(seed / row.exp_sum);
    for (int64_t j = 0; j < n; j++)
        dx[j] = factor * dx[j] * (v[j] - mean);
}

TN_CLONES static void cross_entropy_curve_rows(int64_t rows, int64_t n, const tn_real *x, const int32_t *target,
                                               double seed, const tn_real *v, tn_real *dx)
{
    for (int64_t r = 0; r < rows; r++)
        cross_entropy_curve(n, x + r * n, target[r], seed, v + r * n, dx + r * n);
}

static void cross_entropy_curvature(const tn_loss_call *call, const tn_tensor *tangent)
{
    int64_t n = tn_columns(call->x), at = call->lo * n;
    cross_entropy_curve_rows(call->n, n, tn_reals(call->x) + at, (const int32_t *)call->target->data + call->lo,
                             call->seed, tn_reals(tangent) + at, tn_reals(call->dx) + at);
}

/* The first class at which the running sum of exp(d) passes `level`, in [0, 1), of the whole. */
TN_CLONES static int32_t cross_entropy_draw(int64_t n, const tn_real *restrict x, double level)
{
    tn_real max = cross_entropy_max(n, x), d[RUN], e[RUN];
    double total = 0, sum = 0;
    for (int64_t lo = 0; lo < n; lo += RUN) {
        int64_t count = n - lo < RUN ? n - lo : RUN;
        cross_entropy_exp(count, max, x + lo, d, e);
        for (int64_t j = 0; j < count; j++)
            total += (double)e[j];
    }
    for (int64_t lo = 0; lo < n; lo += RUN) {
        int64_t count = n - lo < RUN ? n - lo : RUN;
        cross_entropy_exp(count, max, x + lo, d, e);
        for (int64_t j = 0; j < count; j++)
            if ((sum += (double)e[j]) > level * total)
                return (int32_t)(lo + j);
    }
    return 0; /* logits that are not numbers */
}

/* Row i draws from block (attempt, i). Ignored rows stay ignored. */
static void cross_entropy_sample(const tn_loss_call *call, const tn_tensor *target)
{
    int64_t n = tn_columns(call->x);
    for (int64_t i = call->lo; i < call->lo + call->n; i++) {
        int32_t given = ((const int32_t *)call->target->data)[i];
        tn_random4 random = tn_philox(call->context->key, (uint64_t)call->context->attempt, (uint64_t)i);
        double level = (double)((uint64_t)random.v[0] << 21 | random.v[1] >> 11) * 0x1p-53;
        ((int32_t *)target->data)[i] = given < 0 ? given : cross_entropy_draw(n, tn_reals(call->x) + i * n, level);
    }
}

static const tn_loss cross_entropy_table = {.struct_size = sizeof(tn_loss),
                                            .check = cross_entropy_check,
                                            .evaluate = cross_entropy_evaluate,
                                            .sample_targets = cross_entropy_sample,
                                            .curvature = cross_entropy_curvature};

TN_COMPONENT(cross_entropy, "loss", TN_LOSS, TN_REAL, HYPER, "cross-entropy of a softmax, with label smoothing",
             TN_FACT("targets", "\"class\"") TN_FACT("metrics", "[\"accuracy\"]")
                 TN_FORMULA("loss = -sum q log softmax(x), q = (1 - smoothing) [target] + smoothing / classes"),
             cross_entropy_table);
TN_PLUGIN("org.tenon.cross-entropy", "0.1.0", "Apache-2.0", cross_entropy)
