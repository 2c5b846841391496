/* SPDX-License-Identifier: Apache-2.0
 *
 * backend.h: a good backend, plain loops, in which parts may be replaced before this file is included, to be wrong in
 * one way.
 */
#ifndef TENON_TESTS_BAD_BACKEND_H
#define TENON_TESTS_BAD_BACKEND_H

#include <tenon/gemm.h>

#ifndef BACKEND_LINE
#define BACKEND_LINE "plain loops"
#endif
#ifndef BACKEND_CHECK /* (g, err) */
#define BACKEND_CHECK(g, err) tn_gemm_check("probe", g, err)
#endif
#ifndef BACKEND_BETA /* (beta, c): the part of what is there */
#define BACKEND_BETA(beta, c) ((beta) != 0 ? (beta) * (c) : 0)
#endif
#ifndef BACKEND_AFTER /* (g): behind the work */
#define BACKEND_AFTER(g)
#endif
#ifndef BACKEND_SUM /* (sum) */
#define BACKEND_SUM(sum) (sum)
#endif

static int32_t probe_probe(const tn_services *services, tn_error *err)
{
    (void)services;
    (void)err;
    return TN_OK;
}

static const char *probe_describe(void) { return BACKEND_LINE; }

static double probe_get(const tn_gemm *g, const void *matrix, int64_t i)
{
    return g->dtype.bits == 64 ? ((const double *)matrix)[i] : (double)((const float *)matrix)[i];
}

static void probe_one(const tn_gemm *g, int64_t p, int64_t i, int64_t j)
{
    double sum = 0;
    int64_t at = p * g->c_step + i * g->ldc + j, a = p * g->a_step, b = p * g->b_step;
    for (int64_t k = 0; tn_gemm_reads(g) && k < g->k; k++)
        sum += probe_get(g, g->a, a + (g->transpose_a ? k * g->lda + i : i * g->lda + k)) *
               probe_get(g, g->b, b + (g->transpose_b ? j * g->ldb + k : k * g->ldb + j));
    sum = g->alpha * BACKEND_SUM(sum) + BACKEND_BETA(g->beta, probe_get(g, g->c, at));
    if (g->dtype.bits == 64)
        ((double *)g->c)[at] = sum;
    else
        ((float *)g->c)[at] = (float)sum;
}

static int32_t probe_gemm(const tn_gemm *g, tn_error *err)
{
    int32_t status = BACKEND_CHECK(g, err);
    for (int64_t p = 0; status == TN_OK && p < g->count; p++)
        for (int64_t i = 0; i < g->m; i++)
            for (int64_t j = 0; j < g->n; j++)
                probe_one(g, p, i, j);
    if (status == TN_OK && !tn_gemm_empty(g)) {
        BACKEND_AFTER(g)
    }
    return status;
}

static const tn_backend probe_table = {.struct_size = sizeof(tn_backend),
                                       .device = TN_CPU,
                                       .probe = probe_probe,
                                       .describe = probe_describe,
                                       .gemm = probe_gemm};

TN_COMPONENT(probe, "backend", TN_BACKEND, 0u, TN_NO_HYPER, "a test", "", probe_table);
TN_PLUGIN("org.tenon.test.probe", "0.1.0", "Apache-2.0", probe)

#endif
