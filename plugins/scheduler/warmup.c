/* SPDX-License-Identifier: Apache-2.0
 *
 * Warm-up in T updates from start to end, in one of four shapes, with q = t/T or as `reaches` says:
 *
 *   linear       start + q (end - start)                    Goyal et al. 2017, arXiv:1706.02677, section 2.2
 *   exponential  start + (1 - e^(-q T/tau)) (end - start)   Ma and Yarats 2019, arXiv:1910.04209
 *   geometric    start (end/start)^q
 *   log          start + log(t + 1)/log(T) (end - start)    DeepSpeed's WarmupLR; the last update has the end
 *
 * Then end, exactly. Ma and Yarats's lengths without tuning are, for Adam, T = 2/(1 - beta2) and tau = 1/(1 - beta2).
 */
#include <tenon/schedule.h>

#define HYPER(X)                                                                                                       \
    X(real, start, 0, "(-inf, inf) or nan", "first value; geometric: 0 counts as a thousandth of end")                 \
    X(real, end, nan, "(-inf, inf) or nan", "last value; nan: as the experiment gives it")                             \
    X(choice, shape, linear, "linear | exponential | geometric | log", "of the way up")                                \
    X(real, tau, 0, "[0, inf) steps", "exponential: time in which all but 1/e is done; 0: a fifth of T")               \
    TN_RAMP_ROWS(X)
TN_DECLARE(warmup, HYPER)
enum { WARMUP_LINEAR, WARMUP_EXPONENTIAL, WARMUP_GEOMETRIC, WARMUP_LOG };

static double warmup_value(const warmup *h, const tn_position *at)
{
    double start = tn_or_base(h->start, at), end = tn_or_base(h->end, at), length = tn_length(h->steps, at);
    double q = tn_ramp(h->steps, h->reaches, at), t = (double)at->step;
    if (h->shape == WARMUP_GEOMETRIC)
        return tn_between_logs(start != 0 ? start : end / 1000, end, end != 0 ? q : 1);
    if (h->shape == WARMUP_LOG && length > 0)
        q = t + 1 >= length ? 1 : t > 0 ? log(t + 1) / log(length) : 0;
    if (h->shape == WARMUP_EXPONENTIAL && q < 1 && length > 0)
        q = -expm1(-q * length / (h->tau > 0 ? h->tau : length / 5));
    return tn_between(start, end, q);
}

TN_SCHEDULE(warmup, HYPER, "From almost nothing to the full value",
            TN_PAPER("arXiv:1706.02677, arXiv:1910.04209") TN_FORMULA("start + shape(t/T) (end - start)"))
TN_PLUGIN("org.tenon.warmup", "0.1.0", "Apache-2.0", warmup)
