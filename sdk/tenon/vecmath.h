/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/vecmath.h: arithmetic that vectorises, for use inside TN_CLONES functions.
 *
 * tn_exp, tn_log, tn_erf and tn_tanh may become calls of glibc's vector library in float code (gcc on x86-64; link
 * with -lmvec -lm; at most 4 units in the last place). Elsewhere they are libm's.
 *
 * A vector function and its scalar namesake differ in the last bits. For results that do not depend on how the host
 * cuts the work, a loop that calls one of these runs over whole multiples of TN_LANES and the rest goes through a
 * padded buffer, as tn_element_apply of <tenon/layers.h> does:  n &= -TN_LANES;  for (i = 0; i < n; i++) ...
 */
#ifndef TENON_VECMATH_H
#define TENON_VECMATH_H

#include <tenon/sdk.h>

/* For helpers of hot loops that clang, which does not flatten, must pull into each clone too. */
#define TN_INLINE static inline TN_UNUSED __attribute__((always_inline))

/* Before a loop whose iterations do not depend on each other, though its arrays may be one and the same. */
#if defined __GNUC__ && !defined __clang__
#define TN_INDEPENDENT _Pragma("GCC ivdep")
#else
#define TN_INDEPENDENT
#endif

#if TN_REAL == 32 && defined __x86_64__ && defined __GLIBC__ && defined __GNUC__ && !defined __clang__ &&              \
    !defined __CUDACC__ && !defined __cplusplus
#if __GLIBC_PREREQ(2, 35)
#define TN_VECTOR_ __attribute__((simd("notinbranch"), const))
TN_VECTOR_ float expf(float x);
TN_VECTOR_ float logf(float x);
TN_VECTOR_ float erff(float x);
TN_VECTOR_ float tanhf(float x);
#endif
#endif

TN_INLINE tn_real tn_exp(tn_real x) { return TN_MATH_(exp)(x); }
TN_INLINE tn_real tn_log(tn_real x) { return TN_MATH_(log)(x); }
TN_INLINE tn_real tn_erf(tn_real x) { return TN_MATH_(erf)(x); }
TN_INLINE tn_real tn_tanh(tn_real x) { return TN_MATH_(tanh)(x); }

/* ---- sums: TN_SUM_LANES partial sums in double, whose order is fixed ----
 *
 *   double lanes[TN_SUM_LANES] = {0};
 *   for (i = 0; i + TN_SUM_LANES <= n; i += TN_SUM_LANES)
 *       for (j = 0; j < TN_SUM_LANES; j++) lanes[j] += term(i + j);
 *   for (j = 0; i + j < n; j++) lanes[j] += term(i + j);
 *   sum = tn_fold_lanes(lanes); */

#define TN_SUM_LANES 32

/* Destroys `lanes`. */
TN_INLINE double tn_fold_lanes(double *lanes)
{
    for (int width = TN_SUM_LANES / 2; width; width /= 2)
        for (int j = 0; j < width; j++)
            lanes[j] += lanes[j + width];
    return lanes[0];
}

/* ---- random numbers: the words of tn_philox(key, counter_low, counter_high), (..., counter_high + 1), ... in a row,
 * so that word i of the run belongs to element 4 * counter_high + i ---- */

#define TN_RANDOM_RUN 256 /* words, of 64 blocks at a time */

/* For functions that call tn_random_run: gcc's 512-bit code for its products is slower. */
#if defined __x86_64__ && defined __GNUC__ && !defined __CUDACC__ && !defined TN_NO_CLONES
#define TN_RANDOM_CLONES __attribute__((target_clones("default", "avx2")))
#else
#define TN_RANDOM_CLONES
#endif

TN_INLINE uint32_t tn_high_product(uint32_t a, uint32_t b) { return (uint32_t)((uint64_t)a * b >> 32); }

TN_INLINE void tn_random_run(uint64_t key, uint64_t counter_low, uint64_t counter_high, uint32_t words[TN_RANDOM_RUN])
{
    enum { BLOCKS = TN_RANDOM_RUN / 4 };
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32), c[4][BLOCKS];
    for (int j = 0; j < BLOCKS; j++) {
        c[0][j] = (uint32_t)counter_low;
        c[1][j] = (uint32_t)(counter_low >> 32);
        c[2][j] = (uint32_t)(counter_high + (uint64_t)j);
        c[3][j] = (uint32_t)((counter_high + (uint64_t)j) >> 32);
    }
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
        for (int j = 0; j < BLOCKS; j++) {
            uint32_t a = c[0][j], b = c[2][j];
            c[0][j] = tn_high_product(b, 0xCD9E8D57u) ^ c[1][j] ^ k0;
            c[1][j] = b * 0xCD9E8D57u;
            c[2][j] = tn_high_product(a, 0xD2511F53u) ^ c[3][j] ^ k1;
            c[3][j] = a * 0xD2511F53u;
        }
    for (int j = 0; j < BLOCKS; j++)
        for (int word = 0; word < 4; word++)
            words[4 * j + word] = c[word][j];
}

#endif
