/* SPDX-License-Identifier: Apache-2.0
 *
 * check.c: `tenon check`: the conformance rules on plugin files.
 */
#include <stdlib.h>
#include <string.h>

#include "host/cli/cli.h"

#define ONLY_MOST 512

static int32_t whole(long long n) { return n < INT32_MAX ? (int32_t)n : INT32_MAX; }

static int print_rules(tenon *handle, const cli_options *options)
{
    tn_error err = {0};
    char *text;
    return tenon_check_rules(handle, options->json ? TENON_JSON : 0, &text, &err) == TN_OK ? cli_print(text)
                                                                                           : cli_fail(&err);
}

/* Cuts "a,b" in place; how many words there are. */
static size_t cut(char *list, const char **ret)
{
    size_t count = 0;
    char *rest = NULL;
    for (char *word = strtok_r(list, ", ", &rest); word && count < ONLY_MOST; word = strtok_r(NULL, ", ", &rest))
        ret[count++] = word;
    return count;
}

static int check_one(tenon *handle, const char *file, const tenon_check_options *how, const char *before)
{
    tn_error err = {0};
    char *text;
    int32_t failed;
    if (tenon_check(handle, file, how, &failed, &text, &err) != TN_OK)
        return cli_fail(&err);
    fputs(before, stdout);
    int code = cli_print(text);
    return code == 0 && failed > 0 ? EXIT_FAILED : code;
}

/* All files are looked at, the worst code counts; but a wrong command line is one for all of them. */
static int check_all(tenon *handle, const cli_options *options, const tenon_check_options *how)
{
    int worst = 0, printed = 0;
    for (size_t i = 0; i < options->count && worst != EXIT_USAGE; i++) {
        const char *before = !printed ? "" : options->json ? "," : "\n";
        int code = check_one(handle, options->positional[i], how, before);
        printed = printed || code == 0 || code == EXIT_FAILED;
        worst = code == EXIT_USAGE || code > worst ? code : worst;
    }
    return worst;
}

int cli_check(tenon *handle, const cli_options *options)
{
    const char *only[ONLY_MOST];
    if (options->list)
        return print_rules(handle, options);
    char *list = strdup(options->only ? options->only : "");
    if (!list) {
        fprintf(stderr, "tenon: out of memory\n");
        return EXIT_FAILED;
    }
    const tenon_check_options how = {.struct_size = sizeof how,
                                     .flags = options->json ? TENON_JSON : 0,
                                     .against = options->against,
                                     .only = only,
                                     .only_count = cut(list, only),
                                     .timeout_s = whole(options->timeout),
                                     .memory_mib = whole(options->memory)};
    fputs(options->json ? "[" : "", stdout);
    int code = check_all(handle, options, &how);
    fputs(options->json ? "]\n" : "", stdout);
    free(list);
    return code ? code : cli_flush();
}
