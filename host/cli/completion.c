/* SPDX-License-Identifier: Apache-2.0
 *
 * completion.c: `tenon completion`: the table as scripts of three shells. Kinds and components are asked of the program
 * itself, so plugins that were installed later are completed too.
 */
#include <string.h>

#include "host/cli/cli.h"

static const char *const place_names[CLI_PLACES] = {"nothing",     "words",   "commands", "kinds",  "components",
                                                    "experiments", "plugins", "files",    "folders"};

/* `text`, a backslash before each character of `special`, and before each quote of a string in single quotes what the
 * shell wants there. */
static void put_quoted(const char *text, const char *special, const char *quote)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs(quote, stdout);
        else if (strchr(special, *text))
            printf("\\%c", *text);
        else
            putchar(*text);
    }
}

/* "train|eval" with blanks between the words. */
static void put_words(const char *words)
{
    for (; words && *words; words++)
        putchar(*words == '|' ? ' ' : *words);
}

static void put_command_names(const char *between)
{
    for (const cli_command *c = cli_commands; c->name; c++)
        printf("%s%s", c == cli_commands ? "" : between, c->name);
}

/* ---- bash ---- */

static const char bash_begin[] =
    "# bash completion of tenon, made by `tenon completion bash`.\n"
    "_tenon_lines() { mapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$cur\"); }\n"
    "_tenon_files() {\n"
    "    compopt -o filenames\n"
    "    mapfile -t COMPREPLY < <(compgen -d -- \"$cur\"; [[ -n $1 ]] && compgen -f -X \"!$1\" -- \"$cur\")\n"
    "}\n"
    "_tenon_names() { \"$program\" list --names 2>/dev/null; }\n"
    "_tenon() {\n"
    "    local program=$1 cur=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}\n"
    "    local command='' options='' first=commands others=nothing words='' place i n=0\n"
    "    COMPREPLY=()\n"
    "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
    "        case ${COMP_WORDS[i]} in\n";

static const char bash_middle[] =
    "        -*) ;;\n"
    "        *) if [[ -z $command ]]; then command=${COMP_WORDS[i]}; else ((n++)); fi ;;\n"
    "        esac\n"
    "    done\n"
    "    case $command in\n"
    "    '')\n"
    "        options='--help --version'\n";

static const char bash_end[] = "    *) return ;;\n"
                               "    esac\n"
                               "    place=$others\n"
                               "    ((n == 0)) && place=$first\n"
                               "    case $previous in\n";

static const char bash_places[] = "    *) if [[ $cur == -* ]]; then place=words words=$options; fi ;;\n"
                                  "    esac\n"
                                  "    case $place in\n"
                                  "    words) _tenon_lines \"$words\" ;;\n"
                                  "    kinds) _tenon_lines \"$(_tenon_names | sed 's,/.*,,')\" ;;\n"
                                  "    components) _tenon_lines \"$(_tenon_names | sed 'p;s,.*/,,')\" ;;\n"
                                  "    experiments) _tenon_files '*.y*ml' ;;\n"
                                  "    plugins) _tenon_files '*.so' ;;\n"
                                  "    files) _tenon_files '*' ;;\n"
                                  "    folders) _tenon_files '' ;;\n"
                                  "    esac\n"
                                  "}\n"
                                  "complete -F _tenon tenon\n";

static void put_bash_option(const cli_option *o)
{
    printf("    --%s) place=%s words='", o->name, place_names[o->place]);
    put_words(o->place == CLI_WORDS ? o->value : "");
    printf("' ;;\n");
}

static void put_bash_command(const cli_command *c)
{
    printf("    %s)\n        options='", c->name);
    for (const cli_option *o = cli_option_table; o->name; o++)
        if (cli_takes(c, o))
            printf("--%s ", o->name);
    printf("'\n        first=%s others=%s words='%s'\n", place_names[c->first], place_names[c->others],
           c->words ? c->words : "");
    if (c->first == CLI_COMMANDS) {
        printf("        first=words words='");
        put_command_names(" ");
        printf("'\n");
    }
    printf("        ;;\n");
}

static void put_bash(void)
{
    fputs(bash_begin, stdout);
    for (const cli_option *o = cli_option_table; o->name; o++)
        if (o->value)
            printf("        --%s) ((i++)) ;;\n", o->name);
    fputs(bash_middle, stdout);
    printf("        first=words words='");
    put_command_names(" ");
    printf("'\n        ;;\n");
    for (const cli_command *c = cli_commands; c->name; c++)
        put_bash_command(c);
    fputs(bash_end, stdout);
    for (const cli_option *o = cli_option_table; o->name; o++)
        if (o->value)
            put_bash_option(o);
    fputs(bash_places, stdout);
}

/* ---- zsh ---- */

static const char zsh_begin[] =
    "#compdef tenon\n"
    "# zsh completion of tenon, made by `tenon completion zsh`.\n"
    "_tenon_list() { compadd -- ${(f)\"$($tenon_program list --names 2>/dev/null | sed $1)\"} }\n"
    "_tenon_kinds() { _tenon_list 's,/.*,,' }\n"
    "_tenon_components() { _tenon_list 'p;s,.*/,,' }\n"
    "_tenon_experiments() { _files -g '*.(yaml|yml)' }\n"
    "_tenon_plugins() { _files -g '*.so' }\n"
    "_tenon_folders() { _files -/ }\n"
    "_tenon_nothing() { _message 'key=value' }\n"
    "_tenon_commands() {\n"
    "    local -a commands=(\n";

