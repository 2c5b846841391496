/* SPDX-License-Identifier: Apache-2.0
 *
 * peak.c: multiply-adds in registers, and nothing else. Twelve chains hide the latency of two units.
 */
#include "host/bench/internal.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

#define CHAINS 12
#define TURNS  100000 /* of the loop, for one run of one thread */

/* They start apart: alike ones would be one for the compiler. */
#define LOOP(vector, fma)                                                                                              \
    vector a = x, s0 = x, s1 = x + 1, s2 = x + 2, s3 = x + 3, s4 = x + 4, s5 = x + 5, s6 = x + 6, s7 = x + 7,          \
           s8 = x + 8, s9 = x + 9, s10 = x + 10, s11 = x + 11;                                                         \
    for (int32_t i = 0; i < TURNS; i++) {                                                                              \
        s0 = fma(s0, a, x), s1 = fma(s1, a, x), s2 = fma(s2, a, x), s3 = fma(s3, a, x);                                \
        s4 = fma(s4, a, x), s5 = fma(s5, a, x), s6 = fma(s6, a, x), s7 = fma(s7, a, x);                                \
        s8 = fma(s8, a, x), s9 = fma(s9, a, x), s10 = fma(s10, a, x), s11 = fma(s11, a, x);                            \
    }                                                                                                                  \
    return s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7 + s8 + s9 + s10 + s11

static inline float multiply_add(float a, float b, float c) { return a * b + c; }

static float plain(float x) { LOOP(float, multiply_add); }

#ifdef __x86_64__
typedef float f8 __attribute__((vector_size(32)));
typedef float f16 __attribute__((vector_size(64)));

__attribute__((target("avx2,fma"))) static inline f8 loop8(f8 x) { LOOP(f8, _mm256_fmadd_ps); }
__attribute__((target("avx2,fma"))) static float avx2(float x)
{
    f8 all = {x, x, x, x, x, x, x, x};
    return loop8(all)[0];
}

__attribute__((target("avx512f"))) static inline f16 loop16(f16 x) { LOOP(f16, _mm512_fmadd_ps); }
__attribute__((target("avx512f"))) static float avx512(float x)
{
    f16 all = {x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x};
    return loop16(all)[0];
}
#endif

/* Numbers of a vector. */
static int32_t width(void)
{
#ifdef __x86_64__
    return __builtin_cpu_supports("avx512f")                                 ? 16
           : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 8
                                                                             : 1;
#else
    return 1;
#endif
}

static void one_thread(void *arg, int64_t index, int32_t thread)
{
    volatile float x = 0.5f; /* a fixed point is 1: neither overflow nor underflow */
    (void)arg;
    (void)index;
    (void)thread;
#ifdef __x86_64__
    if (width() > 1) {
        x = width() == 16 ? avx512(x) : avx2(x);
        return;
    }
#endif
    x = plain(x);
}

void tn_peak_run(void *arg)
{
    tn_peak *peak = arg;
    tn_pool_run(peak->pool, one_thread, peak, peak->threads);
}

double tn_peak_work(const tn_peak *peak) { return 2.0 * CHAINS * TURNS * width() * peak->threads; }
