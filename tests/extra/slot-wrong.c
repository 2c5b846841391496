/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of the chain: a rule that plans a slot with one fault at choice, and goes on as if it were not refused.
 */
#include <tenon/rule.h>

#define HYPER(X) X(choice, fault, null, "null | unnamed | empty | space | slash | letter | none", "what is wrong")
TN_DECLARE(slot_wrong, HYPER)

static int32_t slot_wrong_plan(const tn_parameter *parameter, const void *hyper, const tn_slot_planner *planner,
                               tn_error *err)
{
    static const char *const names[] = {NULL, NULL, "", "a b", "a/b", "\xC3\xA9", "A-z_0.9"};
    int64_t fault = ((const slot_wrong *)hyper)->fault;
    const tn_slot slot = {sizeof slot, 0, names[fault], "like", "zero", "", NULL};
    (void)parameter;
    (void)err;
    planner->slot(planner->host, fault == 0 ? NULL : &slot);
    return TN_OK;
}

static void slot_wrong_update(const tn_piece *piece)
{
    for (int64_t i = 0; i < piece->n; i++)
        ((tn_real *)piece->d)[i] = 0;
}

static const tn_optimizer slot_wrong_table = {
    .struct_size = sizeof(tn_optimizer), .plan = slot_wrong_plan, .update = slot_wrong_update};
TN_LINK(slot_wrong, "optimizer", HYPER, TN_NO_SLOTS, "A slot with a fault", TN_STAGE("rule"), slot_wrong_table)
TN_PLUGIN("org.tenon.test.slot-wrong", "0.1.0", "Apache-2.0", slot_wrong)
