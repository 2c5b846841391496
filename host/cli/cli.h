/* SPDX-License-Identifier: Apache-2.0
 *
 * cli.h: the `tenon` program: one file a subcommand, each behind one function; and the table of commands and options
 * (table.c), which parsing, help, manual page and completion read.
 */
#ifndef TENON_HOST_CLI_CLI_H
#define TENON_HOST_CLI_CLI_H

#include <stdio.h>

#include "host/tenon.h"

#define EXIT_FAILED   1 /* the run or the check failed */
#define EXIT_USAGE    2 /* usage or experiment */
#define EXIT_PLUGIN   3 /* a plugin or the ABI */
#define EXIT_DIVERGED 4

/* What was given. 0 and NULL: was not. */
typedef struct cli_options {
    int json, all, quiet, resolve, help, costs, names, force, man, list, linear;
    const char *runs, *view, *only, *against, *language, *to, *row, *svg;
    const char *rate_from, *rate_to, *smooth, *stop;             /* numbers, as written */
    long long elements, threads, rounds, timeout, memory, steps; /* above 0 */
    const char **positional;                                     /* NULL-terminated; owned by main */
    size_t count;
} cli_options;

/* What completion offers in an argument's place. */
enum cli_place {
    CLI_NOTHING,
    CLI_WORDS, /* those of `words` */
    CLI_COMMANDS,
    CLI_KINDS,
    CLI_COMPONENTS,
    CLI_EXPERIMENTS, /* *.yaml */
    CLI_PLUGINS,     /* *.so */
    CLI_FILES,
    CLI_FOLDERS,
    CLI_PLACES
};

enum cli_type { CLI_FLAG, CLI_TEXT, CLI_NUMBER, CLI_REAL };

typedef struct cli_option {
    const char *name;
    char letter;       /* in cli_command.options */
    const char *value; /* what it is called, "FOLDER"; "train|eval": one of these; NULL: a flag */
    enum cli_type type;
    size_t offset; /* in cli_options */
    enum cli_place place;
    const char *help;
} cli_option;

typedef struct cli_command {
    const char *name, *arguments, *summary;
    const char *text;    /* the rest that there is to say, in whole sentences; NULL: nothing */
    const char *example; /* of the arguments */
    const char *options; /* letters of those it takes; all take --help */
    size_t least, most;  /* arguments */
    enum cli_place first, others;
    const char *words; /* "memory update": of CLI_WORDS */
    int bare;          /* 1: needs no handle, and is given NULL */
    int (*run)(tenon *handle, const cli_options *options);
} cli_command;

#define CLI_MANY SIZE_MAX

extern const cli_command cli_commands[]; /* both end in a NULL name */
extern const cli_option cli_option_table[];

int cli_list(tenon *handle, const cli_options *options);
int cli_info(tenon *handle, const cli_options *options);
int cli_range(tenon *handle, const cli_options *options);
int cli_run(tenon *handle, const cli_options *options);
int cli_resume(tenon *handle, const cli_options *options);
int cli_eval(tenon *handle, const cli_options *options);
int cli_export(tenon *handle, const cli_options *options);
int cli_install(tenon *handle, const cli_options *options);
int cli_doctor(tenon *handle, const cli_options *options);
int cli_check(tenon *handle, const cli_options *options);
int cli_new(tenon *handle, const cli_options *options);
int cli_bench(tenon *handle, const cli_options *options);
int cli_help(tenon *handle, const cli_options *options);
int cli_completion(tenon *handle, const cli_options *options);

/* The command of that name, or NULL after a complaint on stderr. */
const cli_command *cli_find_command(const char *name);
/* Does the command take the option? */
int cli_takes(const cli_command *command, const cli_option *option);

/* argv[0] is the command's name. Fills `ret`, whose positional[] has room for argc; -1 after a complaint on stderr. */
int cli_parse(const cli_command *command, int argc, char **argv, cli_options *ret);

/* Help on one command, NULL: on all. */
void cli_print_help(FILE *to, const cli_command *command);
/* The manual page, in mdoc. */
void cli_print_manual(FILE *to);

/* Prints "tenon: message" on stderr and returns the exit code for its status. */
int cli_fail(const tn_error *err);
/* Signals from now on: Ctrl-C asks to stop and a second one ends at once. What they have asked for since the last time,
 * TENON_STOP and TENON_CHECKPOINT; the exit code after a stop. */
void cli_heed_signals(void);
int32_t cli_asked(void);
int cli_stop_code(void);
/* Prints text that libtenon gave, frees it, and returns 0, or EXIT_FAILED when stdout can not be written. */
int cli_print(char *text);
/* After output to stdout: 0, or EXIT_FAILED with a word when it could not be written. */
int cli_flush(void);

#endif
