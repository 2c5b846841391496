/* SPDX-License-Identifier: Apache-2.0
 *
 * It stores two bytes more than there is room for.
 */
#include "codec.h"

static void encode_more(const tn_codec_call *call)
{
    encode(call);
#ifndef REPAIRED
    memset((char *)call->stored + 2 * call->n, 0, 2);
#endif
}

BAD_CODEC("codec-bounds", decode, encode_more)
