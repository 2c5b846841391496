/* SPDX-License-Identifier: Apache-2.0
 *
 * Geometric ramp: the same factor at each update, from start to end, then end: a straight line in the logarithm. The
 * ramp of a range test (Smith 2017, arXiv:1506.01186, section 3.3, with equal factors instead of equal steps).
 */
#include <tenon/schedule.h>

#define HYPER(X)                                                                                                       \
    X(real, start, nan, "(0, inf) or nan", "first value; nan: as the experiment gives it")                             \
    X(real, end, nan, "(0, inf) or nan", "last value; nan: as the experiment gives it")                                \
    TN_RAMP_ROWS(X)
TN_DECLARE(geometric, HYPER)

static double geometric_value(const geometric *h, const tn_position *at)
{
    return tn_between_logs(tn_or_base(h->start, at), tn_or_base(h->end, at), tn_ramp(h->steps, h->reaches, at));
}

TN_SCHEDULE(geometric, HYPER, "A ramp of equal factors from start to end, then end",
            TN_PAPER("arXiv:1506.01186") TN_FORMULA("start (end/start)^(t/T)"))
TN_PLUGIN("org.tenon.geometric", "0.1.0", "Apache-2.0", geometric)
