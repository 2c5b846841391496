/* SPDX-License-Identifier: Apache-2.0
 *
 * bench.c: `tenon bench`: how fast this machine is, and how near to that the host comes.
 */
#include <stdio.h>

#include "host/cli/cli.h"

/* What is too large stays so, for the library to say. */
static int32_t clamp(long long n) { return n > INT32_MAX ? INT32_MAX : (int32_t)n; }

int cli_bench(tenon *handle, const cli_options *options)
{
    tn_error err = {0};
    char *text;
    if (options->count < 1) {
        fprintf(stderr, "tenon: bench takes memory, update, gemm or layer: tenon bench update adamw\n");
        return EXIT_USAGE;
    }
    const tenon_bench_options bench = {.struct_size = sizeof bench,
                                       .flags = (options->json ? TENON_JSON : 0) | (options->all ? TENON_ALL : 0) |
                                                (options->costs ? TENON_COSTS : 0),
                                       .elements = options->elements,
                                       .threads = clamp(options->threads),
                                       .rounds = clamp(options->rounds),
                                       .chains = options->positional + 1,
                                       .chain_count = options->count - 1,
                                       .backend = NULL};
    return tenon_bench(handle, options->positional[0], &bench, &text, &err) == TN_OK ? cli_print(text) : cli_fail(&err);
}
