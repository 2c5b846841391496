/* SPDX-License-Identifier: Apache-2.0
 *
 * One cycle: up to the peak, then far below the start. Smith and Topin 2018, arXiv:1708.07120, in torch's convention
 * (OneCycleLR): of T updates the peak is update rise T - 1 and the end update T - 1, exactly. In three phases the way
 * down ends at the start value at update 2 rise T - 2, and the rest of the updates goes on to the end. Past it: the
 * end.
 *
 * For momentum turned round: {use: one-cycle, start: 0.95, peak: 0.85, end: 0.95}.
 */
#include <tenon/schedule.h>

#define HYPER(X)                                                                                                       \
    X(real, peak, nan, "(-inf, inf) or nan", "largest value; nan: as the experiment gives it")                         \
    X(real, start, nan, "(-inf, inf) or nan", "first value; nan: peak / div")                                          \
    X(real, end, nan, "(-inf, inf) or nan", "last value; nan: start / final_div")                                      \
    X(real, div, 25, "(0, inf)", "how far below the peak it starts")                                                   \
    X(real, final_div, 1e4, "(0, inf)", "how far below the start it ends")                                             \
    X(real, rise, 0.3, "[0, 1]", "part of the updates in which it rises; at most 0.5 in three phases")                 \
    X(choice, anneal, cosine, "cosine | linear", "shape of each phase")                                                \
    X(flag, three_phase, false, "", "fall as long as it rose, then to the end")                                        \
    TN_STEPS_ROW(X)
TN_DECLARE(one_cycle, HYPER)

static double one_cycle_anneal(const one_cycle *h, double from, double to, double part)
{
    return tn_between(from, to, part <= 0 || part >= 1 || h->anneal == 1 ? part : (1 - cos(M_PI * part)) / 2);
}

/* Torch's ends of phases are not whole; a hair off a whole number is meant to be it. */
static double one_cycle_end(double t) { return fabs(t - rint(t)) < 1e-9 * fmax(1, fabs(t)) ? rint(t) : t; }

/* Phase i runs from ends[i - 1] to ends[i] and from values[i] to values[i + 1]. */
static double one_cycle_value(const one_cycle *h, const tn_position *at)
{
    double peak = tn_or_base(h->peak, at), start = isnan(h->start) ? peak / h->div : h->start;
    double end = isnan(h->end) ? start / h->final_div : h->end;
    double length = tn_length(h->steps, at), t = (double)at->step, from = 0;
    const double values[] = {start, peak, h->three_phase ? start : end, end};
    const double ends[] = {one_cycle_end(h->rise * length - 1),
                           h->three_phase ? one_cycle_end(2 * h->rise * length - 2) : length - 1, length - 1};
    int i = 0;
    if (length <= 0 || t >= length - 1)
        return length > 0 ? end : start;
    for (; t > ends[i] && i < 2; i++)
        from = ends[i];
    return one_cycle_anneal(h, values[i], values[i + 1], ends[i] > from ? (t - from) / (ends[i] - from) : 1);
}

TN_SCHEDULE(one_cycle, HYPER, "Up to the peak, then far below the start",
            TN_PAPER("arXiv:1708.07120")
                TN_FORMULA("start to peak at t = rise T - 1, to end at t = T - 1, each half a cosine or a line"))
TN_PLUGIN("org.tenon.one-cycle", "0.1.0", "Apache-2.0", one_cycle)
