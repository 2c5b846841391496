/* SPDX-License-Identifier: Apache-2.0
 *
 * AdamW: Adam with decoupled weight decay. Loshchilov and Hutter, ICLR 2019, arXiv:1711.05101, Algorithm 2. The paper
 * has a step size and a schedule that multiplies both it and the decay; here `lr` is their product. `decay: torch`,
 * PyTorch's convention, is p <- (1 - lr * weight_decay) p, so a schedule of lr moves both. `decay: paper` is
 * p <- (1 - weight_decay) p: to follow the paper, schedule lr and weight_decay alike.
 */
#include <tenon/moments.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1e-3, "[0, inf)", "step size")                                                                         \
    TN_MOMENT_ROWS(X, 0.9, 0.999, 1e-8)                                                                                \
    X(real, weight_decay, 1e-2, "[0, inf)", "decoupled decay")                                                         \
    X(choice, decay, torch, "torch | paper", "torch: multiplied by lr; paper: not")
TN_DECLARE_RULE(adamw, HYPER, TN_MOMENT_SLOTS)

typedef struct {
    tn_moments at;
    tn_real step;
    double keep;
} adamw_constants;

static void adamw_begin(const adamw *h, double t, adamw_constants *k)
{
    k->at = tn_moments_at(h->beta1, h->beta2, h->eps, t);
    k->step = (tn_real)(h->lr / tn_correction(h->beta1, t));
    k->keep = 1 - (h->decay == 0 ? h->lr : 1) * h->weight_decay;
}

TN_BOTH tn_real adamw_element(adamw_constants k, tn_real p, tn_real g, tn_real *m, tn_real *v)
{
    (void)p;
    tn_moments_add(k.at, g, m, v);
    return -(k.step * *m) / tn_moments_root(k.at, *v);
}

static double adamw_keep(const void *k) { return ((const adamw_constants *)k)->keep; }

TN_ELEMENT_RULE_KEEP(adamw, HYPER, TN_MOMENT_SLOTS, "Adam with decoupled weight decay",
                     TN_PAPER("arXiv:1711.05101")
                         TN_FORMULA("p = (1 - lr wd) p - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)"),
                     adamw_keep)
TN_PLUGIN("org.tenon.adamw", "0.1.0", "Apache-2.0", adamw)
