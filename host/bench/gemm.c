/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.c: the backend's products in f32: one thread against what one thread can multiply and add in registers, and cut
 * into tiles over all threads, as layers get them, against all threads.
 */
#include <stdio.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/bench/internal.h"
#include "host/experiment/instance.h"

/* Shapes of forward (x W^T), of the gradients of x and of W, and of plain products. */
static const struct {
    int64_t m, n, k;
    int32_t transpose_a, transpose_b;
} shapes[] = {
    {128, 512, 784, 0, 1}, {128, 784, 512, 0, 0},    {512, 784, 128, 1, 0},   {256, 256, 256, 0, 0},
    {512, 512, 512, 0, 0}, {1024, 1024, 1024, 0, 0}, {2048, 2048, 512, 0, 1}, {4096, 64, 1024, 0, 0},
};

typedef struct product {
    tn_gemm gemm;
    const tn_backend *backend;
    tn_compute compute;
    int32_t status;
    tn_error err;
} product;

static void alone(void *arg)
{
    product *p = arg;
    if (!p->status)
        p->status = p->backend->gemm(&p->gemm, &p->err);
}

static void tiled(void *arg)
{
    product *p = arg;
    p->compute.gemm(p->compute.host, &p->gemm);
}

int32_t tn_bench_backend(const tn_bench_run *run, tn_backend *backend, tn_compute_host *ret, tn_error *err)
{
    static const tn_services services = {.struct_size = sizeof(tn_services)};
    const char *name = run->options->backend ? run->options->backend : "openblas";
    const tn_entry_info *entry;
    int32_t status = tn_registry_find(run->options->registry, "backend", name, "cpu", 32, &entry, err);
    *backend = (tn_backend){.struct_size = sizeof *backend};
    if (!status)
        status = tn_registry_load(run->options->registry, entry, backend, sizeof *backend, err);
    if (!status && backend->probe)
        status = backend->probe(&services, err);
    if (!status && !backend->gemm)
        status = tn_error_set(err, TN_E_UNSUPPORTED, "backend %s: needed one that offers gemm", name);
    *ret = (tn_compute_host){.backend = backend, .pool = run->pool};
    return status;
}

/* Extents that --elements leaves. */
static int64_t cut(const tn_bench_run *run, int64_t extent)
{
    while (run->elements && extent > 1 && extent * extent > run->elements)
        extent /= 2;
    return extent;
}

static tn_gemm gemm_of(const tn_bench_run *run, size_t shape, float *memory)
{
    int64_t m = cut(run, shapes[shape].m), n = cut(run, shapes[shape].n), k = cut(run, shapes[shape].k);
    int32_t ta = shapes[shape].transpose_a, tb = shapes[shape].transpose_b;
    return (tn_gemm){.struct_size = sizeof(tn_gemm),
                     .dtype = {TN_FLOAT, 32, 1},
                     .transpose_a = ta,
                     .transpose_b = tb,
                     .m = m,
                     .n = n,
                     .k = k,
                     .alpha = 1,
                     .a = memory,
                     .lda = ta ? m : k,
                     .b = memory + (m * k + 15) / 16 * 16,
                     .ldb = tb ? k : n,
                     .c = memory + (m * k + 15) / 16 * 16 + (k * n + 15) / 16 * 16,
                     .ldc = n,
                     .count = 1};
}

static int32_t bench_shape(tn_bench_run *run, size_t shape, const tn_backend *backend, tn_compute_host *host,
                           float *memory, tn_error *err)
{
    product p = {.gemm = gemm_of(run, shape, memory), .backend = backend, .compute = tn_compute_open(host)};
    tn_peak one = {NULL, 1}, all = {run->pool, run->threads};
    double flops = 2.0 * (double)p.gemm.m * (double)p.gemm.n * (double)p.gemm.k;
    char group[96];
    const tn_bench_side sides[] = {{"one call", alone, &p, flops, 1},
                                   {"registers, one thread", tn_peak_run, &one, tn_peak_work(&one), -1},
                                   {"tiled", tiled, &p, flops, 3},
                                   {"registers, all threads", tn_peak_run, &all, tn_peak_work(&all), -1}};
    snprintf(group, sizeof group, "%lld x %lld x %lld%s%s", (long long)p.gemm.m, (long long)p.gemm.n,
             (long long)p.gemm.k, p.gemm.transpose_a ? ", a transposed" : "",
             p.gemm.transpose_b ? ", b transposed" : "");
    int32_t status = tn_bench_measure(run, group, sides, 4, err);
    if (!status && p.status) {
        *err = p.err;
        status = p.status;
    }
    return status ? status : tn_compute_take_failure(host, err);
}

int32_t tn_bench_gemm(tn_bench_run *run, tn_error *err)
{
    tn_backend backend;
    tn_compute_host host;
    int64_t most = 0;
    int32_t status = tn_bench_backend(run, &backend, &host, err);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        tn_gemm g = gemm_of(run, i, NULL);
        int64_t all = g.m * g.k + g.k * g.n + g.m * g.n, largest = g.m * g.k > g.k * g.n ? g.m * g.k : g.k * g.n;
        most = most > all ? most : all;
        largest = largest > g.m * g.n ? largest : g.m * g.n;
        run->used = run->used > largest ? run->used : largest;
    }
    float *memory = status ? NULL : tn_alloc_aligned((size_t)(most + 64) * sizeof *memory);
    if (!status && !memory)
        status = tn_bench_no_memory(err);
    for (int64_t i = 0; i < most && !status; i++)
        memory[i] = (float)(i % 1009) / 1009 - 0.5f;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes && !status; i++)
        status = bench_shape(run, i, &backend, &host, memory, err);
    tn_free(memory);
    return status;
}
