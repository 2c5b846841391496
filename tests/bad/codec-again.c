/* SPDX-License-Identifier: Apache-2.0
 *
 * It shrinks what it decodes.
 */
#include "codec.h"

static void decode_less(const tn_codec_call *call)
{
    decode(call);
#ifndef REPAIRED
    for (int64_t i = 0; i < call->n; i++)
        ((float *)call->real)[i] *= 0.99f;
#endif
}

BAD_CODEC("codec-again", decode_less, encode)
