/* SPDX-License-Identifier: Apache-2.0
 *
 * Warm-up, stable, decay: the base between a linear warm-up and a decay in the last updates. Hu et al. 2024,
 * arXiv:2404.06395, section 4; sqrt: Haegele et al. 2024, arXiv:2405.18392. The decay's weight of the base, with q of
 * it done:  linear 1 - q, cosine (1 + cos(pi q))/2, sqrt 1 - q^1/2, square 1 - q^2, exponential 2^(1 - q) - 1 (as
 * Megatron); geometric is base (end/base)^q. With {reaches: start} update t of a ramp of n has t/n of it, as in
 * transformers; with `end`, the default, (t + 1)/n: the first update is not 0 and the last has the end. While the
 * length is not known it stays stable.
 */
#include <tenon/schedule.h>

#define HYPER(X)                                                                                                       \
    X(real, end, 0, "[0, inf)", "last value; geometric: 0 counts as a thousandth of the base")                         \
    X(real, start, 0, "[0, inf)", "first value")                                                                       \
    X(integer, warmup, 0, "[0, inf) steps", "updates of the warm-up")                                                  \
    X(integer, decay, 0, "[0, inf) steps", "updates of the decay; 0: a tenth of the length")                           \
    X(choice, shape, sqrt, "linear | cosine | sqrt | square | exponential | geometric", "of the decay")                \
    X(choice, reaches, end, "start | end | both", "which of its two values each ramp has exactly")                     \
    TN_STEPS_ROW(X)
TN_DECLARE(wsd, HYPER)
enum { WSD_LINEAR, WSD_COSINE, WSD_SQRT, WSD_SQUARE, WSD_EXPONENTIAL, WSD_GEOMETRIC };

/* How much of the way from base to end is behind it; exactly 1 where q is. */
static double wsd_weight(int64_t shape, double q)
{
    switch (shape) {
    case WSD_COSINE:
        return (1 - cos(M_PI * q)) / 2;
    case WSD_SQRT:
        return sqrt(q);
    case WSD_SQUARE:
        return q * q;
    case WSD_EXPONENTIAL:
        return 2 - exp2(1 - q);
    default:
        return q;
    }
}

static double wsd_value(const wsd *h, const tn_position *at)
{
    int64_t reaches = h->reaches + TN_REACHES_START;
    double t = (double)at->step, warmup = (double)h->warmup, length = tn_length(h->steps, at);
    double decay = fmin(h->decay > 0 ? (double)h->decay : ceil(length / 10), fmax(length - warmup, 1));
    double q = t - (length - decay);
    if (t < warmup)
        return tn_between(h->start, at->base, tn_part(t, warmup, reaches));
    if (length <= 0 || q < 0)
        return at->base;
    q = tn_part(q, decay, reaches);
    if (h->shape == WSD_GEOMETRIC)
        return tn_between_logs(at->base, h->end > 0 ? h->end : at->base / 1000, at->base != 0 ? q : 1);
    return tn_between(at->base, h->end, wsd_weight(h->shape, q));
}

TN_SCHEDULE(wsd, HYPER, "Warm-up, then stable, then decay",
            TN_PAPER("arXiv:2404.06395") TN_FORMULA("base, but a ramp from start first and one of a shape to end last"))
TN_PLUGIN("org.tenon.wsd", "0.1.0", "Apache-2.0", wsd)
