/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon_range.c: the part of the C API that looks for a learning rate.
 */
#include <fenv.h>
#include <string.h>

#include "host/base/take.h"
#include "host/handle.h"
#include "host/range/ramp.h"
#include "host/store/newfile.h"

typedef struct {
    tenon *handle;
    tn_experiment *experiment;
    const tenon_range_options *options;
    tn_ramp_rows rows;
    tn_ramp ramp;
    tn_text *text;
} request;

/* The report says how the ramp ended, so the log need not. */
static void log_line(void *user, int32_t level, const char *line)
{
    if (strncmp(line, "update skipped", 14) != 0)
        tn_log_write(user, level, "%s", line);
}

static tn_ramp_settings settings_of(const tenon_range_options *o)
{
    return (tn_ramp_settings){.from = o->from == 0 ? 1e-7 : o->from,
                              .to = o->to == 0 ? 10 : o->to,
                              .steps = o->steps == 0 ? 100 : o->steps,
                              .linear = (o->flags & TENON_LINEAR) != 0,
                              .smooth = o->smooth == TENON_UNSMOOTHED ? 0
                                        : o->smooth == 0              ? 0.98
                                                                      : o->smooth,
                              .stop = o->stop == 0 ? 4 : o->stop};
}

static int32_t write_svg(const tn_ramp_report *report, tn_newfile *file, tn_error *err)
{
    tn_text text = {0};
    tn_ramp_print_svg(report, &text);
    int32_t status = tn_text_status(&text, err);
    if (status == TN_OK)
        status = tn_newfile_write(file, text.data, text.size, err);
    tn_text_free(&text);
    return status;
}

static void print(request *r, const tn_ramp_report *report)
{
    if (r->options->flags & TENON_JSON)
        tn_ramp_print_json(report, r->text);
    else
        tn_ramp_print(report, r->options->columns ? r->options->columns : 72, r->text);
}

/* The picture's file is opened first: whether it can be is known before the time is spent. */
static int32_t train(request *r, tn_trainer *trainer, tn_ramp_watch *watch, tn_error *err)
{
    const tn_ramp_report report = {r->experiment->name, &r->rows, &r->ramp};
    tn_newfile file = {.fd = -1};
    int32_t first = tn_trainer_rank(trainer) == 0, draws = first && r->options->svg, status = TN_OK;
    if (draws)
        status = tn_newfile_open(r->options->svg, &file, err);
    status = tn_trainer_agree(trainer, status, err);
    if (status == TN_OK)
        status = tn_ramp_train(trainer, &r->rows, watch, &r->ramp, err);
    if (status == TN_OK && first)
        print(r, &report);
    if (status == TN_OK && draws)
        status = write_svg(&report, &file, err);
    return draws ? tn_newfile_close(&file, status, err) : status;
}

static int32_t open_and_train(request *r, tn_error *err)
{
    tn_trainer *trainer;
    fenv_t own;
    tn_ramp_watch watch = {.next = r->options->observe, .user = r->options->user};
    const tn_log log = {log_line, &r->handle->log};
    const tn_trainer_options open = {.registry = r->handle->registry,
                                     .experiment = r->experiment,
                                     .log = &log,
                                     .from = r->experiment->from,
                                     .observer = tn_ramp_observe,
                                     .user = &watch};
    fegetenv(&own); /* as a run has it, whatever the caller has set for itself */
    fesetenv(FE_DFL_ENV);
    int32_t status = tn_trainer_open(&open, &trainer, err);
    if (status == TN_OK) {
        status = train(r, trainer, &watch, err);
        tn_trainer_close(trainer);
    }
    fesetenv(&own);
    return status;
}

int32_t tenon_range(tenon *handle, const char *path, const char *const *overrides, size_t override_count,
                    const tenon_range_options *options, char **ret, tn_error *err)
{
    tenon_range_options taken = {.struct_size = sizeof taken};
    tn_text text = {0};
    request r = {.handle = handle, .options = &taken, .text = &text};
    if (options)
        tn_take(&taken, sizeof taken, options);
    tn_ramp_settings settings = settings_of(&taken);
    int32_t status = tn_ramp_open(&settings, &r.ramp, err);
    if (status == TN_OK)
        status = tn_experiment_read(handle->registry, path, overrides, override_count, &r.experiment, err);
    if (status == TN_OK)
        status = tn_ramp_rows_find(r.experiment, taken.row, &settings, &r.rows, err);
    if (status == TN_OK)
        status = open_and_train(&r, err);
    tn_ramp_rows_free(&r.rows);
    tn_experiment_free(r.experiment);
    tn_ramp_close(&r.ramp);
    return tn_handle_give(&text, status, ret, err);
}
