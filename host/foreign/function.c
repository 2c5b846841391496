/* SPDX-License-Identifier: Apache-2.0
 *
 * function.c: calling a foreign function over numbers.
 */
#include "host/foreign/function.h"

#include <math.h>
#include <string.h>

#define SHAPE_FFI      0
#define SHAPE_F32      1 /* f32(f32) */
#define SHAPE_F64      2 /* f64(f64) */
#define SHAPE_F32_X_C  3 /* f32(f32, f32 = c) */
#define SHAPE_F32_C_X  4
#define SHAPE_F64_X_C  5
#define SHAPE_F64_C_X  6
#define SHAPE_ARRAY    7 /* void(...): one call for many elements */
#define CONVERTED_MOST 512

static tn_passed passed(int32_t type, double value)
{
    tn_passed ret = {.u64 = 0};
    switch (type) {
    case TN_NUMBER_F32:
        ret.f32 = (float)value;
        break;
    case TN_NUMBER_F64:
        ret.f64 = value;
        break;
    case TN_NUMBER_I32:
        ret.i32 = value >= INT32_MAX ? INT32_MAX : value > INT32_MIN ? (int32_t)value : INT32_MIN;
        break;
    case TN_NUMBER_I64:
        ret.i64 = value >= 0x1p63 ? INT64_MAX : value > -0x1p63 ? (int64_t)value : INT64_MIN;
        break;
    case TN_NUMBER_U32:
        ret.u32 = value >= UINT32_MAX ? UINT32_MAX : value > 0 ? (uint32_t)value : 0;
        break;
    case TN_NUMBER_U64:
        ret.u64 = value >= 0x1p64 ? UINT64_MAX : value > 0 ? (uint64_t)value : 0;
        break;
    }
    return ret;
}

static double returned(int32_t type, tn_passed value)
{
    switch (type) {
    case TN_NUMBER_F32:
        return value.f32;
    case TN_NUMBER_I32:
        return (int32_t)value.wide;
    case TN_NUMBER_I64:
        return (double)value.i64;
    case TN_NUMBER_U32:
        return (uint32_t)value.wide;
    case TN_NUMBER_U64:
        return (double)value.u64;
    default:
        return value.f64;
    }
}

static ffi_type *ffi_type_of(int32_t type)
{
    ffi_type *const types[] = {&ffi_type_void,   &ffi_type_float,  &ffi_type_double, &ffi_type_sint32,
                               &ffi_type_sint64, &ffi_type_uint32, &ffi_type_uint64};
    return types[type];
}

/* ---- preparing ---- */

static int32_t shape_of(const tn_signature *s)
{
    if (s->y >= 0)
        return SHAPE_ARRAY;
    if (s->x < 0 || s->count > 2 || (s->result != TN_NUMBER_F32 && s->result != TN_NUMBER_F64))
        return SHAPE_FFI;
    for (int32_t i = 0; i < s->count; i++)
        if (s->argument[i].type != s->result)
            return SHAPE_FFI;
    int is_f64 = s->result == TN_NUMBER_F64;
    if (s->count == 1)
        return is_f64 ? SHAPE_F64 : SHAPE_F32;
    if (s->x == 0)
        return is_f64 ? SHAPE_F64_X_C : SHAPE_F32_X_C;
    return is_f64 ? SHAPE_F64_C_X : SHAPE_F32_C_X;
}

int32_t tn_function_prepare(const tn_signature *signature, void (*address)(void), tn_function *ret, tn_error *err)
{
    *ret = (tn_function){.address = address, .signature = *signature, .shape = shape_of(signature)};
    for (int32_t i = 0; i < signature->count; i++) {
        const tn_argument *argument = &signature->argument[i];
        ret->types[i] = argument->is_pointer ? &ffi_type_pointer : ffi_type_of(argument->type);
        if (argument->value.count && !argument->value.is_used)
            ret->constant[i] = passed(argument->type, tn_expression_value(&argument->value, NULL));
    }
    ffi_status status = ffi_prep_cif(&ret->cif, FFI_DEFAULT_ABI, (unsigned)signature->count,
                                     ffi_type_of(signature->result), ret->types);
    return status == FFI_OK ? TN_OK : tn_error_set(err, TN_E_UNSUPPORTED, "libffi can not call such a function here");
}

/* ---- calling ---- */

static double call_any(const tn_function *f, tn_passed *arguments)
{
    void *at[TN_ARGUMENTS_MOST];
    tn_passed result = {.u64 = 0};
    for (int32_t i = 0; i < f->signature.count; i++)
        at[i] = &arguments[i];
    ffi_call((ffi_cif *)(uintptr_t)&f->cif, f->address, &result, at);
    return returned(f->signature.result, result);
}

