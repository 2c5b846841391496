/* SPDX-License-Identifier: Apache-2.0
 *
 * Multiplicative Gaussian noise (Srivastava et al., JMLR 15, 2014, section 10):  y = x (1 + sqrt(p / (1 - p)) n) in
 * training, n standard normal, which has the variance that dropout with probability p has.
 */
#include <tenon/layers.h>

#define HYPER(X) X(real, p, 0.1, "[0, 1)", "probability of the dropout that the noise stands for")
TN_DECLARE(my_thing, HYPER)

/* Output of the input's shape, and the factor of each element, kept for backward. */
static int32_t my_thing_infer(const void *hyper, const tn_tensor *x, int32_t inputs, const tn_layer_planner *planner,
                              tn_error *err)
{
    const tn_dtype real = {0, 0, 0}; /* the real type */
    int32_t status = tn_element_infer("my-thing", x, inputs, planner, err);
    (void)hyper;
    return status ? status : planner->saved(planner->host, real, x->ndim, x->shape);
}

/* A draw for element i depends on nothing but the key, the attempt and i, so neither cuts nor replays change it. */
static double my_thing_normal(const tn_context *context, int64_t i)
{
    tn_random4 random = tn_philox(context->key, (uint64_t)context->attempt, (uint64_t)i);
    double radius = sqrt(-2 * log(((double)random.v[0] + 1) * 0x1p-32));
    return radius * cos(6.283185307179586 * ((double)random.v[1] * 0x1p-32));
}

static int my_thing_is_on(const tn_layer_call *call)
{
    return (call->flags & TN_TRAIN) && ((const my_thing *)call->hyper)->p > 0;
}

static void my_thing_forward(const tn_layer_call *call)
{
    double p = ((const my_thing *)call->hyper)->p, deviation = sqrt(p / (1 - p));
    const tn_real *x = tn_reals(call->x);
    tn_real *y = tn_reals(call->y), *factor = tn_reals(&call->saved[0]);
    for (int64_t i = call->lo; i < call->lo + call->n; i++) {
        if (my_thing_is_on(call))
            factor[i] = (tn_real)(1 + deviation * my_thing_normal(call->context, i));
        y[i] = my_thing_is_on(call) ? factor[i] * x[i] : x[i];
    }
}

static void my_thing_backward(const tn_layer_call *call)
{
    const tn_real *dy = tn_reals(call->dy), *factor = tn_reals(&call->saved[0]);
    for (int64_t i = call->lo; tn_wants_dx(call) && i < call->lo + call->n; i++)
        tn_reals(call->dx)[i] = my_thing_is_on(call) ? factor[i] * dy[i] : dy[i];
}

static const tn_layer my_thing_table = {.struct_size = sizeof(tn_layer),
                                        .infer = TN_CALL(my_thing_infer),
                                        .forward = TN_CALL(my_thing_forward),
                                        .backward = TN_CALL(my_thing_backward)};
TN_COMPONENT(my_thing, "regularizer", TN_LAYER, TN_REAL, HYPER, "Multiplicative Gaussian noise",
             TN_AXIS("elements") TN_KEEPS("none") TN_IN_PLACE(true) TN_PAPER("Srivastava et al., JMLR 15, 2014")
                 TN_FORMULA("y = x (1 + sqrt(p / (1 - p)) normal)"),
             my_thing_table);
TN_PLUGIN("org.example.my-thing", "0.1.0", "Apache-2.0", my_thing)
