/* SPDX-License-Identifier: Apache-2.0
 *
 * It centres columns over all processes, but in backward over its own rows.
 */
#include <tenon/layers.h>
#include <tenon/normalizer.h>

TN_DECLARE(joint, TN_NO_HYPER)

static int32_t joint_infer(const void *hyper, const tn_tensor *x, int32_t inputs, const tn_layer_planner *planner,
                           tn_error *err)
{
    (void)hyper;
    int32_t status = tn_one_input("joint", x, inputs, 2, err);
    if (status == TN_OK && x->ndim != 2)
        status = tn_fail(err, TN_E_INVALID, "joint: the input has shape %s, needs [batch, channels]", tn_shape(x).text);
    return status ? status : tn_plan_like(planner, x);
}

/* Of column j: the sum over all processes, and how many rows they have. */
static double joint_sum(const tn_layer_call *call, const tn_tensor *t, int64_t j, int own, double *ret_rows)
{
    int64_t columns = tn_columns(t), rows = t->shape[0];
    double sum = 0;
    if (call->sums && !own) {
        *ret_rows = call->sums[columns + j];
        return call->sums[j];
    }
    for (int64_t i = 0; i < rows; i++)
        sum += (double)tn_reals(t)[i * columns + j];
    *ret_rows = (double)rows;
    return sum;
}

static void joint_centre(const tn_layer_call *call, const tn_tensor *from, const tn_tensor *to, int own)
{
    int64_t columns = tn_columns(from), all = from->shape[0] * columns;
    for (int64_t j = call->lo; j < call->lo + call->n; j++) {
        double rows, sum = call->flags & TN_TRAIN ? joint_sum(call, from, j, own, &rows) : (rows = 1, 0);
        for (int64_t i = j; i < all; i += columns)
            tn_reals(to)[i] = (tn_real)((double)tn_reals(from)[i] - sum / rows);
    }
}

static void joint_forward(const tn_layer_call *call) { joint_centre(call, call->x, call->y, 0); }

static void joint_backward(const tn_layer_call *call)
{
#ifdef REPAIRED
    enum { OWN = 0 };
#else
    enum { OWN = 1 };
#endif
    if (tn_wants_dx(call))
        joint_centre(call, call->dy, call->dx, OWN);
}

static int64_t joint_count(const void *hyper, const tn_tensor *x, uint32_t flags)
{
    (void)hyper;
    return flags & TN_TRAIN ? 2 * tn_columns(x) : 0;
}

static void joint_partial(const tn_layer_call *call, int32_t round, double *sums)
{
    const tn_tensor *t = tn_reals(call->dy) ? call->dy : call->x;
    (void)round;
    for (int64_t j = call->lo; j < call->lo + call->n; j++)
        sums[j] = joint_sum(call, t, j, 1, &sums[tn_columns(t) + j]);
}

static const tn_layer_rounds joint_rounds = {.struct_size = sizeof(tn_layer_rounds),
                                             .forward = 1,
                                             .backward = 1,
                                             .count = joint_count,
                                             .partial = joint_partial};
static const tn_layer joint_table = {.struct_size = sizeof(tn_layer),
                                     .infer = joint_infer,
                                     .forward = joint_forward,
                                     .backward = joint_backward,
                                     .rounds = &joint_rounds};

TN_COMPONENT(joint, "layer", TN_LAYER, TN_REAL, TN_NO_HYPER, "a test", TN_AXIS("columns"), joint_table);
TN_PLUGIN("org.tenon.test.joint", "0.1.0", "Apache-2.0", joint)
