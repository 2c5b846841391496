/* SPDX-License-Identifier: Apache-2.0
 *
 * help.c: `tenon help`: the table for people, and as a manual page.
 */
#include <string.h>

#include "host/cli/cli.h"

static const char plugins_text[] = "Plugins are looked for in TENON_PLUGIN_PATH, in ~/.local/share/tenon/plugins and "
                                   "beside the program.";

/* A byte for people. */
static void put_plain(FILE *to, char c) { fputc(c, to); }

/* A byte as roff takes it. */
static void put_roff_byte(FILE *to, char c)
{
    if (c == '\\' || c == '~')
        fputs(c == '~' ? "\\(ti" : "\\e", to);
    else
        fputc(c, to);
}

/* Words of text in lines of at most `width` characters. */
static void put_wrapped(FILE *to, const char *text, int width, void (*put)(FILE *to, char c))
{
    for (int column = 0, length; *text; text += strspn(text, " ")) {
        length = (int)strcspn(text, " ");
        if (column > 0)
            fputc(column + 1 + length > width ? '\n' : ' ', to);
        column = column > 0 && column + 1 + length <= width ? column + 1 + length : length;
        for (; length > 0; length--)
            put(to, *text++);
    }
    fputc('\n', to);
}

static void print_options(FILE *to, const cli_command *command)
{
    for (const cli_option *o = cli_option_table; o->name; o++) {
        char label[64];
        snprintf(label, sizeof label, "--%s %s", o->name, o->value ? o->value : "");
        if (cli_takes(command, o))
            fprintf(to, "  %-18s %s\n", label, o->help);
    }
}

void cli_print_help(FILE *to, const cli_command *command)
{
    if (command) {
        fprintf(to, "usage: tenon %s %s\n%s\n\n", command->name, command->arguments, command->summary);
        if (command->text) {
            put_wrapped(to, command->text, 100, put_plain);
            fputc('\n', to);
        }
        print_options(to, command);
        fprintf(to, "\nexample: tenon %s\n", command->example);
        return;
    }
    fprintf(to, "tenon %s: training techniques as plugins\n\nusage: tenon COMMAND ...\n\n", tenon_version());
    for (const cli_command *c = cli_commands; c->name; c++)
        fprintf(to, "  %-10s %-37s %s\n", c->name, c->arguments, c->summary);
    fprintf(to, "\n`tenon help COMMAND` says more.\n");
    put_wrapped(to, plugins_text, 100, put_plain);
}

/* ---- the manual page ---- */

static void put_roff(FILE *to, const char *text)
{
    for (; *text; text++)
        put_roff_byte(to, *text);
}

/* A bracket at the end is none of roff's own. */
static void put_arguments(FILE *to, const char *arguments)
{
    put_roff(to, arguments);
    fputs(*arguments && arguments[strlen(arguments) - 1] == ']' ? "\\&\n" : "\n", to);
}

/* Sentences, each from a new line on, as mdoc wants them. */
static void put_sentences(FILE *to, const char *text)
{
    for (const char *end; *text; text = end + strspn(end, " ")) {
        for (end = text + 1; *end && !(end[-1] == '.' && *end == ' '); end++)
            ;
        char line[512];
        snprintf(line, sizeof line, "%.*s", (int)(end - text), text);
        put_wrapped(to, line, 76, put_roff_byte);
    }
}

static void put_option(FILE *to, const cli_option *o)
{
    char line[512];
    fprintf(to, ".It Fl \\-%s%s%s\n", o->name, o->value ? " Ar " : "", o->value ? o->value : "");
    snprintf(line, sizeof line, "%s.", o->help);
    put_sentences(to, line);
}

static void put_command(FILE *to, const cli_command *c)
{
    char line[512];
    fprintf(to, ".It Ic %s%s", c->name, *c->arguments ? " Ar " : "");
    put_arguments(to, c->arguments);
    snprintf(line, sizeof line, "%c%s.", c->summary[0] - 'a' + 'A', c->summary + 1);
    put_sentences(to, line);
    put_sentences(to, c->text ? c->text : "");
    fputs(".Pp\n.Bl -tag -width Ds -compact\n", to);
    for (const cli_option *o = cli_option_table; o->name; o++)
        if (cli_takes(c, o))
            put_option(to, o);
    fputs(".El\n", to);
}

void cli_print_manual(FILE *to)
{
    fprintf(to, ".\\\" Made by `tenon help --man`.\n.Dd $Mdocdate$\n.Dt TENON 1\n.Os\n.Sh NAME\n.Nm tenon\n"
                ".Nd training techniques as plugins\n.Sh SYNOPSIS\n");
    for (const cli_command *c = cli_commands; c->name; c++) {
        fprintf(to, ".Nm\n.Ic %s\n", c->name);
        fputs(".Op Ar option ...\n", to);
        if (*c->arguments) {
            fputs(".Ar ", to);
            put_arguments(to, c->arguments);
        }
    }
    fputs(".Sh DESCRIPTION\n.Nm\nruns training experiments that are composed of plugins:\noptimizers, schedulers, "
          "normalizers, losses, data sets.\n",
          to);
    put_sentences(to, plugins_text);
    fputs("Results go to standard output, all else to standard error.\n.Bl -tag -width Ds\n", to);
    for (const cli_command *c = cli_commands; c->name; c++)
        put_command(to, c);
    fputs(".El\n.Sh ENVIRONMENT\n.Bl -tag -width Ds\n"
          ".It Ev TENON_PLUGIN_PATH\nAbsolute folders that are searched for plugins first, with colons between them.\n"
          ".It Ev TENON_TRUST_UID\nThe number of one more user whose plugin files are trusted.\n"
          ".It Ev XDG_DATA_HOME\nWhere the user's plugins are; by default\n.Pa \\(ti/.local/share .\n.El\n"
          ".Sh EXIT STATUS\n.Bl -tag -width Ds -compact\n.It 0\nDone.\n.It 1\nThe run or the check failed.\n"
          ".It 2\nThe command line or the experiment is wrong.\n.It 3\nA plugin can not be used.\n"
          ".It 4\nThe run diverged.\n.It 128 + N\nEnded by signal N.\n.El\n.Sh EXAMPLES\n.Bd -literal\n",
          to);
    for (const cli_command *c = cli_commands; c->name; c++) {
        fputs("tenon ", to);
        put_roff(to, c->example);
        fputc('\n', to);
    }
    fputs(".Ed\n", to);
}

int cli_help(tenon *handle, const cli_options *options)
{
    (void)handle;
    const cli_command *command = NULL;
    if (options->count && !(command = cli_find_command(options->positional[0])))
        return EXIT_USAGE;
    if (options->man)
        cli_print_manual(stdout);
    else
        cli_print_help(stdout, command);
    return cli_flush();
}
