/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/layers.h: layers from their arithmetic alone, and what other layers share.
 *
 * An element-wise layer:
 *
 *   #define HYPER(X) X(fixed, slope, 0.01, "[0, 1]", "factor below zero")
 *   TN_DECLARE(leaky, HYPER)
 *   TN_BOTH tn_real leaky_value(leaky h, tn_real x) { return x > 0 ? x : (tn_real)h.slope * x; }
 *   TN_BOTH tn_real leaky_gradient(leaky h, tn_real x, tn_real dy) { return x > 0 ? dy : (tn_real)h.slope * dy; }
 *   TN_ELEMENT_LAYER(leaky, "activation", HYPER, INPUT, "summary", TN_FORMULA("..."))
 *   TN_PLUGIN("org.example.leaky", "1.0.0", "Apache-2.0", leaky)
 *
 * INPUT: the gradient is computed from x. OUTPUT: from y. Works in place where what it keeps allows it.
 * TN_ELEMENT_LAYER_TANGENTS also offers tangents (tangent.h), and takes one function more: the second derivative by x
 * times dy,  TN_BOTH tn_real leaky_second(leaky h, tn_real x, tn_real dy) { return 0; }
 *
 * All functions here depend on their arguments only and may be called by any thread.
 */
#ifndef TENON_LAYERS_H
#define TENON_LAYERS_H

#include <tenon/layer.h>
#include <tenon/optimizer.h>
#include <tenon/sdk.h>
#include <tenon/tangent.h>
#include <tenon/vecmath.h>

/* ---- facts: see layer.h ---- */

#define TN_AXIS(text)     ",\"axis\":" #text
#define TN_KEEPS(text)    ",\"keeps\":" #text
#define TN_IN_PLACE(flag) ",\"in_place\":" #flag

/* ---- tensors ---- */

/* The first element, or NULL where nothing was lent. `tensor` may be NULL. */
static inline TN_UNUSED tn_real *tn_reals(const tn_tensor *tensor) { return tensor ? (tn_real *)tensor->data : NULL; }

/* Product of the extents of the axes [from, to). */
static inline TN_UNUSED int64_t tn_extent(const tn_tensor *tensor, int32_t from, int32_t to)
{
    int64_t product = 1;
    for (int32_t i = from; i < to; i++)
        product *= tensor->shape[i];
    return product;
}

/* The last extent: features, columns, classes. */
static inline TN_UNUSED int64_t tn_columns(const tn_tensor *tensor) { return tensor->shape[tensor->ndim - 1]; }

/* A shape for a message: "[32, 10]". */
typedef struct tn_shape_text {
    char text[8 + TN_MAX_DIMS * 22];
} tn_shape_text;

static inline TN_UNUSED tn_shape_text tn_shape(const tn_tensor *tensor)
{
    tn_shape_text ret = {"["};
    size_t used = 1;
    for (int32_t i = 0; i < tensor->ndim && i < TN_MAX_DIMS; i++)
        used += (size_t)snprintf(ret.text + used, sizeof ret.text - used, i ? ", %lld" : "%lld",
                                 (long long)tensor->shape[i]);
    snprintf(ret.text + used, sizeof ret.text - used, "]");
    return ret;
}

/* ---- what backward was asked for ---- */

static inline TN_UNUSED int tn_wants_dx(const tn_layer_call *call)
{
    return (call->flags & TN_WANT_DX) != 0 && tn_reals(call->dx) != NULL;
}

static inline TN_UNUSED int tn_wants_dw(const tn_layer_call *call) { return (call->flags & TN_WANT_DW) != 0; }

/* What to add to a parameter gradient that is about to be set: its value so far under TN_ACCUMULATE, else 0. */
static inline TN_UNUSED tn_real tn_so_far(const tn_layer_call *call, tn_real gradient)
{
    return call->flags & TN_ACCUMULATE ? gradient : 0;
}

/* ---- infer ---- */

/* One input of at least `ndim_min` axes, or an error that begins with the layer's name. */
static inline TN_UNUSED int32_t tn_one_input(const char *layer, const tn_tensor *x, int32_t inputs, int32_t ndim_min,
                                             tn_error *err)
{
    if (inputs != 1)
        return tn_fail(err, TN_E_INVALID, "%s: has %d inputs, needs one", layer, (int)inputs);
    if (x->ndim < ndim_min)
        return tn_fail(err, TN_E_INVALID, "%s: the input has shape %s, needs at least %d extents, the batch first",
                       layer, tn_shape(x).text, (int)ndim_min);
    return TN_OK;
}

/* Output of the shape of the input. */
static inline TN_UNUSED int32_t tn_plan_like(const tn_layer_planner *planner, const tn_tensor *x)
{
    return planner->output(planner->host, x->ndim, x->shape);
}

