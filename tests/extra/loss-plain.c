/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of the graph: a loss that offers the least a loss can. The sum of the first logits.
 */
#include <tenon/loss.h>
#include <tenon/sdk.h>

TN_DECLARE(first_class, TN_NO_HYPER)

static int32_t first_class_check(const void *hyper, const tn_tensor *x, const tn_tensor *target, tn_error *err)
{
    (void)hyper;
    (void)target;
    return x->ndim == 2 ? TN_OK : tn_fail(err, TN_E_INVALID, "first-class takes [n, classes]");
}

static void first_class_evaluate(const tn_loss_call *call)
{
    int64_t classes = call->x->shape[1];
    const tn_real *x = (const tn_real *)call->x->data;
    tn_real *dx = call->dx ? (tn_real *)call->dx->data : NULL;
    call->sums[TN_SUM_LOSS] = 0;
    call->sums[TN_SUM_COUNT] = (double)call->n;
    for (int64_t i = call->lo; i < call->lo + call->n; i++) {
        call->sums[TN_SUM_LOSS] += (double)x[i * classes];
        for (int64_t c = 0; dx && c < classes; c++)
            dx[i * classes + c] = c == 0 ? (tn_real)call->seed : 0;
    }
}

static const tn_loss first_class_table = {
    .struct_size = sizeof(tn_loss), .check = first_class_check, .evaluate = first_class_evaluate};
TN_COMPONENT(first_class, "loss", TN_LOSS, TN_REAL, TN_NO_HYPER, "Sum of the first logits",
             TN_FACT("targets", "\"class\""), first_class_table);
TN_PLUGIN("org.tenon.test.first-class", "0.1.0", "Apache-2.0", first_class)
