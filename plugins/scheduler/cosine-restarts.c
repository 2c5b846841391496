/* SPDX-License-Identifier: Apache-2.0
 *
 * Cosine annealing with warm restarts. Loshchilov and Hutter, ICLR 2017, arXiv:1608.03983, section 3: cycle i, of
 * period mult^i, falls from start to end; its first update has the start value. Times may have fractions. torch's
 * CosineAnnealingWarmRestarts; `decay` and `cycles` are timm's; without `period` the length is shared out, as
 * transformers' hard restarts and snapshot ensembles (Huang et al. 2017, arXiv:1704.00109) do.
 */
#include <tenon/schedule.h>

#define HYPER(X)                                                                                                       \
    X(real, end, 0, "(-inf, inf)", "last value of each cycle")                                                         \
    X(real, start, nan, "(-inf, inf) or nan", "first value of the first; nan: as the experiment gives it")             \
    X(real, period, 0, "[0, inf)", "steps or epochs of the first cycle; 0: so that cycles fill the length")            \
    X(real, mult, 1, "[1, inf)", "how much longer each cycle is than the one before")                                  \
    X(real, decay, 1, "(0, 1]", "what the first value is multiplied by at a restart")                                  \
    X(integer, cycles, 0, "[0, inf)", "so many, then end; 0: no limit, or 1 where period is 0")                        \
    TN_UNIT_ROW(X)                                                                                                     \
    TN_STEPS_ROW(X)
TN_DECLARE(cosine_restarts, HYPER)

/* Where cycle i begins, in first periods: 1 + mult + ... + mult^(i - 1). */
static double cycles_begin(double mult, double i) { return mult > 1 ? (pow(mult, i) - 1) / (mult - 1) : i; }

/* The cycle that t (in first periods) lies in; a hair before a restart is the restart. */
static double cycle_of(double mult, double t)
{
    double i = floor(mult > 1 ? log1p(t * (mult - 1)) / log(mult) : t);
    return cycles_begin(mult, i + 1) <= t * (1 + 1e-14) ? i + 1 : i;
}

static double cosine_restarts_value(const cosine_restarts *h, const tn_position *at)
{
    double cycles = (double)(h->cycles > 0 || h->period > 0 ? h->cycles : 1), t = tn_time(h->unit, at), i, part;
    double length = tn_length(h->steps, at), start = tn_or_base(h->start, at);
    if (h->period <= 0 && length <= 0)
        return start;
    t = h->period > 0 ? t / h->period : (double)at->step / length * cycles_begin(h->mult, cycles);
    i = cycle_of(h->mult, t > 0 ? t : 0);
    if (cycles > 0 && i >= cycles)
        return h->end;
    part = (t - cycles_begin(h->mult, i)) / pow(h->mult, i);
    return tn_between(start * pow(h->decay, i), h->end, (1 - cos(M_PI * fmax(part, 0))) / 2);
}

TN_SCHEDULE(cosine_restarts, HYPER, "Half cosines, each from the start again",
            TN_PAPER("arXiv:1608.03983")
                TN_FORMULA("end + (start decay^i - end) (1 + cos(pi t_i/T_i)) / 2, T_i = period mult^i"))
TN_PLUGIN("org.tenon.cosine-restarts", "0.1.0", "Apache-2.0", cosine_restarts)
