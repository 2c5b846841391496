/* SPDX-License-Identifier: Apache-2.0
 *
 * kernel.c: the chain's own loops over elements, compiled for three instruction sets: element arithmetic has the same
 * bits in each.
 */
#include <string.h>

#include "host/update/internal.h"

#define INLINE static inline __attribute__((always_inline))

/* One function for each instruction set, and NAME, which calls the widest that the processor has. */
#ifdef __x86_64__
#define CLONES(name, result, parameters, ...)                                                                          \
    __attribute__((target("avx512f"))) static result name##_avx512 parameters { return name##_body(__VA_ARGS__); }     \
    __attribute__((target("avx2"))) static result name##_avx2 parameters { return name##_body(__VA_ARGS__); }          \
    static result name##_plain parameters { return name##_body(__VA_ARGS__); }                                         \
    INLINE result name parameters                                                                                      \
    {                                                                                                                  \
        return __builtin_cpu_supports("avx512f") ? name##_avx512(__VA_ARGS__)                                          \
               : __builtin_cpu_supports("avx2")  ? name##_avx2(__VA_ARGS__)                                            \
                                                 : name##_plain(__VA_ARGS__);                                           \
    }
#else
#define CLONES(name, result, parameters, ...)                                                                          \
    static result name parameters { return name##_body(__VA_ARGS__); }
#endif

/* d's zeros are added as -0, which changes no p, not even -0. */
#define ADD(type)                                                                                                      \
    INLINE void add_##type##_body(type *restrict p, const type *restrict d, type keep, int64_t n)                      \
    {                                                                                                                  \
        if (keep == 1)                                                                                                 \
            for (int64_t i = 0; i < n; i++)                                                                            \
                p[i] += d[i] != 0 ? d[i] : (type)-0.0;                                                                 \
        else                                                                                                           \
            for (int64_t i = 0; i < n; i++)                                                                            \
                p[i] = keep * p[i] + d[i];                                                                             \
    }                                                                                                                  \
    CLONES(add_##type, void, (type *restrict p, const type *restrict d, type keep, int64_t n), p, d, keep, n)
ADD(float)
ADD(double)

void tn_kernel_add(uint32_t real, void *p, const void *d, double keep, int64_t n)
{
    if (real == 32)
        add_float(p, d, (float)keep, n);
    else
        add_double(p, d, keep, n);
}

/* A dry run reads the state of block after block through this: with memcpy it took 1.25 times as long. */
#define AHEAD 2048

static void copy(char *restrict to, const char *restrict from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 64) {
        __builtin_prefetch(from + at + AHEAD);
        memcpy(to + at, from + at, 64);
    }
}

void tn_kernel_copy(void *to, const void *from, size_t bytes) { copy(to, from, bytes); }

/* An exponent of ones means inf or nan. */
#define FINITE(type, word, exponent)                                                                                   \
    INLINE int32_t finite_##type##_body(const type *x, int64_t n)                                                      \
    {                                                                                                                  \
        word bad = 0, bits;                                                                                            \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            memcpy(&bits, &x[i], sizeof bits);                                                                         \
            bad |= (bits & exponent) == exponent;                                                                      \
        }                                                                                                              \
        return !bad;                                                                                                   \
    }                                                                                                                  \
    CLONES(finite_##type, int32_t, (const type *x, int64_t n), x, n)
FINITE(float, uint32_t, 0x7F800000u)
FINITE(double, uint64_t, 0x7FF0000000000000u)

int32_t tn_kernel_finite(uint32_t real, const void *x, int64_t n)
{
    return real == 32 ? finite_float(x, n) : finite_double(x, n);
}
