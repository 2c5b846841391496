/* SPDX-License-Identifier: Apache-2.0
 *
 * SGD: stochastic gradient descent with momentum, in PyTorch's convention (torch.optim.SGD): the step is lr times the
 * buffer b <- momentum * b + (1 - dampening) * g, and b starts as the first gradient, without dampening.
 * `l2` adds l2 * p to the gradient; `weight_decay` is decoupled: p <- (1 - lr * weight_decay) p first (Loshchilov and
 * Hutter, arXiv:1711.05101, SGDW in PyTorch's convention).
 * Nesterov's look-ahead after Sutskever et al., ICML 2013: the step is lr * (g + momentum * b) with the new b.
 *
 * Momentum 0 plans no buffer, so a schedule that is to raise the momentum starts from a value above 0.
 */
#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1e-3, "[0, inf)", "step size")                                                                         \
    X(real, momentum, 0, "[0, 1)", "decay of the buffer; 0: none")                                                     \
    X(fixed, dampening, 0, "[0, 1]", "what a new gradient loses before it enters the buffer")                          \
    X(flag, nesterov, false, "", "step from where the momentum leads; needs momentum and no dampening")                \
    X(real, l2, 0, "[0, inf)", "added to the gradient as l2 * p")                                                      \
    X(real, weight_decay, 0, "[0, inf)", "decoupled decay, multiplied by lr")
#define SLOTS(S) S(momentum_buffer, like, zero, signed, "the sum of decayed gradients; only if momentum is not 0")
TN_DECLARE_RULE(sgd, HYPER, SLOTS)

typedef struct {
    tn_real lr, l2, decay, gain, momentum;
    double keep;
    int32_t nesterov;
} sgd_constants;

static int32_t sgd_plan(const tn_parameter *parameter, const void *hyper, const tn_slot_planner *planner, tn_error *err)
{
    static const tn_slot buffer = {sizeof(tn_slot), 0, "momentum_buffer", "like", "zero", "", NULL};
    const sgd *h = (const sgd *)hyper;
    (void)parameter;
    if (h->nesterov && !(h->momentum > 0 && h->dampening == 0))
        return tn_fail(err, TN_E_INVALID,
                       "sgd: nesterov needs momentum > 0 and dampening 0, found momentum %g and dampening %g; change "
                       "them or set nesterov: false",
                       h->momentum, h->dampening);
    return h->momentum > 0 ? planner->slot(planner->host, &buffer) : TN_OK;
}

static void sgd_begin(const void *hyper, const tn_clock *clock, void *constants)
{
    const sgd *h = (const sgd *)hyper;
    sgd_constants *k = (sgd_constants *)constants;
    k->lr = (tn_real)h->lr;
    k->l2 = (tn_real)h->l2;
    k->decay = clock->t == 1 ? 0 : (tn_real)h->momentum;
    k->gain = clock->t == 1 ? 1 : (tn_real)(1 - h->dampening);
    k->momentum = (tn_real)h->momentum;
    k->keep = 1 - h->lr * h->weight_decay;
    k->nesterov = (int32_t)h->nesterov;
}

TN_BOTH tn_real sgd_plain_element(sgd_constants k, tn_real p, tn_real g) { return -k.lr * (g + k.l2 * p); }

TN_BOTH tn_real sgd_element(sgd_constants k, tn_real p, tn_real g, tn_real *b)
{
    g += k.l2 * p;
    *b = k.decay * *b + k.gain * g;
    return -k.lr * (k.nesterov ? g + k.momentum * *b : *b);
}

TN_ELEMENT_UPDATE(sgd_plain, sgd_plain_element, sgd_constants, sgd_slots, TN_NO_SLOTS)
TN_ELEMENT_UPDATE(sgd_buffered, sgd_element, sgd_constants, sgd_slots, SLOTS)

static void sgd_update(const tn_piece *piece)
{
    if (piece->slot)
        sgd_buffered_update(piece);
    else
        sgd_plain_update(piece);
}

static double sgd_keep(const void *k) { return ((const sgd_constants *)k)->keep; }

static const tn_optimizer sgd_table = {.struct_size = sizeof(tn_optimizer),
                                       .constants_bytes = (uint32_t)sizeof(sgd_constants),
                                       .plan = sgd_plan,
                                       .begin = sgd_begin,
                                       .update = sgd_update,
                                       .keep = sgd_keep};
TN_LINK(sgd, "optimizer", HYPER, SLOTS, "Gradient descent with momentum",
        TN_STAGE("rule") TN_GRAIN("element") TN_PAPER("Sutskever et al., ICML 2013")
            TN_FORMULA("g += l2 p; b = momentum b + (1 - dampening) g, first b = g; p = (1 - lr wd) p - lr b, "
                       "nesterov: lr (g + momentum b)"),
        sgd_table)
TN_PLUGIN("org.tenon.sgd", "0.1.0", "Apache-2.0", sgd)