/* The gain "weight" (1) and shift "bias" (0) of a normalizer over `features`. */
static inline TN_UNUSED int32_t tn_plan_affine(const tn_layer_planner *planner, int64_t features)
{
    tn_weight weight = {sizeof weight, TN_ROLE_NORM, "weight", 1, TN_INIT_CONSTANT, &features, 1, 0, -1, -1};
    tn_weight bias = {sizeof bias, TN_ROLE_NORM, "bias", 1, TN_INIT_CONSTANT, &features, 0, 0, -1, -1};
    int32_t status = planner->parameter(planner->host, &weight);
    return status ? status : planner->parameter(planner->host, &bias);
}

/* ---- element-wise layers ---- */

/* out[i] from a[i] and b[i] for i < n, n a multiple of TN_LANES. */
typedef void tn_element_loop(const void *hyper, int64_t n, const tn_real *a, const tn_real *b, tn_real *out);

/* Runs `loop` over n elements, any number; the last ones through padded buffers. */
static inline TN_UNUSED void tn_element_apply(tn_element_loop *loop, const void *hyper, int64_t n, const tn_real *a,
                                              const tn_real *b, tn_real *out)
{
    int64_t whole = n & -TN_LANES;
    size_t rest = (size_t)(n - whole) * sizeof *out;
    loop(hyper, whole, a, b, out);
    if (rest) {
        tn_real block[3][TN_LANES] = {{0}};
        memcpy(block[0], a + whole, rest);
        memcpy(block[1], b + whole, rest);
        loop(hyper, TN_LANES, block[0], block[1], block[2]);
        memcpy(out + whole, block[2], rest);
    }
}

static inline TN_UNUSED int32_t tn_element_infer(const char *layer, const tn_tensor *x, int32_t inputs,
                                                 const tn_layer_planner *planner, tn_error *err)
{
    int32_t status = tn_one_input(layer, x, inputs, 1, err);
    return status ? status : tn_plan_like(planner, x);
}

/* As above, with what derivatives along a direction read: what is kept, x~, dy and dy~. */
typedef void tn_tangent_loop(const void *hyper, int64_t n, const tn_real *kept, const tn_real *x, const tn_real *dy,
                             const tn_real *dy_along, tn_real *out);

static inline TN_UNUSED void tn_tangent_apply(tn_tangent_loop *loop, const void *hyper, int64_t n, const tn_real *kept,
                                              const tn_real *x, const tn_real *dy, const tn_real *dy_along,
                                              tn_real *out)
{
    int64_t whole = n & -TN_LANES;
    size_t rest = (size_t)(n - whole) * sizeof *out;
    loop(hyper, whole, kept, x, dy, dy_along, out);
    if (rest) {
        tn_real block[5][TN_LANES] = {{0}};
        memcpy(block[0], kept + whole, rest);
        memcpy(block[1], x + whole, rest);
        memcpy(block[2], dy + whole, rest);
        memcpy(block[3], dy_along + whole, rest);
        loop(hyper, TN_LANES, block[0], block[1], block[2], block[3], block[4]);
        memcpy(out + whole, block[4], rest);
    }
}

#define TN_KEPT_INPUT(call)  (call)->x
#define TN_KEPT_OUTPUT(call) (call)->y
#define TN_KEPT_INPUT_FACT   TN_KEEPS("input")
#define TN_KEPT_OUTPUT_FACT  TN_KEEPS("output")

