/* SPDX-License-Identifier: Apache-2.0
 *
 * 8 bits an element, with a power of two for each block of 64:  x = scale q,  q in -127 .. 127. What is not finite
 * makes the block's scale NaN, so that it is not finite when it is read.
 */
#include <tenon/precision.h>
#include <tenon/sdk.h>

enum { BLOCK = 64 }; /* a divisor of 512 */

/* The power of two that brings the largest number into [64, 128). */
static tn_real my_thing_scale(const tn_real *real, int64_t n)
{
    double most = 0;
    int exponent;
    for (int64_t i = 0; i < n; i++)
        most = fmax(most, real[i] - real[i] == 0 ? fabs((double)real[i]) : INFINITY);
    frexp(most, &exponent);
    return most < INFINITY ? (tn_real)ldexp(1, exponent > -119 ? exponent - 7 : -126) : (tn_real)NAN;
}

/* call->lo is on a block; the last block of a tensor may be short. */
static void my_thing_encode(const tn_codec_call *call)
{
    const tn_real *real = (const tn_real *)call->real;
    tn_real *scales = (tn_real *)call->extra;
    int8_t *stored = (int8_t *)call->stored;
    for (int64_t lo = 0; lo < call->n; lo += BLOCK) {
        int64_t end = lo + BLOCK < call->n ? lo + BLOCK : call->n;
        tn_real scale = scales[lo / BLOCK] = my_thing_scale(real + lo, end - lo);
        for (int64_t i = lo; i < end; i++) {
            double q = (double)real[i] / (double)scale;
            stored[i] = scale == scale ? (int8_t)lrint(fmin(fmax(q, -127), 127)) : 1;
        }
    }
}

static void my_thing_decode(const tn_codec_call *call)
{
    const int8_t *stored = (const int8_t *)call->stored;
    for (int64_t i = 0; i < call->n; i++)
        ((tn_real *)call->real)[i] = ((const tn_real *)call->extra)[i / BLOCK] * stored[i];
}

static const tn_codec my_thing_table = {sizeof(tn_codec),        BLOCK, 8, sizeof(tn_real), TN_CALL(my_thing_decode),
                                        TN_CALL(my_thing_encode)};
TN_COMPONENT(my_thing, "codec", TN_CODEC, TN_REAL, TN_NO_HYPER, "8 bits an element, a power of two a block of 64",
             TN_FORMULA("x = scale q"), my_thing_table);
TN_PLUGIN("org.example.my-thing", "0.1.0", "Apache-2.0", my_thing)
