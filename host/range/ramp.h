/* SPDX-License-Identifier: Apache-2.0
 *
 * ramp.h: the learning-rate range test (Smith, arXiv:1506.01186): a few updates of an experiment while a rate rises,
 * the loss of each, and what rate they suggest. A ramp belongs to one thread at a time.
 */
#ifndef TENON_HOST_RANGE_RAMP_H
#define TENON_HOST_RANGE_RAMP_H

#include "host/base/text.h"
#include "host/train/trainer.h"

#define TN_RAMP_STEPS_MAX 1000000

typedef struct tn_ramp_settings {
    double from, to; /* the rates of the first and the last update */
    int64_t steps;   /* committed updates, 2 to TN_RAMP_STEPS_MAX */
    int32_t linear;  /* 1: rates in equal differences; 0: in equal ratios */
    double smooth;   /* the weight of what was before in the mean of losses, [0, 1) */
    double stop;     /* ends when the smoothed loss is above so many times its least, > 1; inf: never */
} tn_ramp_settings;

typedef struct tn_ramp_point {
    double rate, loss, smoothed;
} tn_ramp_point;

/* Why a ramp ended. */
#define TN_RAMP_GOES_ON  0
#define TN_RAMP_DONE     1 /* all steps are made */
#define TN_RAMP_ABOVE    2 /* the smoothed loss has risen above `stop` */
#define TN_RAMP_DIVERGED 3 /* a loss was not finite */

typedef struct tn_ramp {
    tn_ramp_settings settings;
    tn_ramp_point *points; /* room for all steps; owned */
    int64_t count;
    int32_t ended;      /* TN_RAMP_* */
    double mean, least; /* of losses, not yet corrected for its beginning; the least smoothed loss */
} tn_ramp;

/* What a ramp suggests; indices of points, -1: none. */
typedef struct tn_ramp_findings {
    int64_t minimum;  /* of the smoothed loss, behind the first tenth of the steps */
    int64_t steepest; /* where it falls most from one update to the next, up to the minimum */
    double tenth;     /* of the rate at the minimum; NaN: none */
    int32_t open;     /* 1: the minimum is the last point of a whole ramp, so a longer one might find more */
} tn_ramp_findings;

/* Checks the settings and makes room. TN_E_INVALID names the setting; TN_E_MEMORY. [any] */
int32_t tn_ramp_open(const tn_ramp_settings *settings, tn_ramp *ret, tn_error *err);
/* Accepts a zeroed one. */
void tn_ramp_close(tn_ramp *ramp);

/* The rate of update `step`, 0 the first. */
double tn_ramp_rate(const tn_ramp_settings *settings, int64_t step);
/* The loss of the next update, taken before its step. TN_RAMP_*, as then in ramp->ended. Allocates nothing. */
int32_t tn_ramp_add(tn_ramp *ramp, double loss);
tn_ramp_findings tn_ramp_find(const tn_ramp *ramp);

/* ---- the ramp of an experiment ---- */

/* A row that the ramp drives: at the rate times `factor`. */
typedef struct tn_ramp_row {
    const tn_instance *target;
    const tn_row *row;
    double factor;
} tn_ramp_row;

typedef struct tn_ramp_rows {
    tn_ramp_row *list; /* owned */
    size_t count;
} tn_ramp_rows;

/* The rows: the one called `name`, as in `schedule:`; NULL: `lr` of every link, the first at the rate, others in the
 * experiment's ratio to it. Their schedules are taken out of the experiment. TN_E_INVALID; TN_E_MEMORY. [main] */
int32_t tn_ramp_rows_find(tn_experiment *experiment, const char *name, const tn_ramp_settings *settings,
                          tn_ramp_rows *ret, tn_error *err);
void tn_ramp_rows_free(tn_ramp_rows *rows);

/* Takes losses from a trainer: its observer, `user` being this. */
typedef struct tn_ramp_watch {
    double loss;       /* of the last attempt */
    int32_t committed; /* 1: it became an update */
    tn_observer next;  /* sees each record too; NULL: none */
    void *user;
} tn_ramp_watch;
int32_t tn_ramp_observe(void *user, const tn_record *record);

/* Trains until the ramp ends; a run that diverges is one that ended. TN_E_STOPPED when watch->next asked. [main] */
int32_t tn_ramp_train(tn_trainer *trainer, const tn_ramp_rows *rows, tn_ramp_watch *watch, tn_ramp *ramp,
                      tn_error *err);

/* ---- what there is to show ---- */

/* What all reports need beside the ramp. */
typedef struct tn_ramp_report {
    const char *experiment; /* its name */
    const tn_ramp_rows *rows;
    const tn_ramp *ramp;
} tn_ramp_report;

/* A plot in characters, `columns` wide (40 to 400; others are moved there), and the suggestions in words. */
void tn_ramp_print(const tn_ramp_report *report, int32_t columns, tn_text *text);
void tn_ramp_print_json(const tn_ramp_report *report, tn_text *text);
/* A picture in SVG 1.1. */
void tn_ramp_print_svg(const tn_ramp_report *report, tn_text *text);

#endif