#define TN_ELEMENT_CALLS_(name, text, kept)                                                                            \
    TN_CLONES static void name##_forward_loop(const void *hyper, int64_t n, const tn_real *x, const tn_real *unused,   \
                                              tn_real *y)                                                              \
    {                                                                                                                  \
        const name h = *(const name *)hyper;                                                                           \
        (void)unused;                                                                                                  \
        n &= -TN_LANES;                                                                                                \
        TN_INDEPENDENT                                                                                                 \
        for (int64_t i = 0; i < n; i++)                                                                                \
            y[i] = name##_value(h, x[i]);                                                                              \
    }                                                                                                                  \
    TN_CLONES static void name##_backward_loop(const void *hyper, int64_t n, const tn_real *kept_, const tn_real *dy,  \
                                               tn_real *dx)                                                            \
    {                                                                                                                  \
        const name h = *(const name *)hyper;                                                                           \
        n &= -TN_LANES;                                                                                                \
        TN_INDEPENDENT                                                                                                 \
        for (int64_t i = 0; i < n; i++)                                                                                \
            dx[i] = name##_gradient(h, kept_[i], dy[i]);                                                               \
    }                                                                                                                  \
    static int32_t name##_infer(const void *hyper, const tn_tensor *x, int32_t inputs,                                 \
                                const tn_layer_planner *planner, tn_error *err)                                        \
    {                                                                                                                  \
        (void)hyper;                                                                                                   \
        return tn_element_infer(text, x, inputs, planner, err);                                                        \
    }                                                                                                                  \
    static void name##_forward(const tn_layer_call *call)                                                              \
    {                                                                                                                  \
        const tn_real *x = tn_reals(call->x) + call->lo;                                                               \
        tn_element_apply(name##_forward_loop, call->hyper, call->n, x, x, tn_reals(call->y) + call->lo);               \
    }                                                                                                                  \
    static void name##_backward(const tn_layer_call *call)                                                             \
    {                                                                                                                  \
        if (tn_wants_dx(call))                                                                                         \
            tn_element_apply(name##_backward_loop, call->hyper, call->n, tn_reals(TN_KEPT_##kept(call)) + call->lo,    \
                             tn_reals(call->dy) + call->lo, tn_reals(call->dx) + call->lo);                            \
    }

#define TN_ELEMENT_RECORD_(type, name, kind, HYPER, kept, summary, facts, tangents_)                                   \
    static const tn_layer type##_table = {                                                                             \
        sizeof(tn_layer), 0, TN_CALL(type##_infer), TN_CALL(type##_forward), TN_CALL(type##_backward), NULL, NULL,     \
        tangents_};                                                                                                    \
    TN_COMPONENT(name, kind, TN_LAYER, TN_REAL, HYPER, summary,                                                        \
                 TN_AXIS("elements") TN_IN_PLACE(true) TN_KEPT_##kept##_FACT facts, type##_table);

/* y~ = f' x~,  dx~ = f' dy~ + f'' x~ dy */
#define TN_ELEMENT_TANGENTS_(name, kept)                                                                               \
    TN_CLONES static void name##_tangent_loop(const void *hyper, int64_t n, const tn_real *kept_, const tn_real *x,    \
                                              const tn_real *dy, const tn_real *dy_along, tn_real *dx)                 \
    {                                                                                                                  \
        const name h = *(const name *)hyper;                                                                           \
        n &= -TN_LANES;                                                                                                \
        TN_INDEPENDENT                                                                                                 \
        for (int64_t i = 0; i < n; i++)                                                                                \
            dx[i] = name##_gradient(h, kept_[i], dy_along[i]) + name##_second(h, kept_[i], x[i] * dy[i]);              \
    }                                                                                                                  \
    static void name##_tangent_forward(const tn_tangent_call *along)                                                   \
    {                                                                                                                  \
        const tn_layer_call *call = along->call;                                                                       \
        const tn_real *x = tn_reals(along->x);                                                                         \
        tn_real *y = tn_reals(along->y) + call->lo;                                                                    \
        if (x)                                                                                                         \
            tn_element_apply(name##_backward_loop, call->hyper, call->n, tn_reals(TN_KEPT_##kept(call)) + call->lo,    \
                             x + call->lo, y);                                                                         \
        else                                                                                                           \
            memset(y, 0, (size_t)call->n * sizeof *y);                                                                 \
    }                                                                                                                  \
    static void name##_tangent_backward(const tn_tangent_call *along)                                                  \
    {                                                                                                                  \
        const tn_layer_call *call = along->call;                                                                       \
        const tn_real *kept_ = tn_reals(TN_KEPT_##kept(call)) + call->lo, *x = tn_reals(along->x);                     \
        const tn_real *dy = tn_reals(call->dy) + call->lo, *dy_along = tn_reals(along->dy) + call->lo;                 \
        tn_real *dx = tn_reals(along->dx);                                                                             \
        if (dx && x)                                                                                                   \
            tn_tangent_apply(name##_tangent_loop, call->hyper, call->n, kept_, x + call->lo, dy, dy_along,             \
                             dx + call->lo);                                                                           \
        else if (dx)                                                                                                   \
            tn_element_apply(name##_backward_loop, call->hyper, call->n, kept_, dy_along, dx + call->lo);              \
    }                                                                                                                  \
    static const tn_layer_tangents name##_tangents = {sizeof(tn_layer_tangents), 0, TN_CALL(name##_tangent_forward),   \
                                                      TN_CALL(name##_tangent_backward)};

#define TN_ELEMENT_LAYER(name, kind, HYPER, kept, summary, facts)                                                      \
    TN_ELEMENT_CALLS_(name, #name, kept)                                                                               \
    TN_ELEMENT_RECORD_(name, name, kind, HYPER, kept, summary, facts, NULL)

/* With tangents; the type and its functions have another name than the component, which is one of libm. */
#define TN_ELEMENT_LAYER_AS(type, name, kind, HYPER, kept, summary, facts)                                             \
    TN_ELEMENT_CALLS_(type, #name, kept)                                                                               \
    TN_ELEMENT_TANGENTS_(type, kept)                                                                                   \
    TN_ELEMENT_RECORD_(type, name, kind, HYPER, kept, summary, facts, &type##_tangents)

#define TN_ELEMENT_LAYER_TANGENTS(name, kind, HYPER, kept, summary, facts)                                             \
    TN_ELEMENT_LAYER_AS(name, name, kind, HYPER, kept, summary, facts)

#endif
