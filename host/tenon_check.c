/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon_check.c: the part of the C API that checks plugins.
 */
#include "host/base/take.h"
#include "host/check/check.h"
#include "host/handle.h"

int32_t tenon_check(tenon *handle, const char *file, const tenon_check_options *options, int32_t *ret_failed,
                    char **ret, tn_error *err)
{
    (void)handle;
    tenon_check_options given = {0};
    tn_check_report report;
    tn_text text = {0};
    if (options)
        tn_take(&given, sizeof given, options);
    const tn_check_options what = {.path = file,
                                   .against = given.against,
                                   .only = given.only,
                                   .only_count = given.only_count,
                                   .timeout_s = given.timeout_s,
                                   .memory = (int64_t)given.memory_mib << 20};
    int32_t status = tn_check_run(&what, &report, err);
    if (status != TN_OK)
        return status;
    int32_t failed = (int32_t)report.failed;
    tn_check_print(&report, (given.flags & TENON_JSON) != 0, &text);
    tn_check_report_free(&report);
    status = tn_handle_give(&text, TN_OK, ret, err);
    if (status == TN_OK)
        *ret_failed = failed;
    return status;
}

int32_t tenon_check_rules(tenon *handle, uint32_t flags, char **ret, tn_error *err)
{
    (void)handle;
    tn_text text = {0};
    tn_check_list((flags & TENON_JSON) != 0, &text);
    return tn_handle_give(&text, TN_OK, ret, err);
}
