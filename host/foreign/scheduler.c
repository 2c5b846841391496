/* SPDX-License-Identifier: Apache-2.0
 *
 * scheduler.c: the value of a hyper-parameter from a foreign function of the position.
 */
#include <tenon/schedule.h>

#include "host/foreign/internal.h"

#define RESULT TN_POSITION_COUNT /* of tn_value_names */

const char *const tn_value_names[] = {"step",   "horizon", "progress", "base", "epoch", "samples",
                                      "tokens", "batch",   "pass",     "f",    NULL};

double tn_foreign_at(const tn_foreign *foreign, const tn_position *at)
{
    double values[TN_POSITION_COUNT + 1] = {[TN_POSITION_STEP] = (double)at->step,
                                            [TN_POSITION_HORIZON] = (double)at->horizon,
                                            [TN_POSITION_PROGRESS] = tn_ramp(foreign->steps, foreign->reaches, at),
                                            [TN_POSITION_BASE] = at->base,
                                            [TN_POSITION_EPOCH] = at->epoch,
                                            [TN_POSITION_SAMPLES] = at->samples,
                                            [TN_POSITION_TOKENS] = at->tokens,
                                            [TN_POSITION_BATCH] = at->batch,
                                            [TN_POSITION_PASS] = (double)at->pass};
    values[RESULT] = tn_function_at(&foreign->function, values);
    return tn_expression_value(&foreign->expression, values);
}

static double scheduler_value(const void *hyper, const tn_position *position, const double *slots)
{
    (void)slots;
    return tn_foreign_at(((const tn_ffi_scheduler *)hyper)->foreign, position);
}

static const tn_scheduler scheduler_table = {sizeof(tn_scheduler), 0, scheduler_value, NULL};
TN_COMPONENT(ffi, "scheduler", TN_SCHEDULER, 0u, TN_SCHEDULER_ROWS, "A C function of any library, of the position",
             TN_FORMULA("value, an expression of f(position)"), scheduler_table);
const tn_component *const tn_foreign_scheduler = &ffi_component;
