/* SPDX-License-Identifier: Apache-2.0
 *
 * Squared error of a prediction, without a factor 1/2. The convention is named by the row `over`: of one sample,
 *   sum   loss = sum_j (x_j - t_j)^2
 *   mean  loss = sum_j (x_j - t_j)^2 / numbers
 * and, as every loss, its mean over samples. With c = 1 or 1 / numbers:
 *   dx = 2 c (x - t),  dx~ = 2 c x~
 * It is -log p, but for a constant, where t has the mean x and the variance 1 / (2 c); targets are drawn from that.
 */
#include <tenon/layers.h>
#include <tenon/loss.h>

#define HYPER(X) X(choice, over, sum, "sum | mean", "of the squares in one sample; mean divides by their number")
TN_DECLARE(mse, HYPER)
enum { MSE_SUM, MSE_MEAN };

enum { MAE = TN_SUM_FIRST, SUMS };

static int32_t mse_check(const void *hyper, const tn_tensor *x, const tn_tensor *target, tn_error *err)
{
    (void)hyper;
    int same = x->ndim == target->ndim && x->ndim >= 1;
    for (int32_t i = 0; same && i < x->ndim; i++)
        same = x->shape[i] == target->shape[i];
    if (!same)
        return tn_fail(err, TN_E_INVALID,
                       "mse: the prediction has shape %s and the target %s, needed twice the same, the batch first; "
                       "shapes are never broadcast",
                       tn_shape(x).text, tn_shape(target).text);
    if (target->dtype.code != TN_FLOAT || target->dtype.bits != TN_REAL)
        return tn_fail(
            err, TN_E_INVALID,
            "mse: targets have type code %d of %d bits, needed %d-bit numbers; classes go with cross-entropy",
            target->dtype.code, target->dtype.bits, TN_REAL);
    return TN_OK;
}

static int64_t mse_row(const tn_loss_call *call) { return tn_extent(call->x, 1, call->x->ndim); }

static double mse_factor(const tn_loss_call *call)
{
    int64_t n = mse_row(call);
    return ((const mse *)call->hyper)->over == MSE_MEAN && n ? 1 / (double)n : 1;
}

/* Sums of squares and of absolute values of x - target; dx = slope (x - target) unless that is NULL. */
TN_CLONES static void mse_add(int64_t n, const tn_real *restrict x, const tn_real *restrict target, double slope,
                              tn_real *restrict dx, double *restrict ret_squares, double *restrict ret_absolute)
{
    double squares[TN_SUM_LANES] = {0}, absolute[TN_SUM_LANES] = {0};
    tn_real factor = (tn_real)slope;
    for (int64_t lo = 0; lo < n; lo += TN_SUM_LANES) {
        tn_real d[TN_SUM_LANES] = {0};
        int64_t count = n - lo < TN_SUM_LANES ? n - lo : TN_SUM_LANES;
        for (int64_t j = 0; j < count; j++)
            d[j] = x[lo + j] - target[lo + j];
        for (int j = 0; j < TN_SUM_LANES; j++) {
            squares[j] += (double)d[j] * (double)d[j];
            absolute[j] += fabs((double)d[j]);
        }
        for (int64_t j = 0; dx && j < count; j++)
            dx[lo + j] = factor * d[j];
    }
    *ret_squares = tn_fold_lanes(squares);
    *ret_absolute = tn_fold_lanes(absolute);
}

static void mse_evaluate(const tn_loss_call *call)
{
    int64_t row = mse_row(call), at = call->lo * row;
    tn_real *dx = tn_reals(call->dx);
    double c = mse_factor(call), squares, absolute;
    mse_add(call->n * row, tn_reals(call->x) + at, tn_reals(call->target) + at, 2 * c * call->seed, dx ? dx + at : NULL,
            &squares, &absolute);
    call->sums[TN_SUM_LOSS] = c * squares;
    call->sums[TN_SUM_COUNT] = (double)call->n;
    call->sums[MAE] = row ? absolute / (double)row : 0;
}

static void mse_curvature(const tn_loss_call *call, const tn_tensor *tangent)
{
    int64_t row = mse_row(call), at = call->lo * row, n = call->n * row;
    tn_real slope = (tn_real)(2 * mse_factor(call) * call->seed), *dx = tn_reals(call->dx) + at;
    const tn_real *v = tn_reals(tangent) + at;
    for (int64_t i = 0; i < n; i++)
        dx[i] = slope * v[i];
}

/* Number i of the batch draws from block (attempt, i), by Box and Muller. */
static void mse_sample(const tn_loss_call *call, const tn_tensor *target)
{
    int64_t row = mse_row(call), lo = call->lo * row, hi = lo + call->n * row;
    double deviation = sqrt(0.5 / mse_factor(call));
    for (int64_t i = lo; i < hi; i++) {
        tn_random4 random = tn_philox(call->context->key, (uint64_t)call->context->attempt, (uint64_t)i);
        double radius = sqrt(-2 * log(((double)random.v[0] + 1) * 0x1p-32));
        double normal = radius * cos(6.283185307179586 * ((double)random.v[1] * 0x1p-32));
        tn_reals(target)[i] = (tn_real)((double)tn_reals(call->x)[i] + deviation * normal);
    }
}

static const tn_loss mse_table = {.struct_size = sizeof(tn_loss),
                                  .check = mse_check,
                                  .evaluate = mse_evaluate,
                                  .sample_targets = mse_sample,
                                  .curvature = mse_curvature};

TN_COMPONENT(mse, "loss", TN_LOSS, TN_REAL, HYPER, "squared error, summed over the numbers of a sample",
             TN_FACT("targets", "\"real\"") TN_FACT("metrics", "[\"mae\"]")
                 TN_FORMULA("loss = sum_j (x_j - t_j)^2, or that / numbers; mae = sum_j |x_j - t_j| / numbers"),
             mse_table);
TN_PLUGIN("org.tenon.mse", "0.1.0", "Apache-2.0", mse)
