/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon_doctor.c: the part of the C API that looks for trouble.
 */
#include "host/doctor/doctor.h"
#include "host/handle.h"

int32_t tenon_doctor(tenon *handle, const char *runs, uint32_t flags, int32_t *ret_wrong, char **ret, tn_error *err)
{
    tn_doctor doctor = {.registry = handle->registry, .runs = runs ? runs : "runs"};
    tn_text text = {0};
    int32_t status = tn_doctor_examine(&doctor, err);
    if (status == TN_OK)
        tn_doctor_print(&doctor, (flags & TENON_JSON) != 0, &text);
    int32_t wrong = tn_doctor_wrong(&doctor);
    tn_doctor_free(&doctor);
    status = tn_handle_give(&text, status, ret, err);
    if (status == TN_OK)
        *ret_wrong = wrong;
    return status;
}
