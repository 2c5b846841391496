/* SPDX-License-Identifier: Apache-2.0
 *
 * main.c: the `tenon` program: from a command line to a command, and from a status to an exit code.
 */
#include "host/cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A message on stderr, in one piece, as several processes may speak at once. What it quotes may be anyone's: a control
 * character, but for ends of lines, becomes '?', so that none reaches the terminal. */
static void say(const char *message)
{
    char text[4096] = "tenon: ";
    size_t size = strlen(text);
    for (; *message && size < sizeof text - 1; message++) {
        unsigned char c = (unsigned char)*message, next = (unsigned char)message[1];
        int two = c == 0xC2 && next >= 0x80 && next < 0xA0; /* U+0080 to U+009F */
        text[size++] = two || (c < ' ' && c != '\n') || c == 0x7F ? '?' : *message;
        message += two;
    }
    text[size++] = '\n';
    fwrite(text, 1, size, stderr);
}

int cli_fail(const tn_error *err)
{
    say(err->msg);
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

int cli_flush(void)
{
    if (fflush(stdout) != EOF && !ferror(stdout))
        return 0;
    fprintf(stderr, "tenon: can not write the result: %s\n", strerror(errno));
    return EXIT_FAILED;
}

int cli_print(char *text)
{
    fputs(text, stdout);
    tenon_free(text);
    return cli_flush();
}

static void log_line(void *user, int32_t level, const char *line)
{
    (void)user;
    if (level >= 2)
        say(line);
}

static int execute(const cli_command *command, const cli_options *options)
{
    tn_error err = {0};
    tenon *handle;
    tenon_options open = {.struct_size = sizeof open, .log = log_line};
    if (command->bare)
        return command->run(NULL, options);
    if (tenon_open(&open, &handle, &err) != TN_OK)
        return cli_fail(&err);
    int code = command->run(handle, options);
    tenon_close(handle);
    return code;
}

static int run_command(const cli_command *command, int argc, char **argv)
{
    cli_options options = {.positional = calloc((size_t)argc + 1, sizeof(char *))};
    int code = EXIT_FAILED;
    if (!options.positional)
        fprintf(stderr, "tenon: out of memory\n");
    else if (cli_parse(command, argc, argv, &options) != 0)
        code = EXIT_USAGE;
    else if (options.help)
        code = (cli_print_help(stdout, command), cli_flush());
    else
        code = execute(command, &options);
    free(options.positional);
    return code;
}

/* A standard file that the caller has closed would be the next file that is opened, such as a run's metrics, and what
 * goes to stderr would go there. In its place stands one that fails as a closed one does. */
static void keep_standard_files(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            _exit(EXIT_FAILED);
}

int main(int argc, char **argv)
{
    keep_standard_files();
    /* Before any BLAS is mapped: its own threads would fight ours, and a later call does not reach them all. */
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    /* This thread prints numbers with a point, even if a plugin gives the process another locale. */
    uselocale(newlocale(LC_ALL_MASK, "C", NULL));
    const char *name = argc > 1 ? argv[1] : "";
    if (!*name)
        return cli_print_help(stderr, NULL), EXIT_USAGE;
    if (!strcmp(name, "--version"))
        return printf("tenon %s\n", tenon_version()), cli_flush();
    if (!strcmp(name, "--help") || !strcmp(name, "-h"))
        return cli_print_help(stdout, NULL), cli_flush();
    const cli_command *command = cli_find_command(name);
    return command ? run_command(command, argc - 1, argv + 1) : EXIT_USAGE;
}
