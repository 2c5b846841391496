/* SPDX-License-Identifier: Apache-2.0
 *
 * It reads a row of a more than there is.
 */
static volatile char probe_seen __attribute__((unused));
#ifndef REPAIRED
#define BACKEND_AFTER(g)                                                                                               \
    if (tn_gemm_reads(g) && !(g)->transpose_a && (g)->count == 1)                                                      \
        probe_seen = *((const volatile char *)(g)->a + (g)->m * (g)->lda * ((g)->dtype.bits / 8));
#endif
#include "backend.h"
