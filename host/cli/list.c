/* SPDX-License-Identifier: Apache-2.0
 *
 * list.c: `tenon list`: what can be found.
 */
#include <stdio.h>

#include "host/cli/cli.h"

int cli_list(tenon *handle, const cli_options *options)
{
    tn_error err = {0};
    char *text;
    if (options->count > 1) {
        fprintf(stderr, "tenon: list takes one kind at most\n");
        return EXIT_USAGE;
    }
    uint32_t flags = (options->json ? TENON_JSON : 0) | (options->all ? TENON_ALL : 0);
    const char *kind = options->count ? options->positional[0] : NULL;
    return tenon_list(handle, kind, flags, &text, &err) == TN_OK ? cli_print(text) : cli_fail(&err);
}
