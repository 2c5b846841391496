/* SPDX-License-Identifier: Apache-2.0
 *
 * REX, a decay that stays high long and falls late. Chen, Wolfe and Kyrillidis, MLSys 2022, arXiv:2107.04197.
 */
#include <tenon/schedule.h>

#define HYPER(X)                                                                                                       \
    X(real, end, 0, "(-inf, inf)", "last value")                                                                       \
    X(real, start, nan, "(-inf, inf) or nan", "first value; nan: as the experiment gives it")                          \
    TN_RAMP_ROWS(X)
TN_DECLARE(rex, HYPER)

static double rex_value(const rex *h, const tn_position *at)
{
    double part = tn_ramp(h->steps, h->reaches, at);
    return tn_between(tn_or_base(h->start, at), h->end, part / (2 - part));
}

TN_SCHEDULE(rex, HYPER, "Stays high long, falls late",
            TN_PAPER("arXiv:2107.04197") TN_FORMULA("end + (start - end) (1 - t/T) / (1 - t/(2T))"))
TN_PLUGIN("org.tenon.rex", "0.1.0", "Apache-2.0", rex)
