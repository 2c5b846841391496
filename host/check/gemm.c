/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.c: see gemm.h.
 */
#include "host/check/gemm.h"

static double number(const tn_gemm *g, const void *matrix, int64_t i)
{
    return g->dtype.bits == 64 ? ((const double *)matrix)[i] : (double)((const float *)matrix)[i];
}

static double sum_of(const tn_gemm *g, int64_t product, int64_t i, int64_t j)
{
    double sum = 0;
    int64_t a = product * g->a_step, b = product * g->b_step;
    for (int64_t k = 0; k < g->k && g->alpha != 0; k++)
        sum += number(g, g->a, a + (g->transpose_a ? k * g->lda + i : i * g->lda + k)) *
               number(g, g->b, b + (g->transpose_b ? j * g->ldb + k : k * g->ldb + j));
    return sum;
}

static void set(const tn_gemm *g, int64_t at, double sum)
{
    double value = g->alpha * sum + (g->beta != 0 ? g->beta * number(g, g->c, at) : 0);
    if (g->dtype.bits == 64)
        ((double *)g->c)[at] = value;
    else
        ((float *)g->c)[at] = (float)value;
}

void tn_plain_gemm(const tn_gemm *g)
{
    for (int64_t p = 0; p < g->count; p++)
        for (int64_t i = 0; i < g->m; i++)
            for (int64_t j = 0; j < g->n; j++)
                set(g, p * g->c_step + i * g->ldc + j, sum_of(g, p, i, j));
}

static void lent(void *host, const tn_gemm *gemm)
{
    (void)host;
    tn_plain_gemm(gemm);
}

const tn_compute tn_plain_compute = {sizeof(tn_compute), 0, NULL, lent};
