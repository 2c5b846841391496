/* SPDX-License-Identifier: Apache-2.0
 *
 * Rectified linear unit. Nair and Hinton, ICML 2010. The derivative at 0 is 0, as in PyTorch; NaN passes through.
 */
#include <tenon/layers.h>

TN_DECLARE(relu, TN_NO_HYPER)

TN_BOTH tn_real relu_value(relu h, tn_real x)
{
    (void)h;
    return x <= 0 ? 0 : x;
}

TN_BOTH tn_real relu_gradient(relu h, tn_real y, tn_real dy)
{
    (void)h;
    return y <= 0 ? 0 : dy;
}

TN_BOTH tn_real relu_second(relu h, tn_real y, tn_real dy)
{
    (void)h;
    (void)y;
    (void)dy;
    return 0;
}

TN_ELEMENT_LAYER_TANGENTS(relu, "activation", TN_NO_HYPER, OUTPUT, "rectified linear unit", TN_FORMULA("y = max(0, x)"))
TN_PLUGIN("org.tenon.relu", "0.1.0", "Apache-2.0", relu)
