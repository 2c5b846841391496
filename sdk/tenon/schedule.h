/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/schedule.h: a scheduler from a closed form.
 *
 *   #define HYPER(X) X(real, end, 0, "(-inf, inf)", "last value") TN_RAMP_ROWS(X)
 *   TN_DECLARE(quadratic, HYPER)
 *   static double quadratic_value(const quadratic *h, const tn_position *at)
 *   {
 *       double part = tn_ramp(h->steps, h->reaches, at);
 *       return tn_between(at->base, h->end, part * part);
 *   }
 *   TN_SCHEDULE(quadratic, HYPER, "summary", TN_FORMULA("..."))
 *   TN_PLUGIN("org.example.quadratic", "1.0.0", "Apache-2.0", quadratic)
 *
 * Values are absolute: what the driven hyper-parameter gets, not a factor of it.
 */
#ifndef TENON_SCHEDULE_H
#define TENON_SCHEDULE_H

#include <tenon/scheduler.h>
#include <tenon/sdk.h>

/* Rows of every scheduler that moves from one value to another. Of a ramp of T updates, numbered t = 0 .. T - 1:
 *
 *   reaches   part done at t     first update has     last update has
 *   start     t / T              the start            almost the end; what follows goes on from the end
 *   end       (t + 1) / T        a step off it        the end
 *   both      t / (T - 1)        the start            the end (T = 1: the end)
 *   auto      `start` where `steps` is given, `both` where the ramp fills the rest of the run */
#define TN_RAMP_ROWS(X)                                                                                                \
    X(integer, steps, 0, "[0, inf) steps", "updates it takes; 0: the rest of the run")                                 \
    X(choice, reaches, auto, "auto | start | end | both", "which of its two values a ramp has exactly")
enum { TN_REACHES_AUTO, TN_REACHES_START, TN_REACHES_END, TN_REACHES_BOTH };

/* The part done at t of a ramp of `length` updates that reaches its values as `reaches` says, in [0, 1]. [any] */
static inline TN_UNUSED double tn_part(double t, double length, int64_t reaches)
{
    if (reaches == TN_REACHES_END)
        t += 1;
    if (reaches == TN_REACHES_BOTH)
        length -= 1;
    return t >= length ? 1 : t > 0 ? t / length : 0;
}

/* The updates of a segment: its row `steps`, or else the rest of the run; 0: not known. [any] */
static inline TN_UNUSED double tn_length(int64_t steps, const tn_position *at)
{
    return (double)(steps > 0 ? steps : at->horizon > 0 ? at->horizon : 0);
}

/* The part of the ramp that is done at a position, in [0, 1]; stays 1 after the end. Without `steps` and with a
 * horizon that is not known it is 0: the value stays at the start. [any] */
static inline TN_UNUSED double tn_ramp(int64_t steps, int64_t reaches, const tn_position *at)
{
    double length = tn_length(steps, at);
    if (reaches == TN_REACHES_AUTO)
        reaches = steps > 0 ? TN_REACHES_START : TN_REACHES_BOTH;
    return length > 0 ? tn_part((double)at->step, length, reaches) : 0;
}

/* Rows of a scheduler without an end, and of one that counts its times in updates or in passes of the training set. */
#define TN_STEPS_ROW(X) X(integer, steps, 0, "[0, inf) steps", "length in a sequence; 0: the rest of the run")
#define TN_UNIT_ROW(X)                                                                                                 \
    X(choice, unit, steps, "steps | epochs", "what it counts: updates, or passes of the training set")
enum { TN_UNIT_STEPS, TN_UNIT_EPOCHS };

/* The time since the segment began, in the unit. Epochs come with a fraction, whole at the first update of a pass; 0
 * where the length of a pass is not known. [any] */
static inline TN_UNUSED double tn_time(int64_t unit, const tn_position *at)
{
    double t = at->step > 0 ? (double)at->step : 0;
    return unit == TN_UNIT_STEPS ? t : at->pass > 0 ? t / (double)at->pass : 0;
}

/* start + part * (end - start), with exactly `start` at 0 and exactly `end` at 1. [any] */
static inline TN_UNUSED double tn_between(double start, double end, double part)
{
    return part <= 0 ? start : part >= 1 ? end : start + part * (end - start);
}

/* The same on a logarithmic scale: start * (end / start)^part; both above 0. [any] */
static inline TN_UNUSED double tn_between_logs(double start, double end, double part)
{
    return part <= 0 ? start : part >= 1 ? end : start * pow(end / start, part);
}

/* The value of a row whose default, nan, means the hyper-parameter as the experiment gives it. [any] */
static inline TN_UNUSED double tn_or_base(double value, const tn_position *at)
{
    return isnan(value) ? at->base : value;
}

/* The component, from double NAME_value(const NAME *, const tn_position *); _AS where its name can be no identifier. */
#define TN_SCHEDULE(name, HYPER, summary, facts) TN_SCHEDULE_AS(name, name, HYPER, summary, facts)
#define TN_SCHEDULE_AS(function, name, HYPER, summary, facts)                                                          \
    static double function##_value_(const void *hyper, const tn_position *at, const double *slots)                     \
    {                                                                                                                  \
        (void)slots;                                                                                                   \
        return function##_value((const function *)hyper, at);                                                          \
    }                                                                                                                  \
    static const tn_scheduler function##_table = {sizeof(tn_scheduler), 0, TN_CALL(function##_value_), NULL};          \
    TN_COMPONENT(name, "scheduler", TN_SCHEDULER, 0u, HYPER, summary, facts, function##_table);

#endif
