/* SPDX-License-Identifier: Apache-2.0
 *
 * failure.c: the first error of calls that return nothing.
 */
#include "host/base/failure.h"

void tn_failures_keep(tn_failures *failures, int32_t code, const char *text)
{
    int32_t none = 0;
    if (!atomic_compare_exchange_strong(&failures->state, &none, 1))
        return;
    int known = code > TN_OK && code <= TN_E_NOT_FOUND;
    tn_error_set(&failures->first, known ? code : TN_E_INTERNAL, "%s",
                 text ? text : "a component failed without words");
    atomic_store(&failures->state, 2);
}

int32_t tn_failures_take(tn_failures *failures, tn_error *err)
{
    if (atomic_load(&failures->state) != 2)
        return TN_OK;
    int32_t status = tn_error_set(err, failures->first.code, "%s", failures->first.msg);
    atomic_store(&failures->state, 0);
    return status;
}
