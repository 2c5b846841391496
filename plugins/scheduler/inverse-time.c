/* SPDX-License-Identifier: Apache-2.0
 *
 * Decay with a power of time. Robbins and Monro 1951 need a power in (1/2, 1]; Bottou 2012 (Stochastic gradient descent
 * tricks, section 5.2) takes rate = lr times the weight decay and power 1; Keras's InverseTimeDecay.
 */
#include <tenon/schedule.h>

#define HYPER(X)                                                                                                       \
    X(real, rate, 1, "[0, inf)", "how much is added to the divisor")                                                   \
    X(real, every, 1000, "(0, inf)", "steps or epochs in which it is")                                                 \
    X(real, power, 1, "[0, inf)", "power of the divisor")                                                              \
    TN_UNIT_ROW(X)                                                                                                     \
    TN_STEPS_ROW(X)
TN_DECLARE(inverse_time, HYPER)

static double inverse_time_value(const inverse_time *h, const tn_position *at)
{
    return at->base / pow(1 + h->rate * tn_time(h->unit, at) / h->every, h->power);
}

TN_SCHEDULE(inverse_time, HYPER, "Decay with a power of time",
            TN_PAPER("Robbins and Monro 1951") TN_FORMULA("base / (1 + rate t/every)^power"))
TN_PLUGIN("org.tenon.inverse-time", "0.1.0", "Apache-2.0", inverse_time)
