/* SPDX-License-Identifier: Apache-2.0
 *
 * Codecs that a host must refuse: blocks that do not divide 512, no functions, blocks that end within a byte,
 * block scales of megabytes.
 */
#include <tenon/precision.h>
#include <tenon/sdk.h>

static void nothing(const tn_codec_call *call) { (void)call; }

static const tn_codec uneven_table = {sizeof(tn_codec), 96, 8, 4, nothing, nothing};
static const tn_codec mute_table = {sizeof(tn_codec), 256, 8, 4, NULL, nothing};
static const tn_codec nibble_table = {sizeof(tn_codec), 1, 4, 0, nothing, nothing};
static const tn_codec fat_table = {sizeof(tn_codec), 1, 8, 1 << 20, nothing, nothing};

TN_COMPONENT(uneven, "codec", TN_CODEC, TN_REAL, TN_NO_HYPER, "blocks of 96", "", uneven_table);
TN_COMPONENT(mute, "codec", TN_CODEC, TN_REAL, TN_NO_HYPER, "no decode", "", mute_table);
TN_COMPONENT(nibble, "codec", TN_CODEC, TN_REAL, TN_NO_HYPER, "half a byte", "", nibble_table);
TN_COMPONENT(fat, "codec", TN_CODEC, TN_REAL, TN_NO_HYPER, "a megabyte each", "", fat_table);
TN_PLUGIN("org.example.codecs-wrong", "1.0.0", "Apache-2.0", uneven, mute, nibble, fat)
