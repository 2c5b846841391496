/* SPDX-License-Identifier: Apache-2.0
 *
 * Eight bits an element by dynamic tree quantization in blocks of 256. Dettmers, Lewis, Shleifer, Zettlemoyer, ICLR
 * 2022, arXiv:2110.02861.
 *
 * Zeros at the head of a code count decades below the block's largest magnitude, a 1 ends them, and the bits behind it
 * cut [0.1, 1] of the decade into equal cells, whose middles are the values. A block's scale is the element of the
 * largest magnitude with its sign (of two that differ in sign, the positive one), so one code, 1, holds that element
 * exactly whatever its sign: 0x80, which would be -0; and without a sign 0x01.
 *
 *   signed              s 0..0 1 f..f    7 decades of 1, 2, ..., 64 values, and their negatives; 0; 1
 *   TN_CODEC_NONNEGATIVE  0..0 1 f..f    7 decades of 2, 4, ..., 128 values; 0; 1
 *
 * An element gets the nearest value, 0 stays 0 (a -0 becomes +0). What is never negative is mostly what something is
 * divided by, so there a number above 0 never becomes 0: the smallest code takes it; one below 0 does become 0. A block
 * that holds inf or NaN is NaN as a whole: bad state shows at once, and stays within its block.
 */
#include <tenon/precision.h>
#include <tenon/vecmath.h>

#define BLOCK 256

/* ---- the values ---- */

/* Middle j of 2^bits cells of a decade that ends at `top`, times `sign`. */
#define VALUE(sign, top, bits, j) (tn_real)(sign(top) * (0.1 + 0.45 * (2 * (j) + 1) / (1 << (bits)))),
#define V2(sign, top, bits, j)    VALUE(sign, top, bits, j) VALUE(sign, top, bits, (j) + 1)
#define V4(sign, top, bits, j)    V2(sign, top, bits, j) V2(sign, top, bits, (j) + 2)
#define V8(sign, top, bits, j)    V4(sign, top, bits, j) V4(sign, top, bits, (j) + 4)
#define V16(sign, top, bits, j)   V8(sign, top, bits, j) V8(sign, top, bits, (j) + 8)
#define V32(sign, top, bits, j)   V16(sign, top, bits, j) V16(sign, top, bits, (j) + 16)
#define V64(sign, top, bits, j)   V32(sign, top, bits, j) V32(sign, top, bits, (j) + 32)
#define V128(sign, top, bits, j)  V64(sign, top, bits, j) V64(sign, top, bits, (j) + 64)
#define SEVEN_BITS(sign)                                                                                               \
    VALUE(sign, 1e-6, 0, 0)                                                                                            \
    V2(sign, 1e-5, 1, 0)                                                                                               \
    V4(sign, 1e-4, 2, 0) V8(sign, 1e-3, 3, 0) V16(sign, 1e-2, 4, 0) V32(sign, 1e-1, 5, 0) V64(sign, 1, 6, 0)

static const tn_real signed_values[256] = {0, SEVEN_BITS(+) 1, SEVEN_BITS(-)};
static const tn_real unsigned_values[256] = {0, 1,
                                             V2(+, 1e-6, 1, 0) V4(+, 1e-5, 2, 0) V8(+, 1e-4, 3, 0) V16(+, 1e-3, 4, 0)
                                                 V32(+, 1e-2, 5, 0) V64(+, 1e-1, 6, 0) V128(+, 1, 7, 0)};

/* ---- to a code ---- */

#if TN_REAL == 64
typedef uint64_t word;
#define WORD_INFINITY 0x7FF0000000000000u
#else
typedef uint32_t word;
#define WORD_INFINITY 0x7F800000u
#endif
#define WORD_SIGN ((word)1 << (TN_REAL - 1))

