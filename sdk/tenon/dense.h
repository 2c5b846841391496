/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/dense.h: matrices in a row for rules of grain matrix and layer: products through the host's tn_compute, and the
 * inverse of a symmetric positive definite one.
 *
 *   tn_dense x = tn_dense_real(d, rows, columns), gram = tn_dense_real(workspace, rows, rows);
 *   tn_dense_multiply(call->compute, call->count, 1, x, tn_dense_t(x), 0, gram);      gram = x x^T, for each item
 */
#ifndef TENON_DENSE_H
#define TENON_DENSE_H

#include <tenon/backend.h>
#include <tenon/sdk.h>

/* Row-major, rows x columns, as seen: `transposed` ones lie as columns x rows. */
typedef struct tn_dense {
    void *data;
    int64_t rows, columns;
    int64_t ld, step; /* elements from row to row as they lie, and to the next matrix of a batch */
    int32_t transposed;
    uint8_t bits;
} tn_dense;

static inline TN_UNUSED tn_dense tn_dense_of(const void *data, uint8_t bits, int64_t rows, int64_t columns)
{
    tn_dense x = {(void *)data, rows, columns, columns, rows * columns, 0, bits};
    return x;
}

/* Contiguous, one behind the other, of the real type or of f64. */
static inline TN_UNUSED tn_dense tn_dense_real(const void *data, int64_t rows, int64_t columns)
{
    return tn_dense_of(data, TN_REAL, rows, columns);
}
static inline TN_UNUSED tn_dense tn_dense_f64(const void *data, int64_t rows, int64_t columns)
{
    return tn_dense_of(data, 64, rows, columns);
}

/* The same matrix turned. */
static inline TN_UNUSED tn_dense tn_dense_t(tn_dense x)
{
    int64_t rows = x.rows;
    x.rows = x.columns;
    x.columns = rows;
    x.transposed = !x.transposed;
    return x;
}

/* rows x columns of an untransposed x, from (row, column) on. */
static inline TN_UNUSED tn_dense tn_dense_part(tn_dense x, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    x.data = (char *)x.data + (row * x.ld + column) * (x.bits / 8);
    x.rows = rows;
    x.columns = columns;
    return x;
}

/* c = alpha a b + beta c for `count` matrices each; extents must fit; c is not transposed and overlaps neither. */
static inline TN_UNUSED void tn_dense_multiply(const tn_compute *compute, int64_t count, double alpha, tn_dense a,
                                               tn_dense b, double beta, tn_dense c)
{
    tn_gemm g;
    memset(&g, 0, sizeof g);
    g.struct_size = sizeof g;
    g.dtype.code = TN_FLOAT;
    g.dtype.bits = c.bits;
    g.dtype.lanes = 1;
    g.transpose_a = a.transposed;
    g.transpose_b = b.transposed;
    g.m = c.rows;
    g.n = c.columns;
    g.k = a.columns;
    g.alpha = alpha;
    g.beta = beta;
    g.a = a.data;
    g.lda = a.ld;
    g.b = b.data;
    g.ldb = b.ld;
    g.c = c.data;
    g.ldc = c.ld;
    g.count = count;
    g.a_step = a.step;
    g.b_step = b.step;
    g.c_step = c.step;
    compute->gemm(compute->host, &g);
}

static inline TN_UNUSED double tn_dense_norm(const tn_real *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

static inline TN_UNUSED void tn_dense_scale(tn_real *x, int64_t n, double factor)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (tn_real)(factor * (double)x[i]);
}

/* ---- symmetric positive definite matrices in f64 ---- */

#define TN_DENSE_BLOCK 64

/* a = L L^T in place for the n x n block at `a`, its lower triangle; 0 if it is not positive definite. */
static inline TN_UNUSED int tn_dense_factor_block(double *a, int64_t ld, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        double *row_j = a + j * ld, pivot = row_j[j];
        for (int64_t k = 0; k < j; k++)
            pivot -= row_j[k] * row_j[k];
        if (!(pivot > 0) || isinf(pivot))
            return 0;
        row_j[j] = sqrt(pivot);
        for (int64_t i = j + 1; i < n; i++) {
            double *row_i = a + i * ld, sum = row_i[j];
            for (int64_t k = 0; k < j; k++)
                sum -= row_i[k] * row_j[k];
            row_i[j] = sum / row_j[j];
        }
    }
    return 1;
}

