/* SPDX-License-Identifier: Apache-2.0
 *
 * Exponential decay: by the factor gamma over every so many updates or epochs, at each update its part of it. Li and
 * Arora, ICLR 2020, arXiv:1910.07454; torch's ExponentialLR with {every: 1, unit: epochs}, optax's exponential_decay
 * with `end`. Without `end` it never stops. A ramp from one value to another in a given time is `geometric`.
 */
#include <tenon/schedule.h>

#define HYPER(X)                                                                                                       \
    X(real, gamma, 0.9, "(0, inf)", "the factor")                                                                      \
    X(real, every, 1000, "(0, inf)", "steps or epochs in which it is reached")                                         \
    X(real, end, nan, "(-inf, inf) or nan", "the value goes no further; nan: no limit")                                \
    TN_UNIT_ROW(X)                                                                                                     \
    TN_STEPS_ROW(X)
TN_DECLARE(exponential, HYPER)

static double exponential_value(const exponential *h, const tn_position *at)
{
    double value = at->base * pow(h->gamma, tn_time(h->unit, at) / h->every);
    if (isnan(h->end))
        return value;
    return at->base >= h->end ? fmax(value, h->end) : fmin(value, h->end);
}

TN_SCHEDULE(exponential, HYPER, "Decays by a factor in equal times",
            TN_PAPER("arXiv:1910.07454") TN_FORMULA("base gamma^(t/every), to end at most"))
TN_PLUGIN("org.tenon.exponential", "0.1.0", "Apache-2.0", exponential)
