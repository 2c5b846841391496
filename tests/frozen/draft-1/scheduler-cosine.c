/* SPDX-License-Identifier: Apache-2.0
 *
 * Cosine annealing without restarts. Loshchilov and Hutter, ICLR 2017, arXiv:1608.03983, equation 5. After the end it
 * stays at the end; it does not rise again.
 */
#include <tenon/schedule.h>

#define HYPER(X)                                                                                                       \
    X(real, end, 0, "(-inf, inf)", "last value")                                                                       \
    X(real, start, nan, "(-inf, inf) or nan", "first value; nan: as the experiment gives it")                          \
    TN_RAMP_ROWS(X)
TN_DECLARE(cosine, HYPER)

static double cosine_value(const cosine *h, const tn_position *at)
{
    double part = tn_ramp(h->steps, h->reaches, at);
    return tn_between(tn_or_base(h->start, at), h->end, part < 1 ? (1 - cos(M_PI * part)) / 2 : 1);
}

TN_SCHEDULE(cosine, HYPER, "Half a cosine from start to end, then end",
            TN_PAPER("arXiv:1608.03983") TN_FORMULA("end + (start - end) (1 + cos(pi t/T)) / 2"))
TN_PLUGIN("org.tenon.cosine", "0.1.0", "Apache-2.0", cosine)
