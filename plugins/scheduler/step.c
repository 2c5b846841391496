/* SPDX-License-Identifier: Apache-2.0
 *
 * Step decay: multiplied by gamma every so many updates or epochs. Ge et al., NeurIPS 2019,
 * arXiv:1904.12838; torch's StepLR.
 */
#include <tenon/schedule.h>

#define HYPER(X)                                                                                                       \
    X(integer, every, 1000, "[1, inf)", "steps or epochs between two drops")                                           \
    X(real, gamma, 0.1, "[0, inf)", "what a drop multiplies by")                                                       \
    TN_UNIT_ROW(X)                                                                                                     \
    TN_STEPS_ROW(X)
TN_DECLARE(step, HYPER)

static double step_value(const step *h, const tn_position *at)
{
    return at->base * pow(h->gamma, floor(tn_time(h->unit, at) / (double)h->every));
}

TN_SCHEDULE(step, HYPER, "Drops by a factor at equal distances",
            TN_PAPER("arXiv:1904.12838") TN_FORMULA("base gamma^floor(t/every)"))
TN_PLUGIN("org.tenon.step", "0.1.0", "Apache-2.0", step)
