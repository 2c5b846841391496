/* SPDX-License-Identifier: Apache-2.0
 *
 * Gaussian error linear unit. Hendrycks and Gimpel, arXiv:1606.08415, section 2: y = x Phi(x) with the exact
 * distribution function, not the form with tanh. dy/dx = Phi(x) + x phi(x),
 * d2y/dx2 = (2 - x^2) phi(x).
 */
#include <tenon/layers.h>

TN_DECLARE(gelu, TN_NO_HYPER)

#define ROOT_HALF     ((tn_real)0.70710678118654752440)
#define ROOT_TWO_PI_1 ((tn_real)0.39894228040143267794) /* 1 / sqrt(2 pi) */

TN_BOTH tn_real gelu_value(gelu h, tn_real x)
{
    (void)h;
    return (tn_real)0.5 * x * (1 + tn_erf(x * ROOT_HALF));
}

TN_BOTH tn_real gelu_gradient(gelu h, tn_real x, tn_real dy)
{
    (void)h;
    tn_real distribution = (tn_real)0.5 * (1 + tn_erf(x * ROOT_HALF));
    tn_real density = ROOT_TWO_PI_1 * tn_exp((tn_real)-0.5 * x * x);
    return dy * (distribution + x * density);
}

TN_BOTH tn_real gelu_second(gelu h, tn_real x, tn_real dy)
{
    (void)h;
    return dy * (2 - x * x) * (ROOT_TWO_PI_1 * tn_exp((tn_real)-0.5 * x * x));
}

TN_ELEMENT_LAYER_TANGENTS(gelu, "activation", TN_NO_HYPER, INPUT, "Gaussian error linear unit, exact",
                          TN_PAPER("arXiv:1606.08415") TN_FORMULA("y = x Phi(x)"))
TN_PLUGIN("org.tenon.gelu", "0.1.0", "Apache-2.0", gelu)
