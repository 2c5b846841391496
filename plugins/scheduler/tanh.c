/* SPDX-License-Identifier: Apache-2.0
 *
 * Hyperbolic-tangent decay from start to end, then end. Hsueh, Li and Wu, WACV 2019, arXiv:1806.01593, with
 * the bounds of timm's TanhLRScheduler as defaults (the paper's best are -6 and 3). The curve itself begins just below
 * `start` (4e-7 of the way) and ends short of `end` (by 1/400 of it); from T on the value is `end`, exactly.
 */
#include <tenon/schedule.h>

#define HYPER(X)                                                                                                       \
    X(real, end, 0, "(-inf, inf)", "last value")                                                                       \
    X(real, start, nan, "(-inf, inf) or nan", "first value; nan: as the experiment gives it")                          \
    X(real, lower, -7, "(-inf, inf)", "where the piece of tanh begins; lower: later")                                  \
    X(real, upper, 3, "(-inf, inf)", "where it ends; higher: earlier, and nearer to end")                              \
    TN_RAMP_ROWS(X)
TN_DECLARE(tanh_decay, HYPER)

static double tanh_decay_value(const tanh_decay *h, const tn_position *at)
{
    double part = tn_ramp(h->steps, h->reaches, at), x = h->lower * (1 - part) + h->upper * part;
    return tn_between(tn_or_base(h->start, at), h->end, part < 1 ? (1 + tanh(x)) / 2 : 1);
}

TN_SCHEDULE_AS(tanh_decay, tanh, HYPER, "A piece of tanh from start to end",
               TN_PAPER("arXiv:1806.01593")
                   TN_FORMULA("end + (start - end) (1 - tanh(lower (1 - t/T) + upper t/T)) / 2"))
TN_PLUGIN("org.tenon.tanh-decay", "0.1.0", "Apache-2.0", tanh)
