/* SPDX-License-Identifier: Apache-2.0
 *
 * fmin and fmax make a number of NaN.
 */
#include <tenon/layers.h>

TN_DECLARE(clip, TN_NO_HYPER)

TN_BOTH tn_real clip_value(clip h, tn_real x)
{
    (void)h;
#ifdef REPAIRED
    return x < -3 ? -3 : x > 3 ? 3 : x;
#else
    return fminf(fmaxf(x, -3), 3);
#endif
}

TN_BOTH tn_real clip_gradient(clip h, tn_real x, tn_real dy)
{
    (void)h;
    return x < -3 || x > 3 ? 0 : dy;
}

TN_ELEMENT_LAYER(clip, "activation", TN_NO_HYPER, INPUT, "a test", "")
TN_PLUGIN("org.tenon.test.clip", "0.1.0", "Apache-2.0", clip)
