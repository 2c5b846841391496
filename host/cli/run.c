/* SPDX-License-Identifier: Apache-2.0
 *
 * run.c: `tenon run` and `tenon resume`: an experiment, its progress and its result.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "host/base/utf8.h"
#include "host/cli/cli.h"

#define MAX_FIELDS 24

/* What the observer keeps: the last evaluation, for the result, and when the line was last drawn. */
typedef struct {
    int quiet, terminal;
    int64_t updates; /* attempts of the whole run */
    double started, drawn;
    int64_t update;
    int32_t field_count;
    char names[MAX_FIELDS][64];
    double values[MAX_FIELDS];
} progress;

static volatile sig_atomic_t interrupted, save_asked;

/* SIGUSR1 asks for a checkpoint. Of the others the first asks to stop after this update, the second stops at once. */
static void on_signal(int number)
{
    if (number == SIGUSR1) {
        save_asked = 1;
        return;
    }
    if (interrupted)
        _exit(128 + number);
    interrupted = number;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double field(const tn_record *record, const char *name, double otherwise)
{
    for (int32_t i = 0; i < record->field_count; i++)
        if (!strcmp(record->fields[i].name, name))
            return record->fields[i].value;
    return otherwise;
}

static void draw(progress *p, const tn_record *record)
{
    double time = seconds(), done = (double)record->attempt / (double)(p->updates > 0 ? p->updates : 1);
    if (!p->terminal || time - p->drawn < 0.1)
        return;
    p->drawn = time;
    int filled = (int)(done * 24 + 0.5);
    fprintf(stderr, "\r\033[K[%.*s%*s] %3.0f%%  epoch %.2f  loss %.4f  %.0f s left", filled, "########################",
            24 - filled, "", 100 * done, record->epoch, field(record, "loss", 0),
            done > 0 ? (time - p->started) * (1 - done) / done : 0.0);
}

static void keep_evaluation(progress *p, const tn_record *record)
{
    p->field_count = record->field_count < MAX_FIELDS ? record->field_count : MAX_FIELDS;
    for (int32_t i = 0; i < p->field_count; i++) {
        snprintf(p->names[i], sizeof p->names[i], "%s", record->fields[i].name);
        p->values[i] = record->fields[i].value;
    }
    if (p->quiet)
        return;
    fprintf(stderr, "%sepoch %-6.4g update %-8lld", p->terminal ? "\r\033[K" : "", record->epoch,
            (long long)record->update);
    for (int32_t i = 0; i < p->field_count; i++)
        fprintf(stderr, " %s %.4f", p->names[i], p->values[i]);
    fprintf(stderr, "  %.1f s\n", seconds() - p->started);
}

/* What signals have asked for since the last time. */
int32_t cli_asked(void)
{
    int32_t save = save_asked;
    save_asked = 0;
    return (interrupted ? TENON_STOP : 0) | (save ? TENON_CHECKPOINT : 0);
}

static int32_t observe(void *user, const tn_record *record)
{
    progress *p = user;
    p->update = record->update;
    if (!p->started) /* not the first of the run's processes: only that one shows what it does */
        return cli_asked();
    if (!strcmp(record->event, "eval"))
        keep_evaluation(p, record);
    else if (!p->quiet && !strcmp(record->event, "train"))
        draw(p, record);
    return cli_asked();
}

static void describe(void *user, const char *text, int64_t updates)
{
    progress *p = user;
    p->updates = updates;
    p->started = seconds();
    if (!p->quiet)
        fputs(text, stderr);
}

/* Each byte that is not part of UTF-8, as a folder's name may hold, becomes the replacement character. */
static void print_json_string(const char *text)
{
    putchar('"');
    for (size_t length; *text; text += length ? length : 1) {
        length = tn_utf8_length(text, SIZE_MAX);
        if (!length)
            printf("\\ufffd");
        else if (*text == '"' || *text == '\\')
            printf("\\%c", *text);
        else if ((unsigned char)*text < 0x20)
            printf("\\u%04x", (unsigned)*text);
        else
            fwrite(text, 1, length, stdout);
    }
    putchar('"');
}

/* The shortest decimal that reads back the same. */
static void print_json_number(double value)
{
    char text[40] = "";
    if (value - value != 0) {
        printf(":\"%f\"", value);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    printf(":%s", text);
}

static void print_result(const progress *p, const char *folder, int json)
{
    if (!json) {
        for (int32_t i = 0; i < p->field_count; i++)
            printf("%-14s %.4f\n", p->names[i], p->values[i]);
        printf("%-14s %s\n", "run folder", folder);
        return;
    }
    printf("{\"folder\":");
    print_json_string(folder);
    printf(",\"updates\":%lld", (long long)p->update);
    for (int32_t i = 0; i < p->field_count; i++) {
        putchar(',');
        print_json_string(p->names[i]);
        print_json_number(p->values[i]);
    }
    printf("}\n");
}

static int resolve(tenon *handle, const cli_options *options)
{
    tn_error err = {0};
    char *text;
    int32_t status =
        tenon_resolve(handle, options->positional[0], options->positional + 1, options->count - 1, &text, &err);
    return status == TN_OK ? cli_print(text) : cli_fail(&err);
}

void cli_heed_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, before;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    signal(SIGPIPE, SIG_IGN); /* who only watches may leave: `tenon run ... 2>&1 | less` */
    if (sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler != SIG_IGN) /* nohup is heeded */
        sigaction(SIGHUP, &action, NULL);
}

/* Or another process of the run was asked to. */
int cli_stop_code(void) { return 128 + (interrupted ? (int)interrupted : SIGTERM); }

static progress begin(const cli_options *options)
{
    cli_heed_signals();
    return (progress){.quiet = options->quiet, .terminal = isatty(STDERR_FILENO) && !options->quiet};
}

/* What there is to say at the end of a run; the exit code. */
static int finish(const progress *p, const cli_options *options, int32_t status, const char *folder,
                  const tn_error *err)
{
    if (p->terminal && p->drawn > 0)
        fprintf(stderr, "\r\033[K");
    int code = 0;
    if (status == TN_OK && folder) {
        print_result(p, folder, options->json);
        code = cli_flush();
    } else if (status != TN_OK) {
        code = cli_fail(err);
    }
    if (status == TN_E_STOPPED)
        code = cli_stop_code();
    if (status != TN_OK && folder)
        fprintf(stderr, "tenon: what was recorded is in %s\n", folder);
    return code;
}

int cli_run(tenon *handle, const cli_options *options)
{
    tn_error err = {0};
    char *folder = NULL;
    if (options->resolve && options->json) {
        fprintf(stderr, "tenon: --cfg prints YAML, an experiment that `tenon run` reads; leave --json away\n");
        return EXIT_USAGE;
    }
    if (options->resolve)
        return resolve(handle, options);
    progress p = begin(options);
    tenon_run_options run = {
        .struct_size = sizeof run, .runs = options->runs, .observe = observe, .describe = describe, .user = &p};
    int32_t status =
        tenon_run(handle, options->positional[0], options->positional + 1, options->count - 1, &run, &folder, &err);
    int code = finish(&p, options, status, folder, &err);
    tenon_free(folder);
    return code;
}

int cli_resume(tenon *handle, const cli_options *options)
{
    tn_error err = {0};
    progress p = begin(options);
    tenon_run_options run = {.struct_size = sizeof run, .observe = observe, .describe = describe, .user = &p};
    int32_t status =
        tenon_resume(handle, options->positional[0], options->positional + 1, options->count - 1, &run, &err);
    return finish(&p, options, status, p.started ? options->positional[0] : NULL, &err);
}
