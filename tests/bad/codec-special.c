/* SPDX-License-Identifier: Apache-2.0
 *
 * 1: NaN becomes 0. 2: a number that is never below 0 becomes the nearest of two that lie about 0.
 */
#include "codec.h"

static void encode_special(const tn_codec_call *call)
{
    encode(call);
#ifndef REPAIRED
    for (int64_t i = 0; i < call->n; i++) {
        float x = ((const float *)call->real)[i];
        uint16_t code = cut_number(FAULT == 1 ? 0 : -1e-3f);
        if (FAULT == 1 ? x != x : call->flags & TN_CODEC_NONNEGATIVE && x < 1e-3f && x != 0)
            memcpy((char *)call->stored + 2 * i, &code, 2);
    }
#endif
}

BAD_CODEC("codec-special", decode, encode_special)
