/* SPDX-License-Identifier: Apache-2.0
 *
 * cli.h: the `tenon` program: one file a subcommand, each behind one function.
 */
#ifndef TENON_HOST_CLI_CLI_H
#define TENON_HOST_CLI_CLI_H

#include "host/tenon.h"

#define EXIT_FAILED   1 /* the run or the check failed */
#define EXIT_USAGE    2 /* usage or experiment */
#define EXIT_PLUGIN   3 /* a plugin or the ABI */
#define EXIT_DIVERGED 4

/* Options that commands share; what is left of argv are the positional arguments. */
typedef struct cli_options {
    int json, all, quiet, resolve, help, costs;
    const char *runs;
    long long elements, threads, rounds; /* 0: not given */
    const char **positional;             /* NULL-terminated; owned by main */
    size_t count;
} cli_options;

typedef struct cli_command {
    const char *name, *arguments, *summary;
    /* Letters of those it takes: j json, a all, q quiet, r runs, c cfg, e elements, t threads, n rounds, k costs. */
    const char *options;
    int (*run)(tenon *handle, const cli_options *options);
} cli_command;

int cli_list(tenon *handle, const cli_options *options);
int cli_info(tenon *handle, const cli_options *options);
int cli_run(tenon *handle, const cli_options *options);
int cli_resume(tenon *handle, const cli_options *options);
int cli_bench(tenon *handle, const cli_options *options);

/* Prints "tenon: message" on stderr and returns the exit code for its status. */
int cli_fail(const tn_error *err);
/* Prints text that libtenon gave, frees it, and returns 0, or EXIT_FAILED when stdout can not be written. */
int cli_print(char *text);

#endif
