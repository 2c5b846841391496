/* SPDX-License-Identifier: Apache-2.0
 *
 * parse.c: the command line against the table.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "host/cli/cli.h"

#define WORDS_MAX 64

/* Goes on behind a complaint: "; did you mean "run"? " or "; ". */
static void suggest(const char *word, const char *const *words, size_t count, const char *before)
{
    const char *near = tenon_nearest(word, words, count);
    fprintf(stderr, near ? "; did you mean \"%s%s\"? " : "; ", before, near);
}

const cli_command *cli_find_command(const char *name)
{
    const char *names[WORDS_MAX];
    size_t count = 0;
    for (const cli_command *c = cli_commands; c->name; c++) {
        if (!strcmp(c->name, name))
            return c;
        names[count++] = c->name;
    }
    fprintf(stderr, "tenon: no command \"%s\"", name);
    suggest(name, names, count, "");
    fprintf(stderr, "`tenon help` lists them\n");
    return NULL;
}

int cli_takes(const cli_command *command, const cli_option *option)
{
    return option->letter == 'h' || strchr(command->options, option->letter) != NULL;
}

/* The option in "name" or "name=value", `size` bytes of name; NULL after a complaint. */
static const cli_option *find_option(const cli_command *command, const char *name, size_t size)
{
    char word[64];
    const char *names[WORDS_MAX];
    size_t count = 0;
    int of_others = 0;
    snprintf(word, sizeof word, "%.*s", size < sizeof word ? (int)size : (int)sizeof word - 1, name);
    for (const cli_option *o = cli_option_table; o->name; o++) {
        if (!strcmp(o->name, word) && cli_takes(command, o))
            return o;
        of_others |= !strcmp(o->name, word);
        if (cli_takes(command, o))
            names[count++] = o->name;
    }
    if (of_others) {
        fprintf(stderr, "tenon: `%s` takes no such option as --%s; see `tenon help %s`\n", command->name, word,
                command->name);
        return NULL;
    }
    fprintf(stderr, "tenon: no option --%s", word);
    suggest(word, names, count, "--");
    fprintf(stderr, "see `tenon help %s`\n", command->name);
    return NULL;
}

#define NUMBER_MOST (INT_MAX * 1000LL)

/* A whole number above 0; -1 after a complaint. */
static long long number_of(const cli_option *option, const char *value)
{
    char *end;
    errno = 0;
    long long n = strtoll(value, &end, 10);
    if (n > 0 && !errno && !*end && n <= NUMBER_MOST)
        return n;
    if (n > 0 && !*end)
        fprintf(stderr, "tenon: --%s: %s is too large, needed 1 to %lld\n", option->name, value, NUMBER_MOST);
    else
        fprintf(stderr, "tenon: --%s: \"%s\" is no whole number above 0\n", option->name, value);
    return -1;
}

/* Is it a number? "inf" is one. */
static int is_real(const char *value)
{
    char *end;
    double x = strtod(value, &end);
    return *value && !*end && *value != ' ' && x == x;
}

/* Is it one of "train|eval"? Anything is one of a single word. */
static int is_one_of(const char *words, const char *value)
{
    size_t length = strlen(value);
    if (!strchr(words, '|'))
        return 1;
    for (const char *at = words; *at; at += strcspn(at, "|"), at += *at == '|')
        if (strcspn(at, "|") == length && !strncmp(at, value, length))
            return 1;
    return 0;
}

/* -1 after a complaint. */
static int take_value(cli_options *ret, const cli_option *option, const char *value)
{
    char *place = (char *)ret + option->offset;
    if (option->type == CLI_NUMBER) {
        long long n = number_of(option, value);
        *(long long *)place = n;
        return n < 0 ? -1 : 0;
    }
    if (option->type == CLI_REAL && !is_real(value)) {
        fprintf(stderr, "tenon: --%s: \"%s\" is no number\n", option->name, value);
        return -1;
    }
    if (!is_one_of(option->value, value)) {
        fprintf(stderr, "tenon: --%s: \"%s\" is none of %s\n", option->name, value, option->value);
        return -1;
    }
    *(const char **)place = value;
    return 0;
}

/* Takes argv[0], and argv[1] where that is its value; how many, -1 after a complaint. */
static int take_option(const cli_command *command, char **argv, cli_options *ret)
{
    if (!strcmp(argv[0], "-h")) {
        ret->help = 1;
        return 1;
    }
    if (argv[0][1] != '-') {
        fprintf(stderr, "tenon: no option %s; options have whole names, see `tenon help %s`\n", argv[0], command->name);
        return -1;
    }
    const char *name = argv[0] + 2;
    size_t size = strcspn(name, "=");
    const cli_option *option = find_option(command, name, size);
    if (!option)
        return -1;
    if (option->type == CLI_FLAG && name[size] == '=') {
        fprintf(stderr, "tenon: --%s takes no value\n", option->name);
        return -1;
    }
    if (option->type == CLI_FLAG) {
        *(int *)((char *)ret + option->offset) = 1;
        return 1;
    }
    const char *value = name[size] == '=' ? name + size + 1 : argv[1];
    if (!value) {
        fprintf(stderr, "tenon: --%s needs a value: --%s %s\n", option->name, option->name, option->value);
        return -1;
    }
    return take_value(ret, option, value) != 0 ? -1 : 1 + (value == argv[1]);
}

static int check_count(const cli_command *command, const cli_options *options)
{
    if (options->help || options->man || options->list ||
        (options->count >= command->least && options->count <= command->most))
        return 0;
    fprintf(stderr, "tenon: %s takes %s: tenon %s\n", command->name,
            *command->arguments ? command->arguments : "nothing", command->example);
    return -1;
}

int cli_parse(const cli_command *command, int argc, char **argv, cli_options *ret)
{
    int only_arguments = 0;
    for (int i = 1, taken; i < argc; i += taken) {
        taken = 1;
        if (!only_arguments && !strcmp(argv[i], "--"))
            only_arguments = 1;
        else if (only_arguments || argv[i][0] != '-' || !argv[i][1])
            ret->positional[ret->count++] = argv[i];
        else if ((taken = take_option(command, argv + i, ret)) < 0)
            return -1;
    }
    return check_count(command, ret);
}
