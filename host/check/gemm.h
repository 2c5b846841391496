/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm.h: the matrix product as plain as can be, with sums in f64: the oracle of backends, and what layers are lent.
 */
#ifndef TENON_HOST_CHECK_GEMM_H
#define TENON_HOST_CHECK_GEMM_H

#include <tenon/backend.h>

/* f32 and f64, all of tn_gemm. [any] */
void tn_plain_gemm(const tn_gemm *gemm);
/* The table to lend to layers; needs no host. */
extern const tn_compute tn_plain_compute;

#endif
