/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers that a graph must refuse: without functions, with rounds that can not be.
 */
#include <tenon/layers.h>
#include <tenon/normalizer.h>

#define SIZES(X)                                                                                                       \
    X(integer, sums, 1, "(-inf, inf)", "of a round")                                                                   \
    X(integer, later, 0, "(-inf, inf)", "added once the graph is planned")
TN_DECLARE(odd_rounds, SIZES)

static int32_t same(const void *hyper, const tn_tensor *x, int32_t inputs, const tn_layer_planner *planner,
                    tn_error *err)
{
    (void)hyper;
    (void)inputs;
    (void)err;
    return tn_plan_like(planner, x);
}
static void nothing(const tn_layer_call *call) { (void)call; }
static int64_t sums(const void *hyper, const tn_tensor *x, uint32_t flags)
{
    const odd_rounds *h = (const odd_rounds *)hyper;
    static int calls;
    (void)x;
    (void)flags;
    return h->sums + (calls++ < 2 ? 0 : h->later);
}
static int64_t one(const void *hyper, const tn_tensor *x, uint32_t flags)
{
    (void)hyper;
    (void)x;
    (void)flags;
    return 1;
}
static void no_partial(const tn_layer_call *call, int32_t round, double *out)
{
    (void)call;
    (void)round;
    (void)out;
}

static const tn_layer_rounds odd = {sizeof(tn_layer_rounds), 1, 1, 0, sums, no_partial};
static const tn_layer_rounds minus = {sizeof(tn_layer_rounds), -1, 1, 0, one, no_partial};
static const tn_layer_rounds many = {sizeof(tn_layer_rounds), 1, INT32_MAX, 0, one, no_partial};
static const tn_layer_rounds mute = {sizeof(tn_layer_rounds), 1, 1, 0, one, NULL};
static const tn_layer_rounds sizeless = {0, 1, 1, 0, one, no_partial};

#define LAYER(name, HYPER, ...)                                                                                        \
    static const tn_layer name##_table = {.struct_size = sizeof(tn_layer), __VA_ARGS__};                               \
    TN_COMPONENT(name, "normalizer", TN_LAYER, TN_REAL, HYPER, "Wrong", TN_AXIS("columns") TN_KEEPS("none"),           \
                 name##_table)
#define CALLS .infer = same, .forward = nothing, .backward = nothing

LAYER(odd_rounds, SIZES, CALLS, .rounds = &odd);
LAYER(minus_rounds, TN_NO_HYPER, CALLS, .rounds = &minus);
LAYER(many_rounds, TN_NO_HYPER, CALLS, .rounds = &many);
LAYER(mute_rounds, TN_NO_HYPER, CALLS, .rounds = &mute);
LAYER(sizeless_rounds, TN_NO_HYPER, CALLS, .rounds = &sizeless);
LAYER(no_infer, TN_NO_HYPER, .forward = nothing, .backward = nothing);
LAYER(no_forward, TN_NO_HYPER, .infer = same, .backward = nothing);
LAYER(no_backward, TN_NO_HYPER, .infer = same, .forward = nothing);
TN_PLUGIN("org.tenon.test.tables-layers", "0.1.0", "Apache-2.0", odd_rounds, minus_rounds, many_rounds, mute_rounds,
          sizeless_rounds, no_infer, no_forward, no_backward)
