/* SPDX-License-Identifier: Apache-2.0
 *
 * Polynomial decay:  value = end + (base - end) (1 - part)^power,  part going from 0 to 1 over the segment.
 */
#include <tenon/schedule.h>

#define HYPER(X)                                                                                                       \
    X(real, end, 0, "(-inf, inf)", "last value")                                                                       \
    X(real, power, 2, "(0, inf)", "1: a straight line; above: fast at first")                                          \
    TN_RAMP_ROWS(X)
TN_DECLARE(my_thing, HYPER)

/* What the driven hyper-parameter gets at a position: pure, asked for any position at any time. */
static double my_thing_value(const my_thing *h, const tn_position *at)
{
    double part = tn_ramp(h->steps, h->reaches, at);
    return tn_between(at->base, h->end, 1 - pow(1 - part, h->power));
}

TN_SCHEDULE(my_thing, HYPER, "Polynomial decay", TN_FORMULA("end + (base - end) (1 - part)^power"))
TN_PLUGIN("org.example.my-thing", "0.1.0", "Apache-2.0", my_thing)
