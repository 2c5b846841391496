/* SPDX-License-Identifier: Apache-2.0
 *
 * Multi-step decay: multiplied by gamma at each milestone; the update of a milestone is the first with the new value.
 * He et al., CVPR 2016, arXiv:1512.03385, section 4.2 (at 32,000 and 48,000 updates); torch's MultiStepLR. A milestone
 * that is given twice counts twice. Factors of their own for each milestone: a sequence of `constant`.
 */
#include <tenon/schedule.h>

#define HYPER(X)                                                                                                       \
    X(integers, milestones, "[32000, 48000]", "[0, inf)", "steps or epochs of the drops, in any order")                \
    X(real, gamma, 0.1, "[0, inf)", "what a drop multiplies by")                                                       \
    TN_UNIT_ROW(X)                                                                                                     \
    TN_STEPS_ROW(X)
TN_DECLARE(multistep, HYPER)

static double multistep_value(const multistep *h, const tn_position *at)
{
    double t = tn_time(h->unit, at);
    int drops = 0;
    for (int64_t i = 0; i < h->milestones.count; i++)
        drops += t >= (double)h->milestones.values[i];
    return at->base * pow(h->gamma, drops);
}

TN_SCHEDULE(multistep, HYPER, "Drops by a factor at given times",
            TN_PAPER("arXiv:1512.03385") TN_FORMULA("base gamma^(milestones <= t)"))
TN_PLUGIN("org.tenon.multistep", "0.1.0", "Apache-2.0", multistep)
