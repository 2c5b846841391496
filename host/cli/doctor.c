/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor.c: `tenon doctor`: the usual trouble of a machine, and what mends it.
 */
#include "host/cli/cli.h"

int cli_doctor(tenon *handle, const cli_options *options)
{
    tn_error err = {0};
    char *text;
    int32_t wrong;
    uint32_t flags = options->json ? TENON_JSON : 0;
    if (tenon_doctor(handle, options->runs, flags, &wrong, &text, &err) != TN_OK)
        return cli_fail(&err);
    int code = cli_print(text);
    return code == 0 && wrong > 0 ? EXIT_FAILED : code;
}
