/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/backend.h: the arithmetic that libraries do best. Interface "tenon.backend/0.1", kind backend; an experiment
 * names one. `reference` is plain C and the oracle of every other.
 *
 * Layers never see a backend: they call the host's tn_compute, which cuts the work into tiles that depend on the
 * shape alone, gives the tiles to its threads and calls the backend, single-threaded, for each.
 */
#ifndef TENON_BACKEND_H
#define TENON_BACKEND_H

#include <tenon/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TN_BACKEND "tenon.backend/0.1"
#define TN_COMPUTE "tenon.compute/0.1"
/* Not a table: tn_services.interface returns the cudaStream_t of the call, in components of the device "cuda". */
#define TN_CUDA_STREAM "tenon.cuda-stream/0.1"

/* c = alpha * op(a) op(b) + beta * c, row-major; op(a) is m x k, op(b) is k x n, c is m x n. With beta 0, c is not
 * read. `count` products are done, each `*_step` elements on from the last. Leading dimensions and steps are in
 * elements. Any of m, n, k, count may be 0: then nothing is done, or c is scaled. */
typedef struct tn_gemm {
    uint32_t struct_size;
    uint32_t reserved;
    tn_dtype dtype;                   /* of a, b and c: f32 or f64; others where a backend says so */
    int32_t transpose_a, transpose_b; /* 0 or 1 */
    int32_t reserved2;
    int64_t m, n, k;
    double alpha, beta;
    const void *a;
    int64_t lda;
    const void *b;
    int64_t ldb;
    void *c;
    int64_t ldc;
    int64_t count, a_step, b_step, c_step;
} tn_gemm;
TN_AT(tn_gemm, dtype, 8);
TN_AT(tn_gemm, m, 24);
TN_AT(tn_gemm, alpha, 48);
TN_AT(tn_gemm, c, 96);
TN_AT(tn_gemm, count, 112);
TN_SIZE(tn_gemm, 144);

typedef struct tn_backend {
    uint32_t struct_size;
    int32_t device; /* TN_CPU, TN_CUDA */
    /* Can this machine use it? Fills `err` with the reason (no device, a library in the wrong flavour). [load] */
    int32_t (*probe)(const tn_services *services, tn_error *err);
    /* A line for `info` and the log: library, version, kernel. The text is static. [load] */
    const char *(*describe)(void);
    /* One or more products; results do not depend on what other threads do. [piece] */
    int32_t (*gemm)(const tn_gemm *gemm, tn_error *err);
    /* Memory on the device; NULL on the CPU, where the host's memory is used. All that follow: [main] */
    void *(*allocate)(int64_t bytes, tn_error *err);
    void (*release)(void *memory);
    int32_t (*copy)(void *to, const void *from, int64_t bytes, void *stream, tn_error *err);
    /* Streams and events; NULL on the CPU. `which` is the host's small index. */
    void *(*stream)(int32_t which, tn_error *err);
    int32_t (*synchronize)(void *stream, tn_error *err);
} tn_backend;
TN_AT(tn_backend, probe, 8);
TN_AT(tn_backend, gemm, 24);
TN_SIZE(tn_backend, 72);

/* Of the host: lent to layers and losses in their calls. */
typedef struct tn_compute {
    uint32_t struct_size;
    uint32_t reserved;
    void *host;
    /* As tn_backend.gemm, cut into tiles and spread over the host's threads. May be called from a "whole" layer
     * call only. Failures are kept by the host and end the step. [main] */
    void (*gemm)(void *host, const tn_gemm *gemm);
} tn_compute;
TN_SIZE(tn_compute, 24);

#ifdef __cplusplus
}
#endif
#endif
