/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/codec.h: 16-bit floating-point storage from the format's two numbers.
 *
 *   TN_FLOAT_CODEC(bf16, 7, -126, "summary", facts)     fraction bits, exponent of the smallest normal number
 *   TN_PLUGIN("org.example.bf16", "1.0.0", "Apache-2.0", bf16)
 *
 * A value is a sign, an exponent and a fraction as in IEEE 754, with subnormal numbers, infinities and NaN. To the
 * nearest: ties to even, beyond the largest finite number by half its last place or more to infinity. Stochastic: to
 * one of the two neighbours, to the upper one with the probability of the value's distance from the lower one, so the
 * mean is the value (to 2^-33 of their distance); the draw is word i % 4 of Philox(key, attempt, i / 4) for element i
 * of the logical tensor. What lies beyond the largest finite number is rounded to the nearest there too. NaN stays NaN,
 * with its sign and the upper bits of its payload.
 */
#ifndef TENON_CODEC_H
#define TENON_CODEC_H

#include <tenon/precision.h>
#include <tenon/vecmath.h>

#define TN_FLOAT_HYPER(X)                                                                                              \
    X(choice, rounding, nearest, "nearest | stochastic", "how a value between two codes is stored")
TN_DECLARE(tn_float_hyper, TN_FLOAT_HYPER)

typedef uint16_t tn_code16 __attribute__((aligned(1), may_alias)); /* a caller's array may lie anywhere */

TN_INLINE uint32_t tn_float_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

TN_INLINE float tn_float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

