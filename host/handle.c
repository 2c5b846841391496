/* SPDX-License-Identifier: Apache-2.0
 *
 * handle.c: what the files that implement tenon.h share.
 */
#include "host/handle.h"

#include "host/base/memory.h"

int32_t tn_handle_give(tn_text *text, int32_t status, char **ret, tn_error *err)
{
    if (status == TN_OK)
        status = tn_text_status(text, err);
    if (status == TN_OK) {
        *ret = tn_text_take(text);
        if (!*ret)
            status = tn_error_set(err, TN_E_MEMORY, "no memory for the text");
    }
    tn_text_free(text);
    return status;
}
