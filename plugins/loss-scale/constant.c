/* SPDX-License-Identifier: Apache-2.0
 *
 * A loss scale that stays. What is used is the power of two at or below the value, so that dividing by it is exact.
 */
#include <tenon/precision.h>
#include <tenon/sdk.h>

#define HYPER(X) X(fixed, value, 1, "[0x1p-126, 0x1p127]", "the scale")
TN_DECLARE(constant, HYPER)

static void constant_begin(const void *hyper, double *slots)
{
    (void)hyper;
    (void)slots;
}

static double constant_scale(const void *hyper, const double *slots)
{
    int exponent;
    (void)slots;
    frexp(((const constant *)hyper)->value, &exponent);
    return ldexp(1, exponent - 1);
}

static void constant_observe(const void *hyper, int32_t overflow, double *slots)
{
    (void)hyper;
    (void)overflow;
    (void)slots;
}

static const tn_loss_scale constant_table = {sizeof(tn_loss_scale), 0, constant_begin, constant_scale,
                                             constant_observe};
TN_COMPONENT(constant, "loss-scale", TN_LOSS_SCALE, 0u, HYPER, "The same scale for the whole run",
             TN_FORMULA("2^floor(log2(value))"), constant_table);
TN_PLUGIN("org.tenon.constant", "0.1.0", "Apache-2.0", constant)