static const char zsh_middle[] = "    )\n"
                                 "    _describe -t commands command commands\n"
                                 "}\n"
                                 "_tenon() {\n"
                                 "    local tenon_program=$words[1] state\n"
                                 "    local -a line\n"
                                 "    _arguments -C '(- *)--help[print help]' '(- *)--version[print the version]' "
                                 "'1:command:_tenon_commands' '*::argument:->argument'\n"
                                 "    [[ $state == argument ]] || return\n"
                                 "    case $words[1] in\n";

static void put_zsh_place(enum cli_place place, const char *words)
{
    if (place == CLI_WORDS) {
        printf("(");
        put_words(words);
        printf(")");
    } else if (place == CLI_FILES) {
        printf("_files");
    } else {
        printf("_tenon_%s", place_names[place]);
    }
}

static void put_zsh_option(const cli_option *o)
{
    printf(" \\\n            '--%s[", o->name);
    put_quoted(o->help, "[]:\\", "'\\''");
    printf("]");
    if (o->value) {
        printf(":%s:", o->place == CLI_WORDS ? o->name : o->value);
        if (o->place != CLI_NOTHING)
            put_zsh_place(o->place, o->value);
    }
    printf("'");
}

static void put_zsh_command(const cli_command *c)
{
    printf("    %s)\n        _arguments", c->name);
    for (const cli_option *o = cli_option_table; o->name; o++)
        if (cli_takes(c, o))
            put_zsh_option(o);
    if (c->most > 0) {
        printf(" \\\n            '1:argument:");
        put_zsh_place(c->first, c->words);
        printf("'");
    }
    if (c->most > 1) {
        printf(" \\\n            '*:argument:");
        put_zsh_place(c->others, NULL);
        printf("'");
    }
    printf("\n        ;;\n");
}

static void put_zsh(void)
{
    fputs(zsh_begin, stdout);
    for (const cli_command *c = cli_commands; c->name; c++) {
        printf("        '%s:", c->name);
        put_quoted(c->summary, ":\\", "'\\''");
        printf("'\n");
    }
    fputs(zsh_middle, stdout);
    for (const cli_command *c = cli_commands; c->name; c++)
        put_zsh_command(c);
    printf("    esac\n}\n[[ $funcstack[1] == _tenon ]] && _tenon || compdef _tenon tenon\n");
}

/* ---- fish ---- */

static const char fish_begin[] = "# fish completion of tenon, made by `tenon completion fish`.\n"
                                 "function __tenon_names\n"
                                 "    set -l words (commandline -opc)\n"
                                 "    command $words[1] list --names 2>/dev/null\n"
                                 "end\n"
                                 "complete -c tenon -f\n"
                                 "complete -c tenon -n __fish_use_subcommand -l help -d 'print help'\n"
                                 "complete -c tenon -n __fish_use_subcommand -l version -d 'print the version'\n";

static const char *const fish_places[CLI_PLACES] = {
    [CLI_KINDS] = "(__tenon_names | string replace -r \"/.*\" \"\")",
    [CLI_COMPONENTS] = "(__tenon_names; __tenon_names | string replace -r \".*/\" \"\")",
    [CLI_EXPERIMENTS] = "(__fish_complete_suffix .yaml; __fish_complete_suffix .yml)",
    [CLI_PLUGINS] = "(__fish_complete_suffix .so)",
    [CLI_FILES] = "(__fish_complete_path)",
    [CLI_FOLDERS] = "(__fish_complete_directories)"};

/* " -a 'what there is'", or nothing. */
static void put_fish_place(enum cli_place place, const char *words)
{
    if (place == CLI_NOTHING)
        return;
    printf(" -a '");
    if (place == CLI_WORDS)
        put_words(words);
    else if (place == CLI_COMMANDS)
        put_command_names(" ");
    else
        fputs(fish_places[place], stdout);
    printf("'");
}

static void put_fish_command(const cli_command *c)
{
    printf("complete -c tenon -n __fish_use_subcommand -a %s -d '", c->name);
    put_quoted(c->summary, "\\", "\\'");
    printf("'\n");
    for (const cli_option *o = cli_option_table; o->name; o++) {
        if (!cli_takes(c, o))
            continue;
        printf("complete -c tenon -n '__fish_seen_subcommand_from %s' -l %s -d '", c->name, o->name);
        put_quoted(o->help, "\\", "\\'");
        printf("'%s", o->value ? " -x" : "");
        put_fish_place(o->place, o->value);
        putchar('\n');
    }
    const enum cli_place places[] = {c->first, c->others};
    for (int i = 0; i < 2; i++) {
        if (places[i] == CLI_NOTHING)
            continue;
        printf("complete -c tenon -n '__fish_seen_subcommand_from %s'", c->name);
        put_fish_place(places[i], i ? NULL : c->words);
        putchar('\n');
    }
}

static void put_fish(void)
{
    fputs(fish_begin, stdout);
    for (const cli_command *c = cli_commands; c->name; c++)
        put_fish_command(c);
}

int cli_completion(tenon *handle, const cli_options *options)
{
    static const struct {
        const char *name;
        void (*put)(void);
    } shells[] = {{"bash", put_bash}, {"zsh", put_zsh}, {"fish", put_fish}};
    (void)handle;
    for (size_t i = 0; i < sizeof shells / sizeof *shells; i++)
        if (!strcmp(options->positional[0], shells[i].name))
            return shells[i].put(), cli_flush();
    fprintf(stderr, "tenon: no completion for \"%s\"; there is bash, zsh and fish\n", options->positional[0]);
    return EXIT_USAGE;
}
