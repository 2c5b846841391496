/* SPDX-License-Identifier: Apache-2.0
 *
 * slope.c: derivatives of foreign functions.
 *
 * By differences: D = (8 (f(x + h) - f(x - h)) - (f(x + 2h) - f(x - 2h))) / 12h, whose error is h^4 f^(5)(x) / 30 and
 * about 1.5 |f| eps / h. h is a power of two for the type of the function, times the power of two above max(1, |x|) so
 * that x + h is exact; with these widths both errors are near 1e-12 for f64 and 3e-6 for f32.
 */
#include <math.h>

#include "host/foreign/internal.h"

static double width_of(const tn_signature *s)
{
    int32_t type = s->y >= 0 ? s->argument[s->y].type : s->result;
    if (s->x >= 0 && s->argument[s->x].type == TN_NUMBER_F32)
        type = TN_NUMBER_F32;
    return type == TN_NUMBER_F32 ? 0x1p-5 : 0x1p-10;
}

static double step_at(double x, double width)
{
    int exponent = 0;
    if (isfinite(x))
        frexp(x, &exponent);
    return ldexp(width, exponent > 0 ? exponent : 0);
}

void tn_slope_differences(const tn_foreign *foreign, double wide, int64_t n, const double *x, double *out)
{
    static const double places[] = {1, -1, 2, -2}, factors[] = {8, -8, -1, 1};
    double width = wide * width_of(&foreign->function.signature);
    double step[TN_EXPRESSION_RUN], at[TN_EXPRESSION_RUN], value[TN_EXPRESSION_RUN];
    for (int64_t i = 0; i < n; i++) {
        step[i] = step_at(x[i], width);
        out[i] = 0;
    }
    for (int k = 0; k < 4; k++) {
        for (int64_t i = 0; i < n; i++)
            at[i] = x[i] + places[k] * step[i];
        tn_function_f64(&foreign->function, n, at, value);
        for (int64_t i = 0; i < n; i++)
            out[i] += factors[k] * value[i];
    }
    for (int64_t i = 0; i < n; i++)
        out[i] /= 12 * step[i];
}

void tn_slope_f64(const tn_foreign *foreign, int64_t n, const double *x, const double *y, double *out)
{
    if (foreign->slope == TN_SLOPE_SYMBOL)
        tn_function_f64(&foreign->derivative, n, x, out);
    else if (foreign->slope == TN_SLOPE_EXPRESSION)
        tn_expression_f64(&foreign->expression, n, (const double *const[]){x, y}, out);
    else
        tn_slope_differences(foreign, 1, n, x, out);
}

void tn_slope_f32(const tn_foreign *foreign, int64_t n, const float *x, const float *y, float *out)
{
    double wide[TN_EXPRESSION_RUN] = {0}, slope[TN_EXPRESSION_RUN];
    if (foreign->slope == TN_SLOPE_SYMBOL) {
        tn_function_f32(&foreign->derivative, n, x, out);
    } else if (foreign->slope == TN_SLOPE_EXPRESSION) {
        tn_expression_f32(&foreign->expression, n, (const float *const[]){x, y}, out);
    } else {
        for (int64_t i = 0; i < n; i++)
            wide[i] = x[i];
        tn_slope_differences(foreign, 1, n, wide, slope);
        for (int64_t i = 0; i < n; i++)
            out[i] = (float)slope[i];
    }
}
