/* SPDX-License-Identifier: Apache-2.0
 *
 * activation.c: y = f(x), dx = dy f'(x), of a foreign function.
 */
#include <tenon/layer.h>

#include "host/foreign/internal.h"

static int32_t activation_infer(const void *hyper, const tn_tensor *x, int32_t inputs, const tn_layer_planner *planner,
                                tn_error *err)
{
    if (!((const tn_ffi_activation *)hyper)->foreign)
        return tn_error_set(err, TN_E_INTERNAL, "ffi: the function was not bound");
    if (inputs != 1)
        return tn_error_set(err, TN_E_INVALID, "ffi: has %d inputs, needs one", inputs);
    return planner->output(planner->host, x->ndim, x->shape);
}

static void activation_forward(const tn_layer_call *call)
{
    const tn_foreign *foreign = ((const tn_ffi_activation *)call->hyper)->foreign;
    if (foreign->real == 64)
        tn_function_f64(&foreign->function, call->n, (const double *)call->x->data + call->lo,
                        (double *)call->y->data + call->lo);
    else
        tn_function_f32(&foreign->function, call->n, (const float *)call->x->data + call->lo,
                        (float *)call->y->data + call->lo);
}

#define BACKWARD(real, slope)                                                                                          \
    {                                                                                                                  \
        const real *x = (const real *)call->x->data + lo, *y = (const real *)call->y->data + lo;                       \
        const real *dy = (const real *)call->dy->data + lo;                                                            \
        real *dx = (real *)call->dx->data + lo, run[TN_EXPRESSION_RUN];                                                \
        slope(foreign, n, x, y, run);                                                                                  \
        for (int64_t i = 0; i < n; i++)                                                                                \
            dx[i] = dy[i] * run[i];                                                                                    \
    }

static void activation_backward(const tn_layer_call *call)
{
    const tn_foreign *foreign = ((const tn_ffi_activation *)call->hyper)->foreign;
    if (!(call->flags & TN_WANT_DX) || !call->dx->data)
        return;
    for (int64_t lo = call->lo, end = call->lo + call->n; lo < end; lo += TN_EXPRESSION_RUN) {
        int64_t n = end - lo < TN_EXPRESSION_RUN ? end - lo : TN_EXPRESSION_RUN;
        if (foreign->real == 64)
            BACKWARD(double, tn_slope_f64)
        else
            BACKWARD(float, tn_slope_f32)
    }
}

static const tn_layer activation_table = {
    sizeof(tn_layer), 0, activation_infer, activation_forward, activation_backward, NULL, NULL, NULL};
TN_COMPONENT(ffi, "activation", TN_LAYER, 0u, TN_ACTIVATION_ROWS, "A C function of any library, element by element",
             TN_TEXT_FACT("axis", "elements") TN_TEXT_FACT("keeps", "both") TN_FORMULA("y = f(x)"), activation_table);
const tn_component *const tn_foreign_activation = &ffi_component;
