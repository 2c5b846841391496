/* SPDX-License-Identifier: Apache-2.0
 *
 * Codecs that a host must refuse: blocks, bits and block scales that can not be.
 */
#include <tenon/precision.h>
#include <tenon/sdk.h>

static void nothing(const tn_codec_call *call) { (void)call; }

#define CODEC(name, block, bits, extra, decode, encode)                                                                \
    static const tn_codec name##_table = {sizeof(tn_codec), block, bits, extra, decode, encode};                       \
    TN_COMPONENT(name, "codec", TN_CODEC, TN_REAL, TN_NO_HYPER, "Wrong", "", name##_table)

CODEC(block_0, 0, 8, 4, nothing, nothing);
CODEC(block_3, 3, 8, 4, nothing, nothing);
CODEC(block_4096, 4096, 8, 4, nothing, nothing);
CODEC(bits_7, 1, 7, 0, nothing, nothing);
CODEC(bits_minus, 1, -8, 0, nothing, nothing);
CODEC(bits_128, 1, 128, 0, nothing, nothing);
CODEC(extra_minus, 256, 8, -4, nothing, nothing);
CODEC(no_encode, 256, 8, 4, nothing, NULL);
TN_PLUGIN("org.tenon.test.tables-codecs", "0.1.0", "Apache-2.0", block_0, block_3, block_4096, bits_7, bits_minus,
          bits_128, extra_minus, no_encode)
