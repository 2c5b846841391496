/* SPDX-License-Identifier: Apache-2.0
 *
 * install.c: `tenon install`: a plugin file for this user.
 */
#include "host/cli/cli.h"

int cli_install(tenon *handle, const cli_options *options)
{
    tn_error err = {0};
    char *text;
    uint32_t flags = (options->json ? TENON_JSON : 0) | (options->force ? TENON_FORCE : 0);
    return tenon_install(handle, options->positional[0], flags, &text, &err) == TN_OK ? cli_print(text)
                                                                                      : cli_fail(&err);
}
