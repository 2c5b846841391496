/* SPDX-License-Identifier: Apache-2.0
 *
 * new.c: `tenon new`: the folder of a plugin to begin with.
 */
#include "host/cli/cli.h"

int cli_new(tenon *handle, const cli_options *options)
{
    tn_error err = {0};
    char *text;
    const tenon_new_options how = {.struct_size = sizeof how,
                                   .flags = options->json ? TENON_JSON : 0,
                                   .language = options->language,
                                   .folder = options->to};
    return tenon_new(handle, options->positional[0], options->positional[1], &how, &text, &err) == TN_OK
               ? cli_print(text)
               : cli_fail(&err);
}
