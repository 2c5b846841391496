/* SPDX-License-Identifier: Apache-2.0
 *
 * list.c: `tenon list`: what can be found.
 */
#include "host/cli/cli.h"

int cli_list(tenon *handle, const cli_options *options)
{
    tn_error err = {0};
    char *text;
    uint32_t flags =
        (options->json ? TENON_JSON : 0) | (options->all ? TENON_ALL : 0) | (options->names ? TENON_NAMES : 0);
    return tenon_list(handle, options->positional[0], flags, &text, &err) == TN_OK ? cli_print(text) : cli_fail(&err);
}
