/* SPDX-License-Identifier: Apache-2.0
 *
 * drop.h: a good dropout of one half, in place, in which parts may be replaced before this file is included, to be
 * wrong in one way.
 */
#ifndef TENON_TESTS_BAD_DROP_H
#define TENON_TESTS_BAD_DROP_H

#include <tenon/layers.h>

#ifndef DROP_ATTEMPT
#define DROP_ATTEMPT(call) (call)->context->attempt
#endif
#ifndef DROP_SCALE
#define DROP_SCALE 2
#endif
#ifndef DROP_BEFORE /* (y, x): before y[i] is set */
#define DROP_BEFORE(y, x)
#endif

TN_DECLARE(drop, TN_NO_HYPER)

static int32_t drop_infer(const void *hyper, const tn_tensor *x, int32_t inputs, const tn_layer_planner *planner,
                          tn_error *err)
{
    (void)hyper;
    return tn_element_infer("drop", x, inputs, planner, err);
}

static tn_real drop_factor(const tn_layer_call *call, int64_t i)
{
    if (!(call->flags & TN_TRAIN))
        return 1;
    return tn_philox(call->context->key, (uint64_t)DROP_ATTEMPT(call), (uint64_t)i).v[0] & 1 ? DROP_SCALE : 0;
}

static void drop_apply(const tn_layer_call *call, const tn_real *x, tn_real *y)
{
    for (int64_t i = call->lo; i < call->lo + call->n; i++) {
        tn_real factor = drop_factor(call, i);
        DROP_BEFORE(y + i, x + i)
        y[i] = factor != 0 ? factor * x[i] : 0;
    }
}

static void drop_forward(const tn_layer_call *call) { drop_apply(call, tn_reals(call->x), tn_reals(call->y)); }

static void drop_backward(const tn_layer_call *call)
{
    if (tn_wants_dx(call))
        drop_apply(call, tn_reals(call->dy), tn_reals(call->dx));
}

static const tn_layer drop_table = {
    .struct_size = sizeof(tn_layer), .infer = drop_infer, .forward = drop_forward, .backward = drop_backward};

TN_COMPONENT(drop, "regularizer", TN_LAYER, TN_REAL, TN_NO_HYPER, "a test",
             TN_AXIS("elements") TN_KEEPS("none") TN_IN_PLACE(true), drop_table);
TN_PLUGIN("org.tenon.test.drop", "0.1.0", "Apache-2.0", drop)

#endif
