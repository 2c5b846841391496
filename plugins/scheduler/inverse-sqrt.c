/* SPDX-License-Identifier: Apache-2.0
 *
 * Linear warm-up to the value of the experiment, then decay with the inverse root of time. Vaswani et al. 2017,
 * arXiv:1706.03762, equation 3, in the form of transformers' inverse-sqrt schedule; with timescale = warmup that of
 * fairseq and Megatron. T5's constant beginning is {start: nan, warmup: n}.
 */
#include <tenon/schedule.h>

#define HYPER(X)                                                                                                       \
    X(integer, warmup, 0, "[0, inf) steps", "updates of the warm-up")                                                  \
    X(integer, timescale, 0, "[0, inf) steps", "how slowly it falls; 0: as warmup, or 10000 without")                  \
    X(real, start, 0, "(-inf, inf) or nan", "first value of the warm-up; nan: as the experiment gives it")             \
    X(real, minimum, 0, "[0, inf)", "the decay goes no lower")                                                         \
    X(choice, reaches, start, "start | end", "the warm-up's update t has t/warmup of it, or (t + 1)/warmup")           \
    TN_STEPS_ROW(X)
TN_DECLARE(inverse_sqrt, HYPER)

static double inverse_sqrt_value(const inverse_sqrt *h, const tn_position *at)
{
    double warmup = (double)h->warmup, scale = (double)h->timescale, t = (double)at->step;
    if (t < warmup)
        return tn_between(tn_or_base(h->start, at), at->base, tn_part(t, warmup, h->reaches + TN_REACHES_START));
    if (scale <= 0)
        scale = warmup > 0 ? warmup : 10000;
    return fmax(at->base / sqrt((t - warmup) / scale + 1), fmin(h->minimum, at->base));
}

TN_SCHEDULE(inverse_sqrt, HYPER, "Warm-up, then decay with the inverse root of time",
            TN_PAPER("arXiv:1706.03762") TN_FORMULA("base min(t/warmup, ((t - warmup)/timescale + 1)^-1/2)"))
TN_PLUGIN("org.tenon.inverse-sqrt", "0.1.0", "Apache-2.0", inverse_sqrt)
