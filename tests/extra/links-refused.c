/* SPDX-License-Identifier: Apache-2.0
 *
 * Links, each with one thing that a chain refuses: for test_chain.
 */
#include <tenon/rule.h>

static void nothing(const tn_piece *piece) { (void)piece; }
static void no_sum(const tn_piece *piece, const tn_partial *out)
{
    (void)piece;
    (void)out;
}
static void no_fold(const tn_fold *fold) { (void)fold; }
/* Does not look at what the planner answers. */
static int32_t careless(const tn_parameter *parameter, const void *hyper, const tn_slot_planner *planner, tn_error *err)
{
    static const tn_slot scalar = {sizeof(tn_slot), 0, "count", "scalar", "zero", "", NULL};
    (void)parameter;
    (void)hyper;
    (void)err;
    planner->slot(planner->host, &scalar);
    return TN_OK;
}
static double half(const void *k)
{
    (void)k;
    return 0.5;
}

#define LINK(name, kind, SLOTS, facts, ...)                                                                            \
    TN_DECLARE(name, TN_NO_HYPER)                                                                                      \
    static const tn_optimizer name##_table = {.struct_size = sizeof(tn_optimizer), __VA_ARGS__};                       \
    TN_LINK(name, kind, TN_NO_HYPER, SLOTS, "Refused", facts, name##_table)
#define ROUND .partial = no_sum, .fold = no_fold

LINK(bad_source, "wrapper", TN_NO_SLOTS, TN_STAGE("source"), .update = nothing)
LINK(bad_matrix, "optimizer", TN_NO_SLOTS, TN_STAGE("rule") TN_GRAIN("matrix"), .update = nothing)
LINK(bad_slot, "optimizer", TN_NO_SLOTS, TN_STAGE("rule"), .plan = careless, .update = nothing)
LINK(bad_signal, "optimizer", TN_NO_SLOTS, TN_STAGE("rule") TN_FACT("signals", "[\"gradient2\"]"), .update = nothing)
LINK(bad_keep, "transform", TN_NO_SLOTS, TN_STAGE("gradient"), .keep = half)
LINK(bad_round, "transform", TN_NO_SLOTS, TN_STAGE("gradient") TN_ROUND("model", 1), .fold = no_fold)

TN_PLUGIN("org.tenon.test.links-refused", "1.0.0", "Apache-2.0", bad_source, bad_matrix, bad_slot, bad_signal, bad_keep,
          bad_round)
