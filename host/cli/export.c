/* SPDX-License-Identifier: Apache-2.0
 *
 * export.c: `tenon export`: the parameters of a run for other programs.
 */
#include "host/cli/cli.h"

int cli_export(tenon *handle, const cli_options *options)
{
    tn_error err = {0};
    char *text;
    const tenon_export_options export = {.struct_size = sizeof export,
                                         .flags = options->json ? TENON_JSON : 0,
                                         .file = options->count > 1 ? options->positional[1] : NULL,
                                         .view = options->view};
    return tenon_export(handle, options->positional[0], &export, &text, &err) == TN_OK ? cli_print(text)
                                                                                       : cli_fail(&err);
}
