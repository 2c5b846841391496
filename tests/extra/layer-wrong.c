/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of the graph: the identity, with one fault at choice in what it plans.
 */
#include <tenon/layers.h>

#define HYPER(X)                                                                                                       \
    X(choice, fault, none,                                                                                             \
      "none | silent | no_output | two_outputs | batch | huge | strides | workspace | saved_type | ignored | twins | " \
      "nameless | initial | not_finite",                                                                               \
      "what is wrong")
TN_DECLARE(wrong, HYPER)

enum {
    NONE,
    SILENT,
    NO_OUTPUT,
    TWO_OUTPUTS,
    BATCH,
    HUGE_SHAPE,
    STRIDES,
    WORKSPACE,
    SAVED_TYPE,
    IGNORED,
    TWINS,
    NAMELESS,
    INITIAL,
    NOT_FINITE
};

static int32_t plan_fault(int64_t fault, const tn_layer_planner *p)
{
    static const int64_t huge[] = {(int64_t)1 << 41}, strides[] = {0, (int64_t)1 << 62, (int64_t)1 << 62}, one[] = {1};
    tn_weight weight = {sizeof weight, TN_ROLE_WEIGHT, "weight", 1, TN_INIT_CONSTANT, one, 0, 0, -1, -1};
    switch (fault) {
    case HUGE_SHAPE:
        weight.shape = huge;
        return p->parameter(p->host, &weight);
    case STRIDES:
        return p->saved(p->host, (tn_dtype){0, 0, 0}, 3, strides);
    case WORKSPACE:
        return p->workspace(p->host, (int64_t)1 << 62);
    case SAVED_TYPE:
        return p->saved(p->host, (tn_dtype){TN_UINT, 1, 1}, 1, one);
    case IGNORED: /* goes on as if nothing had been refused */
        p->buffer(p->host, "state", 1, huge, 0);
        return TN_OK;
    case TWINS:
        p->parameter(p->host, &weight);
        return p->parameter(p->host, &weight);
    case NAMELESS:
        weight.name = "";
        return p->parameter(p->host, &weight);
    case INITIAL:
        weight.init = 99;
        return p->parameter(p->host, &weight);
    case NOT_FINITE:
        weight.a = INFINITY;
        return p->parameter(p->host, &weight);
    default:
        return TN_OK;
    }
}

static int32_t wrong_infer(const void *hyper, const tn_tensor *x, int32_t inputs, const tn_layer_planner *p,
                           tn_error *err)
{
    int64_t fault = ((const wrong *)hyper)->fault, shape[] = {x->shape[0] + 1, x->shape[1]};
    (void)inputs;
    (void)err;
    if (fault == SILENT)
        return TN_E_INVALID;
    if (fault == NO_OUTPUT)
        return TN_OK;
    if (fault == BATCH)
        return p->output(p->host, 2, shape);
    int32_t status = p->output(p->host, x->ndim, x->shape);
    if (!status && fault == TWO_OUTPUTS)
        status = p->output(p->host, x->ndim, x->shape);
    return status ? status : plan_fault(fault, p);
}

static void wrong_forward(const tn_layer_call *call)
{
    memcpy((tn_real *)call->y->data + call->lo, (const tn_real *)call->x->data + call->lo,
           (size_t)call->n * sizeof(tn_real));
}

static void wrong_backward(const tn_layer_call *call)
{
    if (call->dx->data)
        memcpy((tn_real *)call->dx->data + call->lo, (const tn_real *)call->dy->data + call->lo,
               (size_t)call->n * sizeof(tn_real));
}

static const tn_layer wrong_table = {
    .struct_size = sizeof(tn_layer), .infer = wrong_infer, .forward = wrong_forward, .backward = wrong_backward};
TN_COMPONENT(wrong, "activation", TN_LAYER, TN_REAL, HYPER, "Identity with a fault",
             TN_AXIS("elements") TN_KEEPS("none"), wrong_table);
TN_PLUGIN("org.tenon.test.wrong", "0.1.0", "Apache-2.0", wrong)
