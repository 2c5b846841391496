/* SPDX-License-Identifier: Apache-2.0
 *
 * comma.c: see comma.h.
 */
#include "host/check/comma.h"

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static bool take(const char *name)
{
    return setlocale(LC_NUMERIC, name) && strcmp(localeconv()->decimal_point, ",") == 0;
}

static bool write_sources(void)
{
    FILE *map = fopen("map", "w"), *source = fopen("source", "w");
    if (map) {
        fputs("<code_set_name> TENON\n<mb_cur_max> 1\n<comment_char> %\n<escape_char> /\nCHARMAP\n", map);
        for (unsigned c = 0; c < 128; c++)
            fprintf(map, "<U%04X> /x%02x c\n", c, c);
        fputs("END CHARMAP\n", map);
    }
    if (source)
        fputs("LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \".\"\ngrouping 3;3\nEND LC_NUMERIC\n", source);
    return (!map || fclose(map) == 0) && (!source || fclose(source) == 0) && map && source;
}

/* It counts the categories that are missing as a failure, and writes the locale all the same. */
static bool make(void)
{
    char folder[4096];
    if (!getcwd(folder, sizeof folder) || !write_sources())
        return false;
    pid_t child = fork();
    if (child == 0) {
        if (freopen("/dev/null", "w", stdout) && freopen("/dev/null", "w", stderr))
            execlp("localedef", "localedef", "-c", "-f", "map", "-i", "source", "./comma", (char *)NULL);
        _exit(127);
    }
    if (child < 0 || waitpid(child, NULL, 0) != child)
        return false;
    return setenv("LOCPATH", folder, 1) == 0 && take("comma");
}

bool tn_check_comma_locale(void)
{
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "pt_BR.UTF-8", "es_ES.UTF-8", "it_IT.UTF-8",
                                        "ru_RU.UTF-8", "nl_NL.UTF-8", "pl_PL.UTF-8", "de_DE",       "fr_FR"};
    uselocale(LC_GLOBAL_LOCALE); /* the program's thread has the C locale */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (take(names[i]))
            return true;
    return make();
}
