/* SPDX-License-Identifier: Apache-2.0
 *
 * SGDW: momentum with decoupled weight decay. Loshchilov and Hutter, ICLR 2019, arXiv:1711.05101, Algorithm 1. The step
 * size is within the buffer, b <- momentum b + lr g, so a schedule of lr reaches the steps only as the buffer turns
 * over; with it outside, PyTorch's convention, the rule is sgd. `decay: paper` is Algorithm 1, p <- (1 - weight_decay)
 * p: schedule weight_decay like lr; `decay: torch` multiplies it by lr.
 */
#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1e-3, "[0, inf)", "step size")                                                                         \
    X(real, momentum, 0.9, "[0, 1)", "decay of the buffer")                                                            \
    X(real, weight_decay, 1e-2, "[0, inf)", "decoupled decay")                                                         \
    X(choice, decay, torch, "torch | paper", "torch: multiplied by lr; paper: not")
#define SLOTS(S) S(buffer, like, zero, signed, "the sum of decayed steps")
TN_DECLARE_RULE(sgdw, HYPER, SLOTS)

typedef struct {
    tn_real lr, momentum;
    double keep;
} sgdw_constants;

static void sgdw_begin(const sgdw *h, double t, sgdw_constants *k)
{
    (void)t;
    k->lr = (tn_real)h->lr;
    k->momentum = (tn_real)h->momentum;
    k->keep = 1 - (h->decay == 0 ? h->lr : 1) * h->weight_decay;
}

TN_BOTH tn_real sgdw_element(sgdw_constants k, tn_real p, tn_real g, tn_real *buffer)
{
    (void)p;
    *buffer = k.momentum * *buffer + k.lr * g;
    return -*buffer;
}

static double sgdw_keep(const void *k) { return ((const sgdw_constants *)k)->keep; }

TN_ELEMENT_RULE_KEEP(sgdw, HYPER, SLOTS, "Momentum with decoupled weight decay",
                     TN_PAPER("arXiv:1711.05101") TN_FORMULA("b = momentum b + lr g; p = (1 - lr wd) p - b"), sgdw_keep)
TN_PLUGIN("org.tenon.sgdw", "0.1.0", "Apache-2.0", sgdw)
