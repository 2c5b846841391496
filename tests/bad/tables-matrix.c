/* SPDX-License-Identifier: Apache-2.0
 *
 * Rules for whole matrices that a chain must refuse.
 */
#include <tenon/matrix_rule.h>

static void nothing(const tn_piece *piece) { (void)piece; }
static void no_apply(const tn_matrix_call *call) { (void)call; }
static void no_tap(const tn_tap_call *call) { (void)call; }
static int32_t never(const void *hyper, const tn_clock *clock)
{
    (void)hyper;
    (void)clock;
    return TN_TAP_NONE;
}
static int32_t strange(const void *hyper, const tn_clock *clock)
{
    (void)hyper;
    (void)clock;
    return 77;
}

#define SIZES(X) X(integer, bytes, 0, "(-inf, inf)", "of scratch")
TN_DECLARE(wrong_scratch, SIZES)
static int64_t wrong_scratch_bytes(const void *hyper, int64_t rows, int64_t columns)
{
    (void)rows;
    (void)columns;
    return ((const wrong_scratch *)hyper)->bytes;
}

static int32_t tapped_plan(const tn_parameter *parameter, const void *hyper, const tn_slot_planner *planner,
                           tn_error *err)
{
    static const tn_slot left = {sizeof(tn_slot), 0, "left", "left", "zero", "tapped", NULL};
    (void)parameter;
    (void)hyper;
    (void)err;
    return planner->slot(planner->host, &left);
}

static const tn_matrix without_apply = {.struct_size = sizeof(tn_matrix)};
static const tn_matrix scratch_of = {
    .struct_size = sizeof(tn_matrix), .workspace = wrong_scratch_bytes, .apply = no_apply};
static const tn_matrix tap_alone = {.struct_size = sizeof(tn_matrix), .apply = no_apply, .tap = no_tap};
static const tn_matrix plain = {.struct_size = sizeof(tn_matrix), .apply = no_apply};
static const tn_matrix taps = {.struct_size = sizeof(tn_matrix), .apply = no_apply, .tapping = never, .tap = no_tap};
static const tn_matrix unheard = {
    .struct_size = sizeof(tn_matrix), .apply = no_apply, .tapping = strange, .tap = no_tap};
static const tn_matrix sizeless = {.struct_size = 0, .apply = no_apply};

#define LINK(name, kind, HYPER, facts, ...)                                                                            \
    static const tn_optimizer name##_table = {.struct_size = sizeof(tn_optimizer), __VA_ARGS__};                       \
    TN_COMPONENT(name, kind, TN_OPTIMIZER, TN_REAL, HYPER, "Wrong", facts, name##_table);
#define PLAIN(name, kind, facts, ...)                                                                                  \
    TN_DECLARE(name, TN_NO_HYPER)                                                                                      \
    LINK(name, kind, TN_NO_HYPER, facts, __VA_ARGS__)
#define RULE(grain) TN_STAGE("rule") TN_GRAIN(grain)

PLAIN(no_apply_rule, "optimizer", RULE("matrix"), .update = nothing, .matrix = &without_apply)
LINK(wrong_scratch, "optimizer", SIZES, RULE("matrix"), .update = nothing, .matrix = &scratch_of)
PLAIN(tap_without_tapping, "optimizer", RULE("layer") TN_SIGNALS("taps"), .update = nothing, .matrix = &tap_alone)
PLAIN(tapped_without_tap, "optimizer", RULE("layer"), .plan = tapped_plan, .update = nothing, .matrix = &plain)
PLAIN(taps_of_matrices, "optimizer", RULE("matrix") TN_SIGNALS("taps"), .update = nothing, .matrix = &taps)
PLAIN(unheard_taps, "optimizer", RULE("layer") TN_SIGNALS("taps"), .update = nothing, .matrix = &unheard)
PLAIN(sizeless_matrix, "optimizer", RULE("matrix"), .update = nothing, .matrix = &sizeless)
PLAIN(matrix_of_elements, "optimizer", TN_STAGE("rule"), .update = nothing, .matrix = &plain)
TN_PLUGIN("org.tenon.test.tables-matrix", "0.1.0", "Apache-2.0", no_apply_rule, wrong_scratch, tap_without_tapping,
          tapped_without_tap, taps_of_matrices, unheard_taps, sizeless_matrix, matrix_of_elements)
