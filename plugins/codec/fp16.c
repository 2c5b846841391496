/* SPDX-License-Identifier: Apache-2.0
 *
 * IEEE 754 half precision: 5 bits of exponent, 10 of fraction. Largest 65504, smallest normal 2^-14, smallest 2^-24.
 */
#include <tenon/codec.h>

TN_FLOAT_CODEC(fp16, 10, -14, "Half precision, IEEE 754 binary16",
               TN_FORMULA("sign 2^e 1.f, e in [-14, 15], f of 10 bits"))
TN_PLUGIN("org.tenon.fp16", "0.1.0", "Apache-2.0", fp16)