static double call_at(const tn_function *f, double x)
{
    tn_passed arguments[TN_ARGUMENTS_MOST];
    memcpy(arguments, f->constant, sizeof arguments);
    arguments[f->signature.x] = passed(f->signature.argument[f->signature.x].type, x);
    return call_any(f, arguments);
}

/* x and y are of the function's own type. */
static void call_arrays(const tn_function *f, int64_t n, const void *x, void *y)
{
    const tn_signature *s = &f->signature;
    tn_passed arguments[TN_ARGUMENTS_MOST];
    memcpy(arguments, f->constant, sizeof arguments);
    if (s->x >= 0)
        arguments[s->x].pointer = x;
    else
        memmove(y, x, (size_t)n * (s->argument[s->y].type == TN_NUMBER_F32 ? sizeof(float) : sizeof(double)));
    arguments[s->y].pointer = y;
    arguments[s->n] = passed(s->argument[s->n].type, (double)n);
    call_any(f, arguments);
}

typedef float f32_of_1(float);
typedef double f64_of_1(double);
typedef float f32_of_2(float, float);
typedef double f64_of_2(double, double);

#define EACH(type, ...)                                                                                                \
    {                                                                                                                  \
        type *call = (type *)f->address;                                                                               \
        for (int64_t i = 0; i < n; i++)                                                                                \
            y[i] = __VA_ARGS__;                                                                                        \
        break;                                                                                                         \
    }

/* `own`: the type of the arrays; other_real: the one to convert to where the function's is not that. */
#define CALLS(suffix, real, own, other_real)                                                                           \
    static void convert_##suffix(const tn_function *f, int64_t n, const real *x, real *y)                              \
    {                                                                                                                  \
        other_real from[CONVERTED_MOST], to[CONVERTED_MOST];                                                           \
        for (int64_t lo = 0; lo < n; lo += CONVERTED_MOST) {                                                           \
            int64_t count = n - lo < CONVERTED_MOST ? n - lo : CONVERTED_MOST;                                         \
            for (int64_t i = 0; i < count; i++)                                                                        \
                from[i] = (other_real)x[lo + i];                                                                       \
            call_arrays(f, count, from, to);                                                                           \
            for (int64_t i = 0; i < count; i++)                                                                        \
                y[lo + i] = (real)to[i];                                                                               \
        }                                                                                                              \
    }                                                                                                                  \
    void tn_function_##suffix(const tn_function *f, int64_t n, const real *x, real *y)                                 \
    {                                                                                                                  \
        const tn_passed *c = f->constant;                                                                              \
        switch (f->shape) {                                                                                            \
        case SHAPE_F32:                                                                                                \
            EACH(f32_of_1, (real)call((float)x[i]))                                                                    \
        case SHAPE_F64:                                                                                                \
            EACH(f64_of_1, (real)call((double)x[i]))                                                                   \
        case SHAPE_F32_X_C:                                                                                            \
            EACH(f32_of_2, (real)call((float)x[i], c[1].f32))                                                          \
        case SHAPE_F32_C_X:                                                                                            \
            EACH(f32_of_2, (real)call(c[0].f32, (float)x[i]))                                                          \
        case SHAPE_F64_X_C:                                                                                            \
            EACH(f64_of_2, (real)call((double)x[i], c[1].f64))                                                         \
        case SHAPE_F64_C_X:                                                                                            \
            EACH(f64_of_2, (real)call(c[0].f64, (double)x[i]))                                                         \
        case SHAPE_ARRAY:                                                                                              \
            if (n > 0 && f->signature.argument[f->signature.y].type == (own))                                          \
                call_arrays(f, n, x, y);                                                                               \
            else                                                                                                       \
                convert_##suffix(f, n, x, y);                                                                          \
            break;                                                                                                     \
        default:                                                                                                       \
            for (int64_t i = 0; i < n; i++)                                                                            \
                y[i] = (real)call_at(f, (double)x[i]);                                                                 \
        }                                                                                                              \
    }

CALLS(f32, float, TN_NUMBER_F32, double)
CALLS(f64, double, TN_NUMBER_F64, float)

double tn_function_at(const tn_function *f, const double *position)
{
    tn_passed arguments[TN_ARGUMENTS_MOST];
    for (int32_t i = 0; i < f->signature.count; i++) {
        const tn_argument *argument = &f->signature.argument[i];
        arguments[i] = passed(argument->type, tn_expression_value(&argument->value, position));
    }
    return call_any(f, arguments);
}
