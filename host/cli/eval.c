/* SPDX-License-Identifier: Apache-2.0
 *
 * eval.c: `tenon eval`: what a run has learnt, measured.
 */
#include <limits.h>

#include "host/cli/cli.h"

int cli_eval(tenon *handle, const cli_options *options)
{
    tn_error err = {0};
    char *text;
    const tenon_eval_options eval = {.struct_size = sizeof eval,
                                     .flags = options->json ? TENON_JSON : 0,
                                     .split = options->positional[1],
                                     .view = options->view,
                                     .threads = options->threads > INT_MAX ? INT_MAX : (int32_t)options->threads};
    return tenon_eval(handle, options->positional[0], &eval, &text, &err) == TN_OK ? cli_print(text) : cli_fail(&err);
}
