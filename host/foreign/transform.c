/* SPDX-License-Identifier: Apache-2.0
 *
 * transform.c: the gradient through a foreign function, element by element.
 */
#include <tenon/rule.h>

#include "host/foreign/internal.h"

#define RUN 256 /* elements of a call */

static int32_t transform_plan(const tn_parameter *parameter, const void *hyper, const tn_slot_planner *planner,
                              tn_error *err)
{
    (void)parameter, (void)planner;
    if (!((const tn_ffi_transform *)hyper)->foreign)
        return tn_error_set(err, TN_E_INTERNAL, "ffi: the function was not bound");
    return TN_OK;
}

#define UPDATE(real, call)                                                                                             \
    {                                                                                                                  \
        const real *g = (const real *)piece->g + lo, scale = (real)piece->scale;                                       \
        real run[RUN];                                                                                                 \
        for (int64_t i = 0; i < n; i++)                                                                                \
            run[i] = scale * g[i];                                                                                     \
        call(&foreign->function, n, run, (real *)piece->d + lo);                                                       \
    }

static void transform_update(const tn_piece *piece)
{
    const tn_foreign *foreign = ((const tn_ffi_transform *)piece->hyper)->foreign;
    int64_t end = tn_piece_elements(piece);
    for (int64_t lo = 0; lo < end; lo += RUN) {
        int64_t n = end - lo < RUN ? end - lo : RUN;
        if (foreign->real == 64)
            UPDATE(double, tn_function_f64)
        else
            UPDATE(float, tn_function_f32)
    }
}

static const tn_optimizer transform_table = {
    .struct_size = sizeof(tn_optimizer), .plan = transform_plan, .update = transform_update};
TN_COMPONENT(ffi, "transform", TN_OPTIMIZER, 0u, TN_FOREIGN_ROWS,
             "The gradient through a C function of any library, element by element",
             TN_STAGE("gradient") TN_GRAIN("element") TN_FORMULA("g = f(g)"), transform_table);
const tn_component *const tn_foreign_transform = &ffi_component;
