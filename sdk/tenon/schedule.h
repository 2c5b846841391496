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

/* The part of the ramp that is done at a position, in [0, 1]; stays 1 after the end. Without `steps` and with a
 * horizon that is not known it is 0: the value stays at the start. [any] */
static inline TN_UNUSED double tn_ramp(int64_t steps, int64_t reaches, const tn_position *at)
{
    double length = (double)(steps > 0 ? steps : at->horizon), t = (double)at->step;
    if (length <= 0)
        return 0;
    if (reaches == TN_REACHES_AUTO)
        reaches = steps > 0 ? TN_REACHES_START : TN_REACHES_BOTH;
    if (reaches == TN_REACHES_END)
        t += 1;
    if (reaches == TN_REACHES_BOTH)
        length -= 1;
    return t >= length ? 1 : t > 0 ? t / length : 0;
}

/* start + part * (end - start), with exactly `start` at 0 and exactly `end` at 1. [any] */
static inline TN_UNUSED double tn_between(double start, double end, double part)
{
    return part <= 0 ? start : part >= 1 ? end : start + part * (end - start);
}

/* The value of a row whose default, nan, means the hyper-parameter as the experiment gives it. [any] */
static inline TN_UNUSED double tn_or_base(double value, const tn_position *at)
{
    return isnan(value) ? at->base : value;
}

/* The component, from double NAME_value(const NAME *, const tn_position *). */
#define TN_SCHEDULE(name, HYPER, summary, facts)                                                                       \
    static double name##_value_(const void *hyper, const tn_position *at, const double *slots)                         \
    {                                                                                                                  \
        (void)slots;                                                                                                   \
        return name##_value((const name *)hyper, at);                                                                  \
    }                                                                                                                  \
    static const tn_scheduler name##_table = {sizeof(tn_scheduler), 0, name##_value_, NULL};                           \
    TN_COMPONENT(name, "scheduler", TN_SCHEDULER, 0u, HYPER, summary, facts, name##_table);

#endif