/* x = l^-1 for lower triangular blocks; x is 0 above its diagonal. */
static inline TN_UNUSED void tn_dense_invert_block(const double *l, double *x, int64_t ld, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = i == j;
            for (int64_t k = j; k < i; k++)
                sum -= l[i * ld + k] * x[k * ld + j];
            x[i * ld + j] = j <= i ? sum / l[i * ld + i] : 0;
        }
}

/* One block column of the factor: the block itself, its inverse into x, the rows below, and what those take from the
 * rest. `t`: n * TN_DENSE_BLOCK doubles. */
static inline TN_UNUSED int tn_dense_factor_column(const tn_compute *compute, tn_dense a, tn_dense x, double *t,
                                                   int64_t at, int64_t width)
{
    int64_t below = at + width, rest = a.rows - below;
    tn_dense block = tn_dense_part(a, at, width, at, width), inverse = tn_dense_part(x, at, width, at, width);
    tn_dense panel = tn_dense_part(a, below, rest, at, width), copy = tn_dense_f64(t, rest, width);
    if (!tn_dense_factor_block((double *)block.data, a.ld, width))
        return 0;
    tn_dense_invert_block((const double *)block.data, (double *)inverse.data, a.ld, width);
    for (int64_t i = 0; i < rest; i++)
        memcpy(t + i * width, (double *)panel.data + i * a.ld, (size_t)width * sizeof *t);
    tn_dense_multiply(compute, 1, 1, copy, tn_dense_t(inverse), 0, panel);
    for (int64_t j = below; j < a.rows; j += TN_DENSE_BLOCK) {
        int64_t n = a.rows - j < TN_DENSE_BLOCK ? a.rows - j : TN_DENSE_BLOCK;
        tn_dense_multiply(compute, 1, -1, tn_dense_part(a, j, a.rows - j, at, width),
                          tn_dense_t(tn_dense_part(a, j, n, at, width)), 1, tn_dense_part(a, j, a.rows - j, j, n));
    }
    return 1;
}

/* Bytes of `work` for the inverse of an n x n matrix. */
static inline TN_UNUSED int64_t tn_dense_inverse_bytes(int64_t n)
{
    return (n * n + n * TN_DENSE_BLOCK) * (int64_t)sizeof(double);
}

/* a: n x n in f64, symmetric, of which the lower triangle is read, replaced by its inverse, exactly symmetric, by way
 * of Cholesky's factor. Returns 0 if it is not positive definite or not finite; a is then rubbish. */
static inline TN_UNUSED int tn_dense_inverse(const tn_compute *compute, double *data, int64_t n, void *work)
{
    double *t = (double *)work + n * n;
    tn_dense a = tn_dense_f64(data, n, n), x = tn_dense_f64(work, n, n);
    memset(work, 0, (size_t)(n * n) * sizeof(double));
    for (int64_t at = 0, width; at < n; at += width) {
        width = n - at < TN_DENSE_BLOCK ? n - at : TN_DENSE_BLOCK;
        if (!tn_dense_factor_column(compute, a, x, t, at, width))
            return 0;
    }
    /* x = L^-1: the blocks left of each diagonal block are -X_ii (L_i X). */
    for (int64_t at = TN_DENSE_BLOCK; at < n; at += TN_DENSE_BLOCK) {
        int64_t width = n - at < TN_DENSE_BLOCK ? n - at : TN_DENSE_BLOCK;
        tn_dense product = tn_dense_f64(t, width, at);
        tn_dense_multiply(compute, 1, 1, tn_dense_part(a, at, width, 0, at), tn_dense_part(x, 0, at, 0, at), 0,
                          product);
        tn_dense_multiply(compute, 1, -1, tn_dense_part(x, at, width, at, width), product, 0,
                          tn_dense_part(x, at, width, 0, at));
    }
    /* a^-1 = X^T X, one block row of X after the other: row i has its first i + 1 columns only. */
    memset(data, 0, (size_t)(n * n) * sizeof(double));
    for (int64_t at = 0; at < n; at += TN_DENSE_BLOCK) {
        int64_t width = n - at < TN_DENSE_BLOCK ? n - at : TN_DENSE_BLOCK, end = at + width;
        tn_dense rows = tn_dense_part(x, at, width, 0, end);
        tn_dense_multiply(compute, 1, 1, tn_dense_t(rows), rows, 1, tn_dense_part(a, 0, end, 0, end));
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < i; j++)
            data[j * n + i] = data[i * n + j];
    return 1;
}

#endif
