/* SPDX-License-Identifier: Apache-2.0
 *
 * Inverted dropout. Srivastava et al., JMLR 15, 2014: in training an element becomes 0 with probability p, otherwise
 * x / (1 - p). Element i is kept if word i % 4 of Philox(key, attempt, i / 4) is at least p 2^32; a mask depends on
 * nothing else. Backward reads the mask, a byte an element: drawing again would take several times as long.
 */
#include <tenon/layers.h>

#define HYPER(X) X(real, p, 0.5, "[0, 1]", "probability that an element is dropped")
TN_DECLARE(dropout, HYPER)

static int32_t dropout_infer(const void *hyper, const tn_tensor *x, int32_t inputs, const tn_layer_planner *planner,
                             tn_error *err)
{
    (void)hyper;
    int32_t status = tn_element_infer("dropout", x, inputs, planner, err);
    return status ? status : planner->saved(planner->host, (tn_dtype){TN_UINT, 8, 1}, x->ndim, x->shape);
}

/* `first` is a multiple of 4. */
TN_RANDOM_CLONES static void dropout_drop(uint64_t key, uint64_t attempt, int64_t first, int64_t n, uint32_t threshold,
                                          tn_real scale, const tn_real *x, tn_real *y, uint8_t *restrict mask)
{
    uint32_t words[TN_RANDOM_RUN];
    for (int64_t lo = 0; lo < n; lo += TN_RANDOM_RUN) {
        int64_t run = n - lo < TN_RANDOM_RUN ? n - lo : TN_RANDOM_RUN;
        tn_random_run(key, attempt, (uint64_t)(first + lo) / 4, words);
        TN_INDEPENDENT
        for (int64_t i = 0; i < run; i++)
            y[lo + i] = words[i] >= threshold ? x[lo + i] * scale : 0;
        for (int64_t i = 0; i < run; i++)
            mask[lo + i] = words[i] >= threshold;
    }
}

TN_CLONES static void dropout_mask(int64_t n, tn_real scale, const uint8_t *restrict mask, const tn_real *dy,
                                   tn_real *dx)
{
    TN_INDEPENDENT
    for (int64_t i = 0; i < n; i++)
        dx[i] = mask[i] ? dy[i] * scale : 0;
}

static double dropout_p(const tn_layer_call *call) { return ((const dropout *)call->hyper)->p; }

/* Where no random numbers are needed: 1 if all is done. */
static int dropout_plain(const tn_layer_call *call, const tn_real *from, tn_real *to)
{
    size_t bytes = (size_t)call->n * sizeof *to;
    if (!(call->flags & TN_TRAIN) || dropout_p(call) <= 0) {
        if (to != from)
            memcpy(to, from, bytes);
        return 1;
    }
    if (dropout_p(call) >= 1) {
        memset(to, 0, bytes);
        return 1;
    }
    return 0;
}

static void dropout_forward(const tn_layer_call *call)
{
    const tn_real *x = tn_reals(call->x) + call->lo;
    tn_real *y = tn_reals(call->y) + call->lo;
    if (dropout_plain(call, x, y))
        return;
    double p = dropout_p(call);
    dropout_drop(call->context->key, (uint64_t)call->context->attempt, call->lo, call->n,
                 (uint32_t)fmin(p * 0x1p32, 0x1p32 - 1), (tn_real)(1 / (1 - p)), x, y,
                 (uint8_t *)call->saved->data + call->lo);
}

/* The mask that forward left, on whole tensors. `from` NULL: zeros. */
static void dropout_apply(const tn_layer_call *call, const tn_real *from, tn_real *to)
{
    if (!from) {
        memset(to + call->lo, 0, (size_t)call->n * sizeof *to);
        return;
    }
    if (!dropout_plain(call, from + call->lo, to + call->lo))
        dropout_mask(call->n, (tn_real)(1 / (1 - dropout_p(call))), (const uint8_t *)call->saved->data + call->lo,
                     from + call->lo, to + call->lo);
}

static void dropout_backward(const tn_layer_call *call)
{
    if (tn_wants_dx(call))
        dropout_apply(call, tn_reals(call->dy), tn_reals(call->dx));
}

/* A linear map: its derivative along a direction is itself. */
static void dropout_tangent_forward(const tn_tangent_call *along)
{
    dropout_apply(along->call, tn_reals(along->x), tn_reals(along->y));
}

static void dropout_tangent_backward(const tn_tangent_call *along)
{
    if (tn_reals(along->dx))
        dropout_apply(along->call, tn_reals(along->dy), tn_reals(along->dx));
}

static const tn_layer_tangents dropout_tangents = {sizeof(tn_layer_tangents), 0, dropout_tangent_forward,
                                                   dropout_tangent_backward};

static const tn_layer dropout_table = {.struct_size = sizeof(tn_layer),
                                       .infer = dropout_infer,
                                       .forward = dropout_forward,
                                       .backward = dropout_backward,
                                       .tangents = &dropout_tangents};

TN_COMPONENT(dropout, "regularizer", TN_LAYER, TN_REAL, HYPER, "inverted dropout",
             TN_AXIS("elements") TN_KEEPS("none") TN_IN_PLACE(true) TN_FORMULA("y = x bernoulli(1 - p) / (1 - p)"),
             dropout_table);
TN_PLUGIN("org.tenon.dropout", "0.1.0", "Apache-2.0", dropout)
