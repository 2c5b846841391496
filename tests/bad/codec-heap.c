/* SPDX-License-Identifier: Apache-2.0
 *
 * It allocates in each call.
 */
#include <stdlib.h>

#include "codec.h"

static void decode_copy(const tn_codec_call *call)
{
#ifndef REPAIRED
    void *volatile block = calloc((size_t)call->n, 2);
    free(block);
#endif
    decode(call);
}

BAD_CODEC("codec-heap", decode_copy, encode)
