/* SPDX-License-Identifier: Apache-2.0
 *
 * loss.h: a good loss, softmax cross-entropy as plain as can be, in which parts may be replaced before this file is
 * included, to be wrong in one way.
 */
#ifndef TENON_TESTS_BAD_LOSS_H
#define TENON_TESTS_BAD_LOSS_H

#include <tenon/layers.h>
#include <tenon/loss.h>

#ifndef LOSS_FITS /* (x, target): do the shapes fit? */
#define LOSS_FITS(x, target)                                                                                           \
    ((x)->ndim == 2 && (target)->ndim == 1 && (x)->shape[0] == (target)->shape[0] && (target)->dtype.code == TN_INT)
#endif
#ifndef LOSS_AFTER /* (call): behind evaluate */
#define LOSS_AFTER(call)
#endif
#ifndef LOSS_TARGET /* (call, i): of row i */
#define LOSS_TARGET(call, i) ((const int32_t *)(call)->target->data)[i]
#endif
#ifndef LOSS_IGNORES /* (target) */
#define LOSS_IGNORES(target) ((target) < 0)
#endif
#ifndef LOSS_IS_CLASS /* (target, classes) */
#define LOSS_IS_CLASS(target, classes) ((target) < (classes))
#endif
#ifndef LOSS_SEED
#define LOSS_SEED(call) (call)->seed
#endif
#ifndef LOSS_CURVED /* of curvature */
#define LOSS_CURVED 1
#endif
#ifndef LOSS_LEVEL /* (level): where on [0, 1) the draw is */
#define LOSS_LEVEL(level) (level)
#endif
#ifndef LOSS_SUMS /* (call): how sums begin */
#define LOSS_SUMS(call) (call)->sums[0] = (call)->sums[1] = 0;
#endif
#ifndef LOSS_VALUE /* (loss) */
#define LOSS_VALUE(loss) (loss)
#endif

TN_DECLARE(surprise, TN_NO_HYPER)

static int32_t surprise_check(const void *hyper, const tn_tensor *x, const tn_tensor *target, tn_error *err)
{
    (void)hyper;
    if (!(LOSS_FITS(x, target)))
        return tn_fail(err, TN_E_INVALID, "surprise: %s and %s do not fit", tn_shape(x).text, tn_shape(target).text);
    return TN_OK;
}

static double surprise_max(const tn_real *x, int64_t n)
{
    double max = (double)x[0];
    for (int64_t j = 1; j < n; j++)
        max = (double)x[j] > max ? (double)x[j] : max;
    return max;
}

static double surprise_total(const tn_real *x, int64_t n, double max)
{
    double total = 0;
    for (int64_t j = 0; j < n; j++)
        total += exp((double)x[j] - max);
    return total;
}

static void surprise_row(const tn_loss_call *call, int64_t i)
{
    int64_t n = tn_columns(call->x);
    const tn_real *x = tn_reals(call->x) + i * n;
    tn_real *dx = call->dx ? tn_reals(call->dx) + i * n : NULL;
    int32_t target = LOSS_TARGET(call, i);
    int ignored = LOSS_IGNORES(target), known = !ignored && LOSS_IS_CLASS(target, n);
    double max = surprise_max(x, n), total = surprise_total(x, n, max);
    for (int64_t j = 0; dx && j < n; j++)
        dx[j] = (tn_real)(ignored  ? 0
                          : !known ? NAN
                                   : LOSS_SEED(call) * (exp((double)x[j] - max) / total - (j == target)));
    if (ignored)
        return;
    call->sums[TN_SUM_LOSS] += LOSS_VALUE(known ? log(total) + max - (double)x[target] : NAN);
    call->sums[TN_SUM_COUNT] += 1;
}

static void surprise_evaluate(const tn_loss_call *call)
{
    LOSS_SUMS(call)
    for (int64_t i = call->lo; i < call->lo + call->n; i++)
        surprise_row(call, i);
    LOSS_AFTER(call)
}

static void surprise_curvature(const tn_loss_call *call, const tn_tensor *tangent)
{
    int64_t n = tn_columns(call->x);
    for (int64_t i = call->lo; i < call->lo + call->n; i++) {
        const tn_real *x = tn_reals(call->x) + i * n, *v = tn_reals(tangent) + i * n;
        double max = surprise_max(x, n), total = surprise_total(x, n, max), mean = 0;
        for (int64_t j = 0; j < n; j++)
            mean += exp((double)x[j] - max) / total * (double)v[j];
        for (int64_t j = 0; j < n; j++)
            tn_reals(call->dx)[i * n + j] =
                (tn_real)(LOSS_CURVED * call->seed * exp((double)x[j] - max) / total * ((double)v[j] - mean));
    }
}

static void surprise_sample(const tn_loss_call *call, const tn_tensor *target)
{
    int64_t n = tn_columns(call->x);
    for (int64_t i = call->lo; i < call->lo + call->n; i++) {
        const tn_real *x = tn_reals(call->x) + i * n;
        tn_random4 random = tn_philox(call->context->key, (uint64_t)call->context->attempt, (uint64_t)i);
        double max = surprise_max(x, n), total = surprise_total(x, n, max), sum = 0;
        int32_t given = ((const int32_t *)call->target->data)[i], drawn = 0;
        for (int64_t j = 0; j < n && sum <= total * LOSS_LEVEL((double)tn_uniform(random.v[0])); j++) {
            sum += exp((double)x[j] - max);
            drawn = (int32_t)j;
        }
        ((int32_t *)target->data)[i] = given < 0 ? given : drawn;
    }
}

static const tn_loss surprise_table = {.struct_size = sizeof(tn_loss),
                                       .check = surprise_check,
                                       .evaluate = surprise_evaluate,
                                       .sample_targets = surprise_sample,
                                       .curvature = surprise_curvature};

TN_COMPONENT(surprise, "loss", TN_LOSS, TN_REAL, TN_NO_HYPER, "a test", TN_FACT("targets", "\"class\""),
             surprise_table);
TN_PLUGIN("org.tenon.test.surprise", "0.1.0", "Apache-2.0", surprise)

#endif
