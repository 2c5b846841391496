/* SPDX-License-Identifier: Apache-2.0
 *
 * compute.c: matrix products for layers, cut into tiles.
 */
#include "host/base/compute.h"

#include <stdatomic.h>
#include <stddef.h>

#include "host/base/error.h"
#include "host/base/take.h"

/* A tile below about 4 MFLOP is not worth a thread's wake-up; strips narrower than 64 lose 10% and more in BLAS. */
#define TILE_FLOPS 4e6
#define TILE_MIN   64
#define TILES_MAX  64

void tn_compute_tile(int64_t m, int64_t n, int64_t k, int64_t *ret_rows, int64_t *ret_columns)
{
    double flops = 2.0 * (double)m * (double)n * (double)k;
    int64_t wanted = flops < 2 * TILE_FLOPS           ? 1
                     : flops < TILES_MAX * TILE_FLOPS ? (int64_t)(flops / TILE_FLOPS)
                                                      : TILES_MAX;
    *ret_rows = m > 0 ? m : 1;
    *ret_columns = n > 0 ? n : 1;
    if (wanted == 1)
        return;
    /* Whole rows where there are enough of them: c is row-major, so strips of rows stay contiguous. */
    if (m >= 4 * TILE_MIN || m >= n)
        *ret_rows = ceil_div(ceil_div(m, wanted), TILE_MIN) * TILE_MIN;
    else
        *ret_columns = ceil_div(ceil_div(n, wanted), TILE_MIN) * TILE_MIN;
}

typedef struct {
    tn_compute_host *host;
    const tn_gemm *gemm;
    int64_t rows, columns, down, across; /* of a tile; tiles of one product */
    _Atomic int32_t claimed;
} tiling;

static const char *at(const void *base, int64_t elements, const tn_gemm *g)
{
    return base ? (const char *)base + elements * (g->dtype.bits / 8) : NULL;
}

/* The product of one tile; index counts products, then tile rows, then tile columns. */
static tn_gemm cut(const tiling *t, int64_t index)
{
    tn_gemm g = *t->gemm;
    int64_t product = index / (t->down * t->across), tile = index % (t->down * t->across);
    int64_t i = tile / t->across * t->rows, j = tile % t->across * t->columns;
    g.m = g.m - i < t->rows ? g.m - i : t->rows;
    g.n = g.n - j < t->columns ? g.n - j : t->columns;
    g.a = at(g.a, product * g.a_step + (g.transpose_a ? i : i * g.lda), &g);
    g.b = at(g.b, product * g.b_step + (g.transpose_b ? j * g.ldb : j), &g);
    g.c = (void *)at(g.c, product * g.c_step + i * g.ldc + j, &g);
    g.count = 1;
    return g;
}

static void one_tile(void *arg, int64_t index, int32_t thread)
{
    tiling *t = arg;
    tn_gemm g = cut(t, index);
    tn_error error = {0};
    (void)thread;
    int32_t status = t->host->backend->gemm(&g, &error);
    if (status != TN_OK && atomic_exchange(&t->claimed, 1) == 0) {
        t->host->failed = tn_error_wrap(&error, status, "matrix product");
        t->host->error = error;
    }
}

static void tiled_gemm(void *host, const tn_gemm *gemm)
{
    tn_gemm g;
    tiling t = {.host = host, .gemm = &g};
    tn_take(&g, sizeof g, gemm);
    if (g.m <= 0 || g.n <= 0 || g.count <= 0 || t.host->failed)
        return;
    tn_compute_tile(g.m, g.n, g.k, &t.rows, &t.columns);
    t.down = ceil_div(g.m, t.rows);
    t.across = ceil_div(g.n, t.columns);
    tn_pool_run(t.host->pool, one_tile, &t, t.down * t.across * g.count);
}

tn_compute tn_compute_open(tn_compute_host *host)
{
    return (tn_compute){.struct_size = sizeof(tn_compute), .host = host, .gemm = tiled_gemm};
}

int32_t tn_compute_take_failure(tn_compute_host *host, tn_error *err)
{
    int32_t status = host->failed;
    host->failed = TN_OK;
    return status ? tn_error_set(err, status, "%s", host->error.msg) : TN_OK;
}
