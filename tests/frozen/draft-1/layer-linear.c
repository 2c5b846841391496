/* SPDX-License-Identifier: Apache-2.0
 *
 * y = x W^T + b over the last extent; every other extent counts as rows. The weight is [out, in]; both parameters start
 * uniform within 1 / sqrt(in), as in PyTorch.
 */
#include <tenon/layers.h>

#define HYPER(X)                                                                                                       \
    X(integer, out, 128, "[1, 2147483647]", "features of the output")                                                  \
    X(flag, bias, true, "", "add a learned bias")                                                                      \
    X(flag, head, false, "", "the model's last layer: its weight gets the role `head`, by which updates can be routed")
TN_DECLARE(linear, HYPER)

enum { WEIGHT, BIAS };

static int32_t linear_parameters(const linear *h, int64_t in, const tn_layer_planner *planner)
{
    int64_t shape[] = {h->out, in};
    double fan = (double)in;
    tn_weight weight = {
        sizeof weight, h->head ? TN_ROLE_HEAD : TN_ROLE_WEIGHT, "weight", 2, TN_INIT_FAN_UNIFORM, shape, 1, fan, 1, 0};
    tn_weight bias = {sizeof bias, TN_ROLE_BIAS, "bias", 1, TN_INIT_FAN_UNIFORM, shape, 1, fan, -1, 0};
    int32_t status = planner->parameter(planner->host, &weight);
    return status || !h->bias ? status : planner->parameter(planner->host, &bias);
}

static int32_t linear_infer(const void *hyper, const tn_tensor *x, int32_t inputs, const tn_layer_planner *planner,
                            tn_error *err)
{
    const linear *h = hyper;
    int64_t shape[TN_MAX_DIMS];
    int32_t status = tn_one_input("linear", x, inputs, 2, err);
    if (status)
        return status;
    if (tn_columns(x) < 1)
        return tn_fail(err, TN_E_INVALID,
                       "linear: the input has shape %s, needs at least one feature in its last extent",
                       tn_shape(x).text);
    memcpy(shape, x->shape, (size_t)x->ndim * sizeof *shape);
    shape[x->ndim - 1] = h->out;
    status = planner->output(planner->host, x->ndim, shape);
    return status ? status : linear_parameters(h, tn_columns(x), planner);
}

/* c [m, n] = op(a) op(b) + beta c, all without gaps. */
static void linear_product(const tn_layer_call *call, int64_t m, int64_t n, int64_t k, const tn_real *a,
                           int transpose_a, const tn_real *b, int transpose_b, double beta, tn_real *c)
{
    tn_gemm gemm = {.struct_size = sizeof gemm,
                    .dtype = tn_real_dtype_,
                    .transpose_a = transpose_a,
                    .transpose_b = transpose_b,
                    .m = m,
                    .n = n,
                    .k = k,
                    .alpha = 1,
                    .beta = beta,
                    .a = a,
                    .b = b,
                    .c = c,
                    .lda = transpose_a ? m : k,
                    .ldb = transpose_b ? k : n,
                    .ldc = n,
                    .count = 1};
    call->compute->gemm(call->compute->host, &gemm);
}

static void linear_forward(const tn_layer_call *call)
{
    const linear *h = call->hyper;
    int64_t in = tn_columns(call->x), out = h->out, rows = tn_extent(call->x, 0, call->x->ndim - 1);
    tn_real *y = tn_reals(call->y);
    for (int64_t r = 0; h->bias && r < rows; r++)
        memcpy(y + r * out, call->parameter[BIAS].data, (size_t)out * sizeof *y);
    linear_product(call, rows, out, in, tn_reals(call->x), 0, tn_reals(&call->parameter[WEIGHT]), 1, h->bias ? 1 : 0,
                   y);
}

/* The sum of each column, in the order of the rows. */
TN_CLONES static void linear_column_sums(int64_t rows, int64_t stride, int64_t columns, const tn_real *restrict x,
                                         double *restrict sums)
{
    for (int64_t j = 0; j < columns; j++)
        sums[j] = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < columns; j++)
            sums[j] += (double)x[r * stride + j];
}

static void linear_bias_gradient(const tn_layer_call *call, int64_t rows, int64_t out, const tn_real *dy,
                                 tn_real *gradient)
{
    enum { BLOCK = 256 };
    double sums[BLOCK];
    for (int64_t lo = 0; lo < out; lo += BLOCK) {
        int64_t columns = out - lo < BLOCK ? out - lo : BLOCK;
        linear_column_sums(rows, out, columns, dy + lo, sums);
        for (int64_t j = 0; j < columns; j++)
            gradient[lo + j] = tn_so_far(call, gradient[lo + j]) + (tn_real)sums[j];
    }
}