TN_INLINE uint64_t tn_double_bits(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

TN_INLINE double tn_double_of(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* To float such that rounding again to fewer bits gives what one rounding would: towards 0, and an odd last bit where
 * that was not exact. */
#if TN_REAL == 64
TN_INLINE float tn_float_odd(double x)
{
    float near = (float)x;
    uint32_t bits = tn_float_bits(near), inexact = (double)near != x;
    bits -= fabs((double)near) > fabs(x);
    return tn_float_of(bits | inexact);
}
#else
TN_INLINE float tn_float_odd(float x) { return x; }
#endif

/* ---- one element; the format is constant in each caller ---- */

#define TN_FLOAT_INFINITY_(fraction) (0x8000u - (1u << (fraction)))

TN_INLINE uint32_t tn_float_nearest(int fraction, int smallest, float x)
{
    uint32_t bits = tn_float_bits(x), a = bits & 0x7FFFFFFFu, infinity = TN_FLOAT_INFINITY_(fraction);
    int shift = 23 - fraction;
    uint32_t rounded = (a + (1u << (shift - 1)) - 1 + (a >> shift & 1)) >> shift;
    uint32_t normal = rounded - ((uint32_t)(126 + smallest) << fraction);
    /* Adding a power of two whose last place is the format's smallest number rounds to that. */
    uint32_t power = (uint32_t)(150 + smallest - fraction) << 23;
    uint32_t small = tn_float_bits(tn_float_of(a) + tn_float_of(power)) - power;
    uint32_t code = a < (uint32_t)(127 + smallest) << 23 ? small : normal < infinity ? normal : infinity;
    uint32_t nan = infinity | 1u << (fraction - 1) | (a >> shift & ((1u << fraction) - 1));
    return (bits >> 16 & 0x8000u) | (a > 0x7F800000u ? nan : code);
}

/* `word` is random; `nearest` the code for what is not inside the finite range. */
TN_INLINE uint32_t tn_float_random(int fraction, int smallest, double x, uint32_t word, uint32_t nearest)
{
    uint64_t bits = tn_double_bits(x), a = bits & ~(1ull << 63);
    int32_t least = 1023 + smallest, exponent = (int32_t)(a >> 52) > least ? (int32_t)(a >> 52) : least;
    /* |x| in last places of the format: only the exponent changes, so that is exact */
    double places = tn_double_of(a) * tn_double_of((uint64_t)(2046 + fraction - exponent) << 52);
    double beyond = tn_double_of((uint64_t)(1025 - smallest) << 52);
    int inside = tn_double_of(a) < beyond - beyond * tn_double_of((uint64_t)(1022 - fraction) << 52);
    int32_t whole = (int32_t)(inside ? places : 0);
    uint32_t up = ((double)word + 0.5) * 0x1p-32 < places - whole;
    uint32_t code = (uint32_t)whole + up + ((uint32_t)(exponent - least) << fraction);
    return inside ? (uint32_t)(bits >> 48 & 0x8000u) | code : nearest;
}

TN_INLINE tn_real tn_float_value(int fraction, int smallest, uint32_t code)
{
    uint32_t a = code & 0x7FFFu;
    /* The exponent's bias is corrected by an exact product, which also makes subnormal numbers normal. */
    float x = tn_float_of(a << (23 - fraction)) * tn_float_of((uint32_t)(253 + smallest) << 23);
    uint32_t special = a >= TN_FLOAT_INFINITY_(fraction) ? 0x7F800000u : 0;
    return (tn_real)tn_float_of(tn_float_bits(x) | special | (code & 0x8000u) << 16);
}

/* ---- the codec ---- */

#define TN_FLOAT_CODEC(name, fraction, smallest, summary, facts)                                                       \
    TN_CLONES static void name##_decode_(int64_t n, const tn_code16 *stored, tn_real *__restrict real)                 \
    {                                                                                                                  \
        for (int64_t i = 0; i < n; i++)                                                                                \
            real[i] = tn_float_value(fraction, smallest, stored[i]);                                                   \
    }                                                                                                                  \
    TN_CLONES static void name##_encode_(int64_t n, const tn_real *__restrict real, tn_code16 *stored)                 \
    {                                                                                                                  \
        TN_INDEPENDENT                                                                                                 \
        for (int64_t i = 0; i < n; i++)                                                                                \
            stored[i] = (tn_code16)tn_float_nearest(fraction, smallest, tn_float_odd(real[i]));                        \
    }                                                                                                                  \
    TN_RANDOM_CLONES static void name##_random_(const tn_context *context, int64_t lo, int64_t n,                      \
                                                const tn_real *__restrict real, tn_code16 *stored)                     \
    {                                                                                                                  \
        uint32_t words[TN_RANDOM_RUN];                                                                                 \
        int64_t skip = lo % 4;                                                                                         \
        for (int64_t at = 0, run; at < n; at += run, skip = 0) {                                                       \
            run = n - at < TN_RANDOM_RUN - skip ? n - at : TN_RANDOM_RUN - skip;                                       \
            tn_random_run(context->key, (uint64_t)context->attempt, (uint64_t)(lo + at) / 4, words);                   \
            TN_INDEPENDENT                                                                                             \
            for (int64_t i = 0; i < run; i++)                                                                          \
                stored[at + i] =                                                                                       \
                    (tn_code16)tn_float_random(fraction, smallest, (double)real[at + i], words[skip + i],              \
                                               tn_float_nearest(fraction, smallest, tn_float_odd(real[at + i])));      \
        }                                                                                                              \
    }                                                                                                                  \
    static void name##_decode(const tn_codec_call *call)                                                               \
    {                                                                                                                  \
        name##_decode_(call->n, (const tn_code16 *)call->stored, (tn_real *)call->real);                               \
    }                                                                                                                  \
    static void name##_encode(const tn_codec_call *call)                                                               \
    {                                                                                                                  \
        const tn_real *real = (const tn_real *)call->real;                                                             \
        if (((const tn_float_hyper *)call->hyper)->rounding == 0)                                                      \
            name##_encode_(call->n, real, (tn_code16 *)call->stored);                                                  \
        else                                                                                                           \
            name##_random_(call->context, call->lo, call->n, real, (tn_code16 *)call->stored);                         \
    }                                                                                                                  \
    static const tn_codec name##_table = {sizeof(tn_codec), 1, 16, 0, TN_CALL(name##_decode), TN_CALL(name##_encode)}; \
    TN_COMPONENT(name, "codec", TN_CODEC, TN_REAL, TN_FLOAT_HYPER, summary, facts, name##_table);

#endif
