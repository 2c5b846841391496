/* SPDX-License-Identifier: Apache-2.0
 *
 * bfloat16: the range of single precision with 7 bits of fraction. Kalamkar et al., arXiv:1905.12322.
 */
#include <tenon/codec.h>

TN_FLOAT_CODEC(bf16, 7, -126, "bfloat16, the upper half of single precision",
               TN_PAPER("arXiv:1905.12322") TN_FORMULA("sign 2^e 1.f, e in [-126, 127], f of 7 bits"))
TN_PLUGIN("org.tenon.bf16", "0.1.0", "Apache-2.0", bf16)