static void linear_backward(const tn_layer_call *call)
{
    const linear *h = call->hyper;
    int64_t in = tn_columns(call->x), out = h->out, rows = tn_extent(call->x, 0, call->x->ndim - 1);
    const tn_real *dy = tn_reals(call->dy);
    if (tn_wants_dx(call))
        linear_product(call, rows, in, out, dy, 0, tn_reals(&call->parameter[WEIGHT]), 0, 0, tn_reals(call->dx));
    if (!tn_wants_dw(call))
        return;
    linear_product(call, out, in, rows, dy, 1, tn_reals(call->x), 0, call->flags & TN_ACCUMULATE ? 1 : 0,
                   tn_reals(&call->gradient[WEIGHT]));
    if (h->bias)
        linear_bias_gradient(call, rows, out, dy, tn_reals(&call->gradient[BIAS]));
}

/* ---- derivatives along a direction ---- */

/* y~ = x~ W^T + x W~^T + b~ */
static void linear_tangent_forward(const tn_tangent_call *along)
{
    const tn_layer_call *call = along->call;
    const linear *h = call->hyper;
    int64_t in = tn_columns(call->x), out = h->out, rows = tn_extent(call->x, 0, call->x->ndim - 1);
    tn_real *y = tn_reals(along->y);
    for (int64_t r = 0; h->bias && r < rows; r++)
        memcpy(y + r * out, along->parameter[BIAS].data, (size_t)out * sizeof *y);
    linear_product(call, rows, out, in, tn_reals(call->x), 0, tn_reals(&along->parameter[WEIGHT]), 1, h->bias ? 1 : 0,
                   y);
    if (along->x->data)
        linear_product(call, rows, out, in, tn_reals(along->x), 0, tn_reals(&call->parameter[WEIGHT]), 1, 1, y);
}

/* dx~ = dy~ W + dy W~,  dW~ = dy~^T x + dy^T x~,  db~ = the sum of dy~ */
static void linear_tangent_backward(const tn_tangent_call *along)
{
    const tn_layer_call *call = along->call;
    const linear *h = call->hyper;
    int64_t in = tn_columns(call->x), out = h->out, rows = tn_extent(call->x, 0, call->x->ndim - 1);
    const tn_real *dy = tn_reals(call->dy), *dy_along = tn_reals(along->dy);
    tn_real *dx = tn_reals(along->dx), *gradient = tn_reals(&along->gradient[WEIGHT]);
    if (dx) {
        linear_product(call, rows, in, out, dy_along, 0, tn_reals(&call->parameter[WEIGHT]), 0, 0, dx);
        linear_product(call, rows, in, out, dy, 0, tn_reals(&along->parameter[WEIGHT]), 0, 1, dx);
    }
    if (!tn_wants_dw(call))
        return;
    linear_product(call, out, in, rows, dy_along, 1, tn_reals(call->x), 0, call->flags & TN_ACCUMULATE ? 1 : 0,
                   gradient);
    if (along->x->data)
        linear_product(call, out, in, rows, dy, 1, tn_reals(along->x), 0, 1, gradient);
    if (h->bias)
        linear_bias_gradient(call, rows, out, dy_along, tn_reals(&along->gradient[BIAS]));
}

static const tn_layer_tangents linear_tangents = {sizeof(tn_layer_tangents), 0, linear_tangent_forward,
                                                  linear_tangent_backward};

static const tn_layer linear_table = {.struct_size = sizeof(tn_layer),
                                      .infer = linear_infer,
                                      .forward = linear_forward,
                                      .backward = linear_backward,
                                      .tangents = &linear_tangents};

/* By columns of W^T each process computes a part of the features; by rows each takes a part, and the bias once. */
#define LINEAR_SPLIT                                                                                                   \
    TN_FACT("split", "[{\"name\":\"column\",\"parameters\":[0,0],\"x\":\"whole\",\"y\":\"last\",\"rows\":[\"out\"]},"  \
                     "{\"name\":\"row\",\"parameters\":[1,null],\"x\":\"last\",\"y\":\"partial\"}]")

TN_COMPONENT(linear, "layer", TN_LAYER, TN_REAL, HYPER, "affine map of the last extent",
             TN_AXIS("whole") TN_KEEPS("input") TN_TEXT_FACT("tap", "linear") LINEAR_SPLIT TN_FORMULA("y = x W^T + b"),
             linear_table);
TN_PLUGIN("org.tenon.linear", "0.1.0", "Apache-2.0", linear)
