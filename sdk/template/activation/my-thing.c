/* SPDX-License-Identifier: Apache-2.0
 *
 * Exponential linear unit (Clevert, Unterthiner and Hochreiter, ICLR 2016, arXiv:1511.07289):
 *   y = x for x > 0, else alpha (exp(x) - 1)
 */
#include <tenon/layers.h>

#define HYPER(X) X(fixed, alpha, 1, "[0, inf)", "minus what y tends to far below 0")
TN_DECLARE(my_thing, HYPER)

/* Both branches are computed and one is taken, so that the loop becomes vector code; NaN stays NaN. */
TN_BOTH tn_real my_thing_value(my_thing h, tn_real x)
{
    tn_real below = (tn_real)h.alpha * (tn_exp(x > 0 ? 0 : x) - 1);
    return x > 0 ? x : below;
}

/* dy times the derivative. INPUT below hands it x, OUTPUT would hand it y. */
TN_BOTH tn_real my_thing_gradient(my_thing h, tn_real x, tn_real dy)
{
    tn_real below = (tn_real)h.alpha * tn_exp(x > 0 ? 0 : x);
    return x > 0 ? dy : dy * below;
}

TN_ELEMENT_LAYER(my_thing, "activation", HYPER, INPUT, "Exponential linear unit",
                 TN_PAPER("arXiv:1511.07289") TN_FORMULA("y = x for x > 0, else alpha (exp(x) - 1)"))
TN_PLUGIN("org.example.my-thing", "0.1.0", "Apache-2.0", my_thing)
