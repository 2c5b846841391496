/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference: plain C, the oracle of every other backend. Both types add in f64, k from 0 up, and round once: in f32
 * the products are exact and a sum carries f64's error only. With alpha 0, a and b are not read.
 */
#include <tenon/gemm.h>

#define REFERENCE_COLUMNS 64 /* of c at a time, so that their sums stay in L1 */

/* NAME_sums: sum[j] = sum over k of a[k] b[k, j], for a run of columns j. NAME_product: the whole. */
#define REFERENCE_PRODUCT(name, type)                                                                                  \
    TN_CLONES static void name##_sums(int64_t k, int64_t n, const type *restrict a, int64_t a_k,                       \
                                      const type *restrict b, int64_t b_k, int64_t b_j, double *restrict sum)          \
    {                                                                                                                  \
        for (int64_t j = 0; j < n; j++)                                                                                \
            sum[j] = 0;                                                                                                \
        for (int64_t i = 0; i < k; i++)                                                                                \
            for (int64_t j = 0; j < n; j++)                                                                            \
                sum[j] += (double)a[i * a_k] * (double)b[i * b_k + j * b_j];                                           \
    }                                                                                                                  \
    static void name##_product(const tn_gemm *g, const type *a, const type *b, type *c)                                \
    {                                                                                                                  \
        int64_t a_i = g->transpose_a ? 1 : g->lda, a_k = g->transpose_a ? g->lda : 1;                                  \
        int64_t b_k = g->transpose_b ? 1 : g->ldb, b_j = g->transpose_b ? g->ldb : 1;                                  \
        int64_t k = tn_gemm_reads(g) ? g->k : 0;                                                                       \
        double sum[REFERENCE_COLUMNS];                                                                                 \
        for (int64_t i = 0; i < g->m; i++)                                                                             \
            for (int64_t lo = 0; lo < g->n; lo += REFERENCE_COLUMNS) {                                                 \
                int64_t n = g->n - lo < REFERENCE_COLUMNS ? g->n - lo : REFERENCE_COLUMNS;                             \
                type *to = c + i * g->ldc + lo;                                                                        \
                name##_sums(k, n, k ? &a[i * a_i] : a, a_k, k ? &b[lo * b_j] : b, b_k, b_j, sum);                      \
                for (int64_t j = 0; j < n; j++)                                                                        \
                    to[j] = (type)(g->alpha * sum[j] + (g->beta != 0 ? g->beta * (double)to[j] : 0));                  \
            }                                                                                                          \
    }                                                                                                                  \
    static void name##_products(const tn_gemm *g)                                                                      \
    {                                                                                                                  \
        for (int64_t i = 0; i < g->count; i++)                                                                         \
            name##_product(g, tn_gemm_at(g, g->a, g->a_step, i), tn_gemm_at(g, g->b, g->b_step, i),                    \
                           tn_gemm_at(g, g->c, g->c_step, i));                                                         \
    }
REFERENCE_PRODUCT(reference_f32, float)
REFERENCE_PRODUCT(reference_f64, double)

static int32_t reference_probe(const tn_services *services, tn_error *err)
{
    (void)services;
    (void)err;
    return TN_OK;
}

static const char *reference_describe(void) { return "plain C, sums in f64"; }

static int32_t reference_gemm(const tn_gemm *gemm, tn_error *err)
{
    int32_t status = tn_gemm_check("reference", gemm, err);
    if (status == TN_OK && !tn_gemm_empty(gemm))
        (gemm->dtype.bits == 32 ? reference_f32_products : reference_f64_products)(gemm);
    return status;
}

static const tn_backend reference_table = {
    sizeof(tn_backend), TN_CPU, reference_probe, reference_describe, reference_gemm, NULL, NULL, NULL, NULL, NULL};

TN_COMPONENT(reference, "backend", TN_BACKEND, 0u, TN_NO_HYPER, "Plain C, the oracle of every other backend", "",
             reference_table);
TN_PLUGIN("org.tenon.reference", "0.1.0", "Apache-2.0", reference)
