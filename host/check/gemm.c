/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.c: see gemm.h.
 */
#include "host/check/gemm.h"

/* NAME_product: one product of matrices of `type`. */
#define PLAIN_PRODUCT(name, type)                                                                                      \
    static void name##_product(const tn_gemm *g, const type *a, const type *b, type *c)                                \
    {                                                                                                                  \
        int64_t a_i = g->transpose_a ? 1 : g->lda, a_k = g->transpose_a ? g->lda : 1;                                  \
        int64_t b_j = g->transpose_b ? g->ldb : 1, b_k = g->transpose_b ? 1 : g->ldb;                                  \
        int64_t terms = g->alpha != 0 ? g->k : 0;                                                                      \
        for (int64_t i = 0; i < g->m; i++)                                                                             \
            for (int64_t j = 0; j < g->n; j++) {                                                                       \
                double sum = 0, before = g->beta != 0 ? g->beta * (double)c[i * g->ldc + j] : 0;                       \
                for (int64_t k = 0; k < terms; k++)                                                                    \
                    sum += (double)a[i * a_i + k * a_k] * (double)b[k * b_k + j * b_j];                                \
                c[i * g->ldc + j] = (type)(g->alpha * sum + before);                                                   \
            }                                                                                                          \
    }
PLAIN_PRODUCT(f32, float)
PLAIN_PRODUCT(f64, double)

void tn_plain_gemm(const tn_gemm *g)
{
    for (int64_t p = 0; p < g->count && g->m > 0 && g->n > 0; p++)
        if (g->dtype.bits == 64)
            f64_product(g, (const double *)g->a + p * g->a_step, (const double *)g->b + p * g->b_step,
                        (double *)g->c + p * g->c_step);
        else
            f32_product(g, (const float *)g->a + p * g->a_step, (const float *)g->b + p * g->b_step,
                        (float *)g->c + p * g->c_step);
}

static void lent(void *host, const tn_gemm *gemm)
{
    (void)host;
    tn_plain_gemm(gemm);
}

const tn_compute tn_plain_compute = {sizeof(tn_compute), 0, NULL, lent};
