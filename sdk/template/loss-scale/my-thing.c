/* SPDX-License-Identifier: Apache-2.0
 *
 * A loss scale that creeps up and falls fast: its logarithm grows a little at each attempt without overflow and falls
 * by whole powers of two at an overflow. The scale used is the power of two at or below it, so dividing by it is exact.
 */
#include <tenon/precision.h>
#include <tenon/sdk.h>

#define HYPER(X)                                                                                                       \
    X(fixed, initial, 16, "[0, 100]", "logarithm to base 2 of the first scale")                                        \
    X(fixed, growth, 0.001, "[0, 1]", "added to it at an attempt without overflow")                                    \
    X(fixed, fall, 1, "[1, 10]", "taken from it at an overflow")                                                       \
    X(fixed, most, 100, "[0, 100]", "it goes no higher")
TN_DECLARE(my_thing, HYPER)

/* The host saves it with the run, under these names. */
#define SCALARS(S) S(exponent, "logarithm to base 2 of the scale")
TN_DECLARE_SCALARS(my_thing_state, SCALARS)

static void my_thing_begin(const void *hyper, double *slots)
{
    const my_thing *h = (const my_thing *)hyper;
    ((my_thing_state *)slots)->exponent = fmin(h->initial, h->most);
}

static double my_thing_scale(const void *hyper, const double *slots)
{
    (void)hyper;
    return ldexp(1, (int)floor(((const my_thing_state *)slots)->exponent));
}

static void my_thing_observe(const void *hyper, int32_t overflow, double *slots)
{
    const my_thing *h = (const my_thing *)hyper;
    my_thing_state *s = (my_thing_state *)slots;
    s->exponent = overflow ? fmax(s->exponent - h->fall, 0) : fmin(s->exponent + h->growth, h->most);
}

static const tn_loss_scale my_thing_table = {sizeof(tn_loss_scale), (int32_t)(sizeof(my_thing_state) / sizeof(double)),
                                             my_thing_begin, my_thing_scale, my_thing_observe};
TN_COMPONENT(my_thing, "loss-scale", TN_LOSS_SCALE, 0u, HYPER, "Creeps up, falls by powers of two",
             TN_SCALARS_FACT(SCALARS) TN_FORMULA("scale = 2^floor(exponent)"), my_thing_table);
TN_PLUGIN("org.example.my-thing", "0.1.0", "Apache-2.0", my_thing)
