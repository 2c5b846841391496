/* SPDX-License-Identifier: Apache-2.0
 *
 * loss_scale.h: a loss scale, loss-scale/bad, for plugins that are wrong in one way: it halves at an overflow, down to
 * 1. A file takes the functions here that it has no fault in.
 */
#ifndef TENON_TESTS_BAD_LOSS_SCALE_H
#define TENON_TESTS_BAD_LOSS_SCALE_H

#include <tenon/precision.h>
#include <tenon/sdk.h>

static TN_UNUSED void begin(const void *hyper, double *slots)
{
    (void)hyper;
    slots[0] = 65536;
}

static TN_UNUSED double scale(const void *hyper, const double *slots)
{
    (void)hyper;
    return slots[0];
}

static TN_UNUSED void observe(const void *hyper, int32_t overflow, double *slots)
{
    (void)hyper;
    if (overflow && slots[0] > 1)
        slots[0] /= 2;
}

#define SCALARS(S) S(scale, "the scale")

#define BAD_LOSS_SCALE(id, begin, scale, observe)                                                                      \
    static const tn_loss_scale bad_table = {sizeof(tn_loss_scale), 1, begin, scale, observe};                          \
    TN_COMPONENT(bad, "loss-scale", TN_LOSS_SCALE, 0u, TN_NO_HYPER, "a test", TN_SCALARS_FACT(SCALARS), bad_table);    \
    TN_PLUGIN("org.tenon.test." id, "0.1.0", "Apache-2.0", bad)

#endif
