/* SPDX-License-Identifier: Apache-2.0
 *
 * function.h: calling a foreign function over numbers. The usual shapes go through a pointer of their own type, all
 * others through libffi.
 *
 * Thread rule: calls are re-entrant as far as the function itself is; a finished tn_function is read-only.
 */
#ifndef TENON_HOST_FOREIGN_FUNCTION_H
#define TENON_HOST_FOREIGN_FUNCTION_H

#include <ffi.h>

#include "host/foreign/signature.h"

/* One argument or result as it is passed. */
typedef union tn_passed {
    float f32;
    double f64;
    int32_t i32;
    int64_t i64;
    uint32_t u32;
    uint64_t u64;
    const void *pointer;
    ffi_arg wide; /* libffi returns small integers in this */
} tn_passed;

typedef struct tn_function {
    void (*address)(void);
    tn_signature signature;
    int32_t shape; /* of function.c */
    tn_passed constant[TN_ARGUMENTS_MOST];
    ffi_type *types[TN_ARGUMENTS_MOST];
    ffi_cif cif; /* points into `types`: never copied */
} tn_function;

/* Makes a function of TN_FOR_ELEMENTS or TN_FOR_SCHEDULE callable. TN_E_UNSUPPORTED if libffi refuses the signature. */
int32_t tn_function_prepare(const tn_signature *signature, void (*address)(void), tn_function *ret, tn_error *err);

/* y[i] = f(x[i]), i < n. Where the function's type is another than the arrays', numbers are converted. An element-wise
 * function may have y == x; with arrays it must not. */
void tn_function_f32(const tn_function *function, int64_t n, const float *x, float *y);
void tn_function_f64(const tn_function *function, int64_t n, const double *x, double *y);

/* The value at a position: TN_POSITION_COUNT numbers. What is no integer loses its fraction where one is passed, and
 * what is too large becomes the largest. */
double tn_function_at(const tn_function *function, const double *position);

#endif
