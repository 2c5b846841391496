/* SPDX-License-Identifier: Apache-2.0
 *
 * It rounds at random by an element's place in the call, and not in the tensor.
 */
#include "codec.h"

static void encode_random(const tn_codec_call *call)
{
#ifdef REPAIRED
    int64_t lo = call->lo;
#else
    int64_t lo = 0;
#endif
    encode(call);
    for (int64_t i = 0; i < call->n; i++) {
        float x = ((const float *)call->real)[i];
        uint16_t code = cut_number(x);
        tn_random4 r = tn_philox(call->context->key, (uint64_t)call->context->attempt, (uint64_t)(lo + i));
        code = (uint16_t)(code + (x == x && number_of(code) != x && r.v[0] % 2));
        memcpy((char *)call->stored + 2 * i, &code, 2);
    }
}

BAD_CODEC("codec-slices", decode, encode_random)
