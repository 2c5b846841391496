/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of the graph: layers whose rounds the host must refuse.
 */
#include <tenon/layers.h>
#include <tenon/normalizer.h>

TN_DECLARE(rounds_on_rows, TN_NO_HYPER)
TN_DECLARE(rounds_without_count, TN_NO_HYPER)

static int32_t same_infer(const void *hyper, const tn_tensor *x, int32_t inputs, const tn_layer_planner *planner,
                          tn_error *err)
{
    (void)hyper;
    (void)inputs;
    (void)err;
    return tn_plan_like(planner, x);
}

static void nothing(const tn_layer_call *call) { (void)call; }

static int64_t one_sum(const void *hyper, const tn_tensor *x, uint32_t flags)
{
    (void)hyper;
    (void)x;
    (void)flags;
    return 1;
}

static void no_partial(const tn_layer_call *call, int32_t round, double *sums)
{
    (void)call;
    (void)round;
    (void)sums;
}

static const tn_layer_rounds whole = {sizeof(tn_layer_rounds), 1, 1, 0, one_sum, no_partial};
static const tn_layer_rounds without = {sizeof(tn_layer_rounds), 1, 1, 0, NULL, no_partial};
static const tn_layer rounds_on_rows_table = {
    .struct_size = sizeof(tn_layer), .infer = same_infer, .forward = nothing, .backward = nothing, .rounds = &whole};
static const tn_layer rounds_without_count_table = {
    .struct_size = sizeof(tn_layer), .infer = same_infer, .forward = nothing, .backward = nothing, .rounds = &without};
TN_COMPONENT(rounds_on_rows, "activation", TN_LAYER, TN_REAL, TN_NO_HYPER, "Rounds on an axis without them",
             TN_AXIS("rows") TN_KEEPS("none"), rounds_on_rows_table);
TN_COMPONENT(rounds_without_count, "activation", TN_LAYER, TN_REAL, TN_NO_HYPER, "Rounds without a count",
             TN_AXIS("columns") TN_KEEPS("none"), rounds_without_count_table);
TN_PLUGIN("org.tenon.test.rounds", "0.1.0", "Apache-2.0", rounds_on_rows, rounds_without_count)
