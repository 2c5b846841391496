/* SPDX-License-Identifier: Apache-2.0
 *
 * Polynomial decay from start to end, then end; torch's PolynomialLR, transformers' polynomial decay. Liu et al. 2015,
 * arXiv:1506.04579 (power 0.9). `k` bends time: k-decay, Zhang and Li 2020, arXiv:2004.05909.
 * `cycle` is Keras's: after the end it starts again, on a ramp that is longer by `steps` each time and so lower.
 */
#include <tenon/schedule.h>

#define HYPER(X)                                                                                                       \
    X(real, end, 0, "(-inf, inf)", "last value")                                                                       \
    X(real, start, nan, "(-inf, inf) or nan", "first value; nan: as the experiment gives it")                          \
    X(real, power, 1, "(0, inf)", "1: a straight line; above: fast at first; below: fast at last")                     \
    X(real, k, 1, "(0, inf)", "time is (t/T)^k; above 1: late")                                                        \
    X(flag, cycle, false, "", "begin anew after steps, on a ramp of the next multiple of steps")                       \
    TN_RAMP_ROWS(X)
TN_DECLARE(polynomial, HYPER)

/* Of the ramp of whole `steps` that t lies in; at its last point exactly 1. */
static double polynomial_cycle(const polynomial *h, double t)
{
    double steps = (double)h->steps, ramps = ceil(t / steps);
    return t / (steps * fmax(ramps, 1));
}

static double polynomial_value(const polynomial *h, const tn_position *at)
{
    int cycles = h->cycle && h->steps > 0;
    double part = cycles ? polynomial_cycle(h, (double)at->step) : tn_ramp(h->steps, h->reaches, at);
    return tn_between(tn_or_base(h->start, at), h->end, 1 - pow(1 - pow(part, h->k), h->power));
}

TN_SCHEDULE(polynomial, HYPER, "A power of the time left, from start to end",
            TN_PAPER("arXiv:1506.04579") TN_FORMULA("end + (start - end) (1 - (t/T)^k)^power"))
TN_PLUGIN("org.tenon.polynomial", "0.1.0", "Apache-2.0", polynomial)
