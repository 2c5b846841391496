/* SPDX-License-Identifier: Apache-2.0
 *
 * info.c: `tenon info`: one component explained.
 */
#include "host/cli/cli.h"

int cli_info(tenon *handle, const cli_options *options)
{
    tn_error err = {0};
    char *text;
    uint32_t flags = options->json ? TENON_JSON : 0;
    return tenon_info(handle, options->positional[0], flags, &text, &err) == TN_OK ? cli_print(text) : cli_fail(&err);
}
