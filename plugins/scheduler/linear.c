/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear: a straight ramp from start to end, then end. As a warm-up {start: 0, steps: n}, update 0 has the value 0 and
 * the segment after it begins at the full value; with {reaches: end} update 0 has 1/n of it and update n - 1 all.
 */
#include <tenon/schedule.h>

#define HYPER(X)                                                                                                       \
    X(real, start, nan, "(-inf, inf) or nan", "first value; nan: as the experiment gives it")                          \
    X(real, end, nan, "(-inf, inf) or nan", "last value; nan: as the experiment gives it")                             \
    TN_RAMP_ROWS(X)
TN_DECLARE(linear, HYPER)

static double linear_value(const linear *h, const tn_position *at)
{
    return tn_between(tn_or_base(h->start, at), tn_or_base(h->end, at), tn_ramp(h->steps, h->reaches, at));
}

TN_SCHEDULE(linear, HYPER, "A straight ramp from start to end, then end", TN_FORMULA("start + t/T (end - start)"))
TN_PLUGIN("org.tenon.linear", "0.1.0", "Apache-2.0", linear)
