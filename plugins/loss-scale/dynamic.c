/* SPDX-License-Identifier: Apache-2.0
 *
 * Dynamic loss scale. Micikevicius et al., ICLR 2018, arXiv:1710.03740: after `interval` attempts in a row without
 * overflow the scale grows, after an overflow it shrinks. With `hysteresis` above 1 so many overflows less one are put
 * up with since the last growth before it shrinks, as in Megatron-LM; 1 is the way of PyTorch's GradScaler. Either
 * kind of overflow begins the count of `interval` anew. The scale used is the power of two at or below the slot, so
 * dividing by it is exact whatever the factors.
 */
#include <tenon/precision.h>
#include <tenon/sdk.h>

#define HYPER(X)                                                                                                       \
    X(fixed, initial, 65536, "[0x1p-126, 0x1p127]", "scale of the first attempt")                                      \
    X(fixed, growth, 2, "[1, inf)", "what a growth multiplies by")                                                     \
    X(fixed, backoff, 0.5, "(0, 1]", "what an overflow multiplies by")                                                 \
    X(integer, interval, 2000, "[1, inf) attempts", "attempts in a row without overflow that bring a growth")          \
    X(integer, hysteresis, 1, "[1, inf) overflows", "overflows since the last growth that bring the first backoff")    \
    X(fixed, minimum, 1, "[0x1p-126, 0x1p127]", "the scale goes no lower")                                             \
    X(fixed, maximum, 0x1p127, "[0x1p-126, 0x1p127]", "the scale goes no higher, and no lower than minimum for it")
TN_DECLARE(dynamic, HYPER)

#define SCALARS(S)                                                                                                     \
    S(scale, "the scale before it is cut to a power of two")                                                           \
    S(good, "attempts in a row without overflow")                                                                      \
    S(left, "overflows left before the scale shrinks")
TN_DECLARE_SCALARS(dynamic_state, SCALARS)

static double dynamic_within(const dynamic *h, double scale) { return fmax(fmin(scale, h->maximum), h->minimum); }

static void dynamic_begin(const void *hyper, double *slots)
{
    const dynamic *h = (const dynamic *)hyper;
    *(dynamic_state *)slots = (dynamic_state){dynamic_within(h, h->initial), 0, (double)h->hysteresis};
}

static double dynamic_scale(const void *hyper, const double *slots)
{
    int exponent;
    (void)hyper;
    frexp(((const dynamic_state *)slots)->scale, &exponent);
    return ldexp(1, exponent - 1);
}

static void dynamic_observe(const void *hyper, int32_t overflow, double *slots)
{
    const dynamic *h = (const dynamic *)hyper;
    dynamic_state *s = (dynamic_state *)slots;
    s->good = overflow ? 0 : s->good + 1;
    if (overflow && s->left > 1)
        s->left--;
    else if (overflow)
        s->scale = dynamic_within(h, s->scale * h->backoff);
    if (s->good < (double)h->interval)
        return;
    *s = (dynamic_state){dynamic_within(h, s->scale * h->growth), 0, (double)h->hysteresis};
}

static const tn_loss_scale dynamic_table = {sizeof(tn_loss_scale), sizeof(dynamic_state) / sizeof(double),
                                            dynamic_begin, dynamic_scale, dynamic_observe};
TN_COMPONENT(dynamic, "loss-scale", TN_LOSS_SCALE, 0u, HYPER, "Grows while nothing overflows, shrinks when it does",
             TN_SCALARS_FACT(SCALARS) TN_PAPER("arXiv:1710.03740")
                 TN_FORMULA("scale growth after interval good attempts, scale backoff after an overflow"),
             dynamic_table);
TN_PLUGIN("org.tenon.dynamic", "0.1.0", "Apache-2.0", dynamic)
