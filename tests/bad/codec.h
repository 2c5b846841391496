/* SPDX-License-Identifier: Apache-2.0
 *
 * codec.h: a codec for f32, codec/bad, for plugins that are wrong in one way: the upper 16 bits of a number, rounded
 * towards 0. A file takes the function here that it has no fault in.
 */
#ifndef TENON_TESTS_BAD_CODEC_H
#define TENON_TESTS_BAD_CODEC_H

#include <tenon/precision.h>
#include <tenon/sdk.h>

static TN_UNUSED uint16_t cut_number(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)(x == x ? bits >> 16 : 0x7FC0);
}

static TN_UNUSED float number_of(uint16_t code)
{
    uint32_t bits = (uint32_t)code << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static TN_UNUSED void encode(const tn_codec_call *call)
{
    for (int64_t i = 0; i < call->n; i++) {
        uint16_t code = cut_number(((const float *)call->real)[i]);
        memcpy((char *)call->stored + 2 * i, &code, 2);
    }
}

static TN_UNUSED void decode(const tn_codec_call *call)
{
    for (int64_t i = 0; i < call->n; i++) {
        uint16_t code;
        memcpy(&code, (const char *)call->stored + 2 * i, 2);
        ((float *)call->real)[i] = number_of(code);
    }
}

#define BAD_CODEC(id, decode, encode)                                                                                  \
    static const tn_codec bad_table = {sizeof(tn_codec), 1, 16, 0, decode, encode};                                    \
    TN_COMPONENT(bad, "codec", TN_CODEC, TN_REAL, TN_NO_HYPER, "a test", "", bad_table);                               \
    TN_PLUGIN("org.tenon.test." id, "0.1.0", "Apache-2.0", bad)

#endif
