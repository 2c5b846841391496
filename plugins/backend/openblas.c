/* SPDX-License-Identifier: Apache-2.0
 *
 * OpenBLAS, one thread a call: the host cuts the work and runs the pieces on its own threads. Two flavours of the
 * library can not serve that and are refused: the serial one is not safe to call from several threads, and the OpenMP
 * one starts threads of its own in each of the host's. Its own threading also changes the bits of a result.
 */
#include <limits.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cblas.h>

#include <tenon/gemm.h>

/* The library takes a work area for each thread at its first product, and tries for ever where there is no room for it.
 */
static int32_t openblas_room(tn_error *err)
{
    struct rlimit limit;
    size_t need = (size_t)(1 + sysconf(_SC_NPROCESSORS_ONLN)) * ((size_t)128 << 20);
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return TN_OK;
    void *room = malloc(need);
    if (!room)
        return tn_fail(
            err, TN_E_MEMORY,
            "backend openblas: no room for a work area of 128 MiB a thread, %zu MiB here; raise the limit on "
            "memory (ulimit -v), or use `backend: reference`",
            need >> 20);
    free(room);
    return TN_OK;
}

static int32_t openblas_probe(const tn_services *services, tn_error *err)
{
    static const char *const flavour[] = {"serial", "pthread", "OpenMP"};
    int parallel = openblas_get_parallel(), threads = openblas_get_num_threads();
    (void)services;
    if (parallel != OPENBLAS_THREAD)
        return tn_fail(err, TN_E_PLUGIN,
                       "backend openblas: the library libopenblas.so.0 is of the %s flavour, needed pthread; "
                       "`apt-get install libopenblas0-pthread` and remove the others, or choose it with "
                       "update-alternatives",
                       parallel >= 0 && parallel <= 2 ? flavour[parallel] : "unknown");
    if (threads != 1)
        return tn_fail(
            err, TN_E_PLUGIN,
            "backend openblas: the library would use %d threads a call, needed 1; set OPENBLAS_NUM_THREADS=1 "
            "in the environment before it is loaded (the program `tenon` does)",
            threads);
    return openblas_room(err);
}

/* The library's own line: "OpenBLAS 0.3.21 flag flag core flag". */
static const char *openblas_describe(void) { return openblas_get_config(); }

static int32_t openblas_fits(const tn_gemm *g, tn_error *err)
{
    const int64_t extent[] = {g->m, g->n, g->k, g->lda, g->ldb, g->ldc};
    static const char *const name[] = {"m", "n", "k", "lda", "ldb", "ldc"};
    for (int i = 0; i < 6; i++)
        if (extent[i] > INT_MAX)
            return tn_fail(err, TN_E_UNSUPPORTED, "backend openblas: gemm's %s is %lld, needed at most %d", name[i],
                           (long long)extent[i], INT_MAX);
    return TN_OK;
}

/* Where a and b are not read, CBLAS still looks at their leading dimensions. */
#define OPENBLAS_PRODUCTS(name, type, function)                                                                        \
    static void name(const tn_gemm *g)                                                                                 \
    {                                                                                                                  \
        int reads = tn_gemm_reads(g), m = (int)g->m, n = (int)g->n, k = reads ? (int)g->k : 0;                         \
        int lda = reads ? (int)g->lda : m > 1 ? m : 1, ldb = reads ? (int)g->ldb : n;                                  \
        for (int64_t i = 0; i < g->count; i++)                                                                         \
            function(CblasRowMajor, g->transpose_a ? CblasTrans : CblasNoTrans,                                        \
                     g->transpose_b ? CblasTrans : CblasNoTrans, m, n, k, (type)g->alpha,                              \
                     tn_gemm_at(g, g->a, g->a_step, i), lda, tn_gemm_at(g, g->b, g->b_step, i), ldb, (type)g->beta,    \
                     tn_gemm_at(g, g->c, g->c_step, i), (int)g->ldc);                                                  \
    }
OPENBLAS_PRODUCTS(openblas_f32, float, cblas_sgemm)
OPENBLAS_PRODUCTS(openblas_f64, double, cblas_dgemm)

static int32_t openblas_gemm(const tn_gemm *gemm, tn_error *err)
{
    int32_t status = tn_gemm_check("openblas", gemm, err);
    if (status == TN_OK)
        status = openblas_fits(gemm, err);
    if (status == TN_OK && !tn_gemm_empty(gemm))
        (gemm->dtype.bits == 32 ? openblas_f32 : openblas_f64)(gemm);
    return status;
}

static const tn_backend openblas_table = {
    sizeof(tn_backend), TN_CPU, openblas_probe, openblas_describe, openblas_gemm, NULL, NULL, NULL, NULL, NULL};

TN_COMPONENT(openblas, "backend", TN_BACKEND, 0u, TN_NO_HYPER, "OpenBLAS, one thread a call", "", openblas_table);
TN_PLUGIN("org.tenon.openblas", "0.1.0", "Apache-2.0", openblas)
