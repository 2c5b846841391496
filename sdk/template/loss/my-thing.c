/* SPDX-License-Identifier: Apache-2.0
 *
 * Huber's loss (Annals of Mathematical Statistics 35, 1964), summed over the numbers of a sample: with e = x - t
 *   e^2 / 2 for |e| <= delta, else delta (|e| - delta / 2)
 */
#include <tenon/layers.h>
#include <tenon/loss.h>

#define HYPER(X) X(fixed, delta, 1, "(0, inf)", "error from which on the loss grows along a line")
TN_DECLARE(my_thing, HYPER)

/* May these shapes meet? */
static int32_t my_thing_check(const void *hyper, const tn_tensor *x, const tn_tensor *target, tn_error *err)
{
    int same = x->ndim == target->ndim && x->ndim >= 1;
    (void)hyper;
    for (int32_t i = 0; same && i < x->ndim; i++)
        same = x->shape[i] == target->shape[i];
    if (!same)
        return tn_fail(err, TN_E_INVALID, "my-thing: the prediction has shape %s and the target %s, needed the same",
                       tn_shape(x).text, tn_shape(target).text);
    if (target->dtype.code != TN_FLOAT || target->dtype.bits != TN_REAL)
        return tn_fail(err, TN_E_INVALID, "my-thing: targets are no %d-bit numbers; classes go with cross-entropy",
                       TN_REAL);
    return TN_OK;
}

/* Rows [lo, lo + n): sums of the loss, of targets and of the first metric; dx = seed times the sum's gradient. */
static void my_thing_evaluate(const tn_loss_call *call)
{
    double delta = ((const my_thing *)call->hyper)->delta, sum = 0, absolute = 0;
    int64_t row = tn_extent(call->x, 1, call->x->ndim);
    const tn_real *x = tn_reals(call->x), *target = tn_reals(call->target);
    tn_real *dx = tn_reals(call->dx);
    for (int64_t i = call->lo * row; i < (call->lo + call->n) * row; i++) {
        double e = (double)x[i] - (double)target[i], size = fabs(e);
        double slope = size <= delta ? e : e > 0 ? delta : e < 0 ? -delta : e; /* of NaN: NaN */
        sum += size <= delta ? e * e / 2 : delta * (size - delta / 2);
        absolute += size;
        if (dx)
            dx[i] = (tn_real)(call->seed * slope);
    }
    call->sums[TN_SUM_LOSS] = sum;
    call->sums[TN_SUM_COUNT] = (double)call->n;
    call->sums[TN_SUM_FIRST] = row > 0 ? absolute / (double)row : 0;
}

static const tn_loss my_thing_table = {
    .struct_size = sizeof(tn_loss), .check = TN_CALL(my_thing_check), .evaluate = TN_CALL(my_thing_evaluate)};
TN_COMPONENT(my_thing, "loss", TN_LOSS, TN_REAL, HYPER, "Huber's loss",
             TN_TEXT_FACT("targets", "real") TN_FACT("metrics", "[\"mae\"]") TN_PAPER("Huber 1964")
                 TN_FORMULA("e^2 / 2 for |e| <= delta, else delta (|e| - delta / 2)"),
             my_thing_table);
TN_PLUGIN("org.example.my-thing", "0.1.0", "Apache-2.0", my_thing)
