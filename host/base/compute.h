/* SPDX-License-Identifier: Apache-2.0
 *
 * compute.h: matrix products for layers: cut into tiles that depend on the shape alone, spread over the pool, each
 * done single-threaded by the backend. The reduction is never cut, so the bits do not depend on the thread count.
 */
#ifndef TENON_HOST_BASE_COMPUTE_H
#define TENON_HOST_BASE_COMPUTE_H

#include <tenon/backend.h>

#include "host/base/pool.h"

/* a / b rounded up, of numbers >= 0 and > 0. */
static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

typedef struct tn_compute_host {
    const tn_backend *backend;
    tn_pool *pool;
    int32_t failed; /* the first failing tile's status: later products do nothing until it is cleared or taken */
    tn_error error;
} tn_compute_host;

/* The table to lend to layers; `host` must outlive it. */
tn_compute tn_compute_open(tn_compute_host *host);

/* TN_OK, or the status and message of the first product that failed since the last call; products work again after. */
int32_t tn_compute_take_failure(tn_compute_host *host, tn_error *err);

/* Rows and columns of one tile of an m x n x k product. */
void tn_compute_tile(int64_t m, int64_t n, int64_t k, int64_t *ret_rows, int64_t *ret_columns);

#endif
