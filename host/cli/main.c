/* SPDX-License-Identifier: Apache-2.0
 *
 * main.c: the `tenon` program: commands, options, exit codes.
 */
#include "host/cli/cli.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const cli_command commands[] = {
    {"list", "[KIND]", "name every component that can be found; maps none of them", "ja", cli_list},
    {"info", "[KIND/]NAME", "explain one component: parameters, formula, state, file", "j", cli_info},
    {"run", "EXPERIMENT [key=value ...]", "train an experiment; overrides change it without editing", "jqrc", cli_run},
    {"resume", "RUN [key=value ...]", "go on with a run from the last checkpoint in its folder", "jq", cli_resume},
    {"bench", "memory|update|gemm|layer [LINKS ...]", "measure this machine and the host on it", "jaketn", cli_bench},
};
#define COMMAND_COUNT (sizeof commands / sizeof *commands)

static const struct {
    const char *name;
    char letter;
    int has_value;
    const char *help;
} option_table[] = {
    {"json", 'j', 0, "--json          print the result as JSON"},
    {"all", 'a', 0, "--all           also files that are no plugins"},
    {"quiet", 'q', 0, "--quiet         no plan and no progress on stderr"},
    {"runs", 'r', 1, "--runs FOLDER   where run folders are made (default: runs)"},
    {"cfg", 'c', 0, "--cfg           print the experiment with every default filled in, and stop"},
    {"costs", 'k', 0, "--costs         of bench update: what the chain's promises cost, instead"},
    {"elements", 'e', 1, "--elements N    of the largest array (default: 64 Mi, fewer where memory is short)"},
    {"threads", 't', 1, "--threads N     (default: one a CPU)"},
    {"rounds", 'n', 1, "--rounds N      of which medians are taken (default: 21)"},
    {"help", 'h', 0, "--help          this text"},
};
#define OPTION_COUNT (sizeof option_table / sizeof *option_table)

static void print_option_help(FILE *to, const char *letters)
{
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (strchr(letters, option_table[i].letter) || option_table[i].letter == 'h')
            fprintf(to, "  %s\n", option_table[i].help);
}

static void print_help(FILE *to, const cli_command *command)
{
    if (command) {
        fprintf(to, "usage: tenon %s %s\n%s\n\n", command->name, command->arguments, command->summary);
        print_option_help(to, command->options);
        return;
    }
    fprintf(to, "tenon %s: training techniques as plugins\n\nusage: tenon COMMAND ...\n\n", tenon_version());
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(to, "  %-6s %-28s %s\n", commands[i].name, commands[i].arguments, commands[i].summary);
    fprintf(to, "\n`tenon COMMAND --help` says more. Plugins are looked for in TENON_PLUGIN_PATH, in\n"
                "~/.local/share/tenon/plugins and beside the program.\n");
}

static const cli_command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (!strcmp(commands[i].name, name))
            return &commands[i];
    return NULL;
}

/* A whole number above 0; -1 after a complaint. */
static long long number_of(const char *value)
{
    char *end;
    errno = 0;
    long long n = strtoll(value, &end, 10);
    if (n > 0 && !errno && !*end && n <= INT_MAX * 1000LL)
        return n;
    fprintf(stderr, "tenon: \"%s\" is no whole number above 0\n", value);
    return -1;
}

/* -1 after a complaint. */
static int take_option(cli_options *options, char letter, const char *value)
{
    long long n = strchr("etn", letter) ? number_of(value) : 0;
    options->json |= letter == 'j';
    options->all |= letter == 'a';
    options->quiet |= letter == 'q';
    options->resolve |= letter == 'c';
    options->help |= letter == 'h';
    options->costs |= letter == 'k';
    if (letter == 'r')
        options->runs = value;
    else if (letter == 'e')
        options->elements = n;
    else if (letter == 't')
        options->threads = n;
    else if (letter == 'n')
        options->rounds = n;
    return n < 0 ? -1 : 0;
}

/* argv[0] is the command's name. Fills options and the positional arguments; -1 after a complaint. */
static int parse(const cli_command *command, int argc, char **argv, cli_options *options)
{
    struct option longs[OPTION_COUNT + 1] = {{0}};
    for (size_t i = 0; i < OPTION_COUNT; i++)
        longs[i] = (struct option){option_table[i].name, option_table[i].has_value, NULL, option_table[i].letter};
    for (int c; (c = getopt_long(argc, argv, "h", longs, NULL)) != -1;) {
        if (c == '?')
            return -1; /* getopt has said it */
        if (c != 'h' && !strchr(command->options, c)) {
            fprintf(stderr, "tenon: `%s` takes no such option; see `tenon %s --help`\n", command->name, command->name);
            return -1;
        }
        if (take_option(options, (char)c, optarg) != 0)
            return -1;
    }
    for (int i = optind; i < argc; i++)
        options->positional[options->count++] = argv[i];
    return 0;
}

int cli_fail(const tn_error *err)
{
    fprintf(stderr, "tenon: %s\n", err->msg);
    switch (err->code) {
    case TN_E_INVALID:
    case TN_E_NOT_FOUND:
        return EXIT_USAGE;
    case TN_E_PLUGIN:
        return EXIT_PLUGIN;
    case TN_E_NUMERIC:
        return EXIT_DIVERGED;
    default:
        return EXIT_FAILED;
    }
}

int cli_print(char *text)
{
    int failed = fputs(text, stdout) == EOF || fflush(stdout) == EOF;
    tenon_free(text);
    if (failed)
        fprintf(stderr, "tenon: can not write the result: %s\n", strerror(errno));
    return failed ? EXIT_FAILED : 0;
}

static void log_line(void *user, int32_t level, const char *line)
{
    (void)user;
    if (level >= 2)
        fprintf(stderr, "tenon: %s\n", line);
}

static int execute(const cli_command *command, const cli_options *options)
{
    tn_error err = {0};
    tenon *handle;
    tenon_options open = {.struct_size = sizeof open, .log = log_line};
    if (tenon_open(&open, &handle, &err) != TN_OK)
        return cli_fail(&err);
    int code = command->run(handle, options);
    tenon_close(handle);
    return code;
}

int main(int argc, char **argv)
{
    /* Before any BLAS is mapped: its own threads would fight ours, and a later call does not reach them all. */
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    const char *name = argc > 1 ? argv[1] : "";
    const cli_command *command = find_command(name);
    if (!strcmp(name, "--version"))
        return printf("tenon %s\n", tenon_version()) < 0;
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help"))
        return print_help(stdout, NULL), 0;
    if (!command) {
        if (*name)
            fprintf(stderr, "tenon: no command \"%s\"\n\n", name);
        return print_help(stderr, NULL), EXIT_USAGE;
    }
    cli_options options = {.positional = calloc((size_t)argc + 1, sizeof(char *))};
    int code = EXIT_FAILED;
    if (!options.positional)
        fprintf(stderr, "tenon: out of memory\n");
    else if (parse(command, argc - 1, argv + 1, &options) != 0)
        code = EXIT_USAGE;
    else if (options.help)
        code = (print_help(stdout, command), 0);
    else
        code = execute(command, &options);
    free(options.positional);
    return code;
}
