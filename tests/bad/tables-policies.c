/* SPDX-License-Identifier: Apache-2.0
 *
 * Policies that a trainer must refuse: loss scales and recomputation.
 */
#include <math.h>
#include <tenon/precision.h>
#include <tenon/recompute.h>
#include <tenon/sdk.h>

#define VALUES(X) X(fixed, value, 1, "[-inf, inf] or nan", "of the scale")
TN_DECLARE(odd_scale, VALUES)
#define FAULTS(X) X(integer, word, 0, "(-inf, inf)", "in each row")
TN_DECLARE(odd_plan, FAULTS)

static void no_begin(const void *hyper, double *slots)
{
    (void)hyper;
    (void)slots;
}
static double scale_of(const void *hyper, const double *slots)
{
    (void)slots;
    return ((const odd_scale *)hyper)->value;
}
static double one(const void *hyper, const double *slots)
{
    (void)hyper;
    (void)slots;
    return 1;
}
static void no_observe(const void *hyper, int32_t overflow, double *slots)
{
    (void)hyper;
    (void)overflow;
    (void)slots;
}
static int32_t plan_of(const void *hyper, const tn_node_cost *nodes, int64_t count, int32_t *keep, tn_error *err)
{
    (void)nodes;
    (void)err;
    for (int64_t i = 0; i < count; i++)
        keep[i] = (int32_t)((const odd_plan *)hyper)->word;
    return TN_OK;
}

#define SCALE(name, HYPER, slots, ...)                                                                                 \
    static const tn_loss_scale name##_table = {sizeof(tn_loss_scale), slots, __VA_ARGS__};                             \
    TN_COMPONENT(name, "loss-scale", TN_LOSS_SCALE, 0, HYPER, "Wrong", "", name##_table)

SCALE(odd_scale, VALUES, 0, no_begin, scale_of, no_observe);
SCALE(minus_slots, TN_NO_HYPER, -1, no_begin, one, no_observe);
SCALE(many_slots, TN_NO_HYPER, INT32_MAX, no_begin, one, no_observe);
SCALE(no_scale, TN_NO_HYPER, 0, no_begin, NULL, no_observe);
static const tn_recompute odd_plan_table = {sizeof(tn_recompute), 0, plan_of};
TN_COMPONENT(odd_plan, "recompute", TN_RECOMPUTE, 0, FAULTS, "Wrong", "", odd_plan_table);
static const tn_recompute no_plan_table = {sizeof(tn_recompute), 0, NULL};
TN_COMPONENT(no_plan, "recompute", TN_RECOMPUTE, 0, TN_NO_HYPER, "Wrong", "", no_plan_table);
TN_PLUGIN("org.tenon.test.tables-policies", "0.1.0", "Apache-2.0", odd_scale, minus_slots, many_slots, no_scale,
          odd_plan, no_plan)
