/* SPDX-License-Identifier: Apache-2.0
 *
 * Hyperbolic tangent. LeCun, Bottou, Orr and Mueller, "Efficient BackProp", 1998, section 4.4, unscaled:
 * dy/dx = 1 - y^2, d2y/dx2 = -2 y (1 - y^2).
 */
#include <tenon/layers.h>

TN_DECLARE(hyperbolic, TN_NO_HYPER)

TN_BOTH tn_real hyperbolic_value(hyperbolic h, tn_real x)
{
    (void)h;
    return tn_tanh(x);
}

TN_BOTH tn_real hyperbolic_gradient(hyperbolic h, tn_real y, tn_real dy)
{
    (void)h;
    return dy * (1 - y * y);
}

TN_BOTH tn_real hyperbolic_second(hyperbolic h, tn_real y, tn_real dy)
{
    (void)h;
    return dy * (-2 * y * (1 - y * y));
}

TN_ELEMENT_LAYER_AS(hyperbolic, tanh, "activation", TN_NO_HYPER, OUTPUT, "hyperbolic tangent",
                    TN_FORMULA("y = tanh(x)"))
TN_PLUGIN("org.tenon.tanh", "0.1.0", "Apache-2.0", tanh)
