/* SPDX-License-Identifier: Apache-2.0
 *
 * Minimizers whose tables lack what a host must call, or plan more than there is.
 */
#include <stdio.h>
#include <tenon/minimize.h>

static void no_step(const tn_advance *call, tn_ask *ask)
{
    (void)call;
    (void)ask;
}
static int32_t no_plan(const void *hyper, const tn_minimizer_planner *planner, tn_error *err)
{
    (void)hyper;
    (void)planner;
    (void)err;
    return TN_OK;
}
static int32_t much_memory(const void *hyper, const tn_minimizer_planner *planner, tn_error *err)
{
    (void)hyper;
    (void)err;
    return planner->memory(planner->host, INT64_MAX / 4);
}
static int32_t many_slots(const void *hyper, const tn_minimizer_planner *planner, tn_error *err)
{
    char name[24];
    int32_t status = TN_OK;
    (void)hyper;
    (void)err;
    for (int i = 0; i < 1000000 && !status; i++) {
        const tn_slot slot = {sizeof slot, 0, name, "like", "zero", "transient", NULL};
        snprintf(name, sizeof name, "s%d", i);
        status = planner->slot(planner->host, &slot);
    }
    return status;
}
#define MINIMIZER(name, ...)                                                                                           \
    TN_DECLARE(name, TN_NO_HYPER)                                                                                      \
    static const tn_minimizer name##_table = {.struct_size = sizeof(tn_minimizer), __VA_ARGS__};                       \
    TN_COMPONENT(name, "optimizer", TN_MINIMIZER, TN_REAL, TN_NO_HYPER, "Wrong", TN_STAGE("rule") TN_GRAIN("model"),   \
                 name##_table);

MINIMIZER(minimizer_without_plan, .advance = no_step)
MINIMIZER(minimizer_without_advance, .plan = no_plan)
MINIMIZER(minimizer_of_memory, .plan = much_memory, .advance = no_step)
MINIMIZER(minimizer_of_slots, .plan = many_slots, .advance = no_step)
MINIMIZER(minimizer_that_is_mute, .plan = no_plan, .advance = no_step)
TN_PLUGIN("org.tenon.test.tables-minimizers", "0.1.0", "Apache-2.0", minimizer_without_plan, minimizer_without_advance,
          minimizer_of_memory, minimizer_of_slots, minimizer_that_is_mute)
