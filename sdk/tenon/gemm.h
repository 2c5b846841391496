/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/gemm.h: what every backend asks of a tn_gemm before it touches memory.
 */
#ifndef TENON_GEMM_H
#define TENON_GEMM_H

#include <tenon/backend.h>
#include <tenon/sdk.h>

/* The work of a product that passed tn_gemm_check. */
static inline TN_UNUSED int tn_gemm_empty(const tn_gemm *g) { return g->m == 0 || g->n == 0 || g->count == 0; }
/* 1 if a and b are read; else c is only scaled. */
static inline TN_UNUSED int tn_gemm_reads(const tn_gemm *g) { return g->k > 0 && g->alpha != 0; }
/* An operand's product number i. An operand that is not read may be NULL and stays so. */
static inline TN_UNUSED void *tn_gemm_at(const tn_gemm *g, const void *data, int64_t step, int64_t i)
{
    return data ? (char *)data + i * step * (g->dtype.bits / 8) : NULL;
}

static inline TN_UNUSED int32_t tn_gemm_operand(const char *backend, const char *name, const void *data, int64_t ld,
                                                int64_t least, tn_error *err)
{
    if (ld < least)
        return tn_fail(err, TN_E_INVALID, "backend %s: gemm's ld%s is %lld, needed at least %lld", backend, name,
                       (long long)ld, (long long)least);
    if (!data)
        return tn_fail(err, TN_E_INVALID, "backend %s: gemm's %s is NULL", backend, name);
    return TN_OK;
}

/* f32 or f64; extents not negative; leading dimensions that hold a row; operands present where they are used.
 * `backend` is the name for messages. Empty products pass. [any] */
static inline TN_UNUSED int32_t tn_gemm_check(const char *backend, const tn_gemm *g, tn_error *err)
{
    int32_t status = TN_OK;
    if (g->dtype.code != TN_FLOAT || (g->dtype.bits != 32 && g->dtype.bits != 64) || g->dtype.lanes != 1)
        return tn_fail(err, TN_E_UNSUPPORTED,
                       "backend %s: gemm of dtype (code %d, %d bits, %d lanes), needed f32 or f64", backend,
                       g->dtype.code, g->dtype.bits, g->dtype.lanes);
    if (g->m < 0 || g->n < 0 || g->k < 0 || g->count < 0)
        return tn_fail(err, TN_E_INVALID, "backend %s: gemm's m, n, k, count are %lld, %lld, %lld, %lld, needed >= 0",
                       backend, (long long)g->m, (long long)g->n, (long long)g->k, (long long)g->count);
    if (tn_gemm_empty(g))
        return TN_OK;
    if (tn_gemm_reads(g))
        status = tn_gemm_operand(backend, "a", g->a, g->lda, g->transpose_a ? g->m : g->k, err);
    if (status == TN_OK && tn_gemm_reads(g))
        status = tn_gemm_operand(backend, "b", g->b, g->ldb, g->transpose_b ? g->k : g->n, err);
    return status == TN_OK ? tn_gemm_operand(backend, "c", g->c, g->ldc, g->n, err) : status;
}

#endif
