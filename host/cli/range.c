/* SPDX-License-Identifier: Apache-2.0
 *
 * range.c: `tenon range`: which learning rate?
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "host/cli/cli.h"

typedef struct {
    int shown;
    long long steps;
} progress;

static int32_t observe(void *user, const tn_record *record)
{
    progress *p = user;
    if (p->shown && !strcmp(record->event, "train"))
        fprintf(stderr, "\r\033[K%lld of %lld updates", (long long)record->update, p->steps);
    return cli_asked();
}

/* Those of the terminal that stdout is. */
static int32_t columns(void)
{
    struct winsize size;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 72;
}

static double number(const char *text) { return text ? strtod(text, NULL) : 0; }

int cli_range(tenon *handle, const cli_options *options)
{
    tn_error err = {0};
    char *text;
    progress p = {isatty(STDERR_FILENO) && !options->quiet, options->steps ? options->steps : 100};
    double smooth = number(options->smooth);
    const tenon_range_options range = {.struct_size = sizeof range,
                                       .flags = (options->json ? TENON_JSON : 0) | (options->linear ? TENON_LINEAR : 0),
                                       .from = number(options->rate_from),
                                       .to = number(options->rate_to),
                                       .steps = options->steps,
                                       .smooth = options->smooth && smooth == 0 ? TENON_UNSMOOTHED : smooth,
                                       .stop = number(options->stop),
                                       .row = options->row,
                                       .svg = options->svg,
                                       .columns = columns(),
                                       .observe = observe,
                                       .user = &p};
    cli_heed_signals();
    int32_t status =
        tenon_range(handle, options->positional[0], options->positional + 1, options->count - 1, &range, &text, &err);
    if (p.shown)
        fputs("\r\033[K", stderr);
    if (status == TN_OK)
        return cli_print(text);
    int code = cli_fail(&err);
    return status == TN_E_STOPPED ? cli_stop_code() : code;
}