TN_INLINE word word_of(tn_real x)
{
    word bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

TN_INLINE tn_real real_of(word bits)
{
    tn_real x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The smaller of two magnitudes that get a decade's first code: midway between its first value and the last before. */
#define DECADE_BEGIN(top, bits) (tn_real)((top) * (0.1 + 0.18 / (1 << (bits))))
/* Within a decade a cell's index is linear, and a code is 2^bits above it. */
#define DECADE(top, bits)                                                                                              \
    if (y >= DECADE_BEGIN(top, bits)) {                                                                                \
        slope = (tn_real)((1 << (bits)) / (0.9 * (top)));                                                              \
        offset = (tn_real)((1 << (bits)) * (1 - 1 / 9.0));                                                             \
        last = (2 << (bits)) - 1;                                                                                      \
    }

/* The code without sign of a magnitude y in [0, 1) that is not below the first decade; fewest: its bits. */
TN_INLINE int32_t tree_code(tn_real y, int fewest)
{
    tn_real slope = (tn_real)((1 << fewest) / (0.9 * 1e-6)), offset = (tn_real)((1 << fewest) * (1 - 1 / 9.0));
    int32_t last = (2 << fewest) - 1;
    DECADE(1e-5, fewest + 1)
    DECADE(1e-4, fewest + 2)
    DECADE(1e-3, fewest + 3)
    DECADE(1e-2, fewest + 4)
    DECADE(1e-1, fewest + 5)
    DECADE(1, fewest + 6)
    int32_t code = (int32_t)(y * slope + offset);
    return code < last ? code : last;
}

/* Above this the nearest value is 1, below the other 0. */
#define NEAREST_ONE(bits)  (tn_real)(1 - 0.225 / (1 << (bits)))
#define NEAREST_ZERO(bits) (tn_real)(0.5e-6 * (0.1 + 0.45 / (1 << (bits))))

TN_INLINE uint32_t signed_code(tn_real x)
{
    tn_real y = tn_abs(x);
    uint32_t code = (uint32_t)tree_code(y, 0) | (uint32_t)(x < 0) << 7;
    code = y < NEAREST_ZERO(0) ? 0 : code;
    return x > NEAREST_ONE(6) ? 0x80 : code;
}

/* x of the real itself: y = x / scale may have become 0 where x is not. Below 0 nothing bounds it. */
TN_INLINE uint32_t unsigned_code(tn_real x, tn_real y)
{
    int32_t code = tree_code(y > 0 ? y : 0, 1);
    code = x > 0 ? code > 2 ? code : 2 : 0;
    return y > NEAREST_ONE(7) ? 1 : (uint32_t)code;
}

/* ---- a block ---- */

/* A magnitude above its sign orders as the scale is chosen; inf and NaN lie above all. */
TN_INLINE tn_real signed_scale(int64_t n, const tn_real *real)
{
    word most = 0;
    for (int64_t i = 0; i < n; i++) {
        word bits = word_of(real[i]), key = bits << 1 | !(bits >> (TN_REAL - 1));
        most = key > most ? key : most;
    }
    return most >> 1 < WORD_INFINITY ? real_of(most >> 1 | (most & 1 ? 0 : WORD_SIGN)) : (tn_real)NAN;
}

TN_INLINE tn_real unsigned_scale(int64_t n, const tn_real *real)
{
    word most = 0;
    for (int64_t i = 0; i < n; i++) {
        word bits = word_of(real[i]), magnitude = bits & ~WORD_SIGN;
        magnitude = bits & WORD_SIGN && magnitude < WORD_INFINITY ? 0 : magnitude;
        most = magnitude > most ? magnitude : most;
    }
    return most < WORD_INFINITY ? real_of(most) : (tn_real)NAN;
}

TN_CLONES static void signed_encode(int64_t n, const tn_real *__restrict real, uint8_t *__restrict stored,
                                    tn_real *extra)
{
    for (int64_t lo = 0; lo < n; lo += BLOCK, real += BLOCK, stored += BLOCK) {
        int64_t m = n - lo < BLOCK ? n - lo : BLOCK;
        tn_real scale = signed_scale(m, real), divisor = scale == 0 ? 1 : scale;
        extra[lo / BLOCK] = scale;
        memset(stored, 0, (size_t)m);
        for (int64_t i = 0, end = scale == scale ? m : 0; i < end; i++)
            stored[i] = (uint8_t)signed_code(real[i] / divisor);
    }
}

TN_CLONES static void unsigned_encode(int64_t n, const tn_real *__restrict real, uint8_t *__restrict stored,
                                      tn_real *extra)
{
    for (int64_t lo = 0; lo < n; lo += BLOCK, real += BLOCK, stored += BLOCK) {
        int64_t m = n - lo < BLOCK ? n - lo : BLOCK;
        tn_real scale = unsigned_scale(m, real), divisor = scale == 0 ? 1 : scale;
        extra[lo / BLOCK] = scale;
        memset(stored, 0, (size_t)m);
        for (int64_t i = 0, end = scale == scale ? m : 0; i < end; i++)
            stored[i] = (uint8_t)unsigned_code(real[i], real[i] / divisor);
    }
}

/* A negative scale makes -0 of the code 0; adding 0 makes +0 of that and changes nothing else. */
TN_CLONES static void decode(int64_t n, const uint8_t *__restrict stored, const tn_real *__restrict values,
                             const tn_real *extra, tn_real *__restrict real)
{
    for (int64_t lo = 0; lo < n; lo += BLOCK, real += BLOCK, stored += BLOCK) {
        int64_t m = n - lo < BLOCK ? n - lo : BLOCK;
        tn_real scale = extra[lo / BLOCK];
        for (int64_t i = 0; i < m; i++)
            real[i] = values[stored[i]] * scale + 0;
    }
}

static void blockwise8_decode(const tn_codec_call *call)
{
    decode(call->n, (const uint8_t *)call->stored, call->flags & TN_CODEC_NONNEGATIVE ? unsigned_values : signed_values,
           (const tn_real *)call->extra, (tn_real *)call->real);
}

static void blockwise8_encode(const tn_codec_call *call)
{
    if (call->flags & TN_CODEC_NONNEGATIVE)
        unsigned_encode(call->n, (const tn_real *)call->real, (uint8_t *)call->stored, (tn_real *)call->extra);
    else
        signed_encode(call->n, (const tn_real *)call->real, (uint8_t *)call->stored, (tn_real *)call->extra);
}

static const tn_codec blockwise8_table = {sizeof(tn_codec), BLOCK, 8, sizeof(tn_real), blockwise8_decode,
                                          blockwise8_encode};
TN_COMPONENT(blockwise8, "codec", TN_CODEC, TN_REAL, TN_NO_HYPER, "8 bits an element, dynamic tree code, blocks of 256",
             TN_PAPER("arXiv:2110.02861") TN_FORMULA("x = scale of the block * value of the code"), blockwise8_table);
TN_PLUGIN("org.tenon.blockwise8", "0.1.0", "Apache-2.0", blockwise8)
