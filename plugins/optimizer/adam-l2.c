/* SPDX-License-Identifier: Apache-2.0
 *
 * Adam with an L2 penalty in the loss: l2 * p is added to the gradient and so enters both moments, where large second
 * moments weaken it; what Loshchilov and Hutter, arXiv:1711.05101, Algorithm 2, set decoupled decay (adamw) against.
 */
#include <tenon/moments.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1e-3, "[0, inf)", "step size")                                                                         \
    TN_MOMENT_ROWS(X, 0.9, 0.999, 1e-8)                                                                                \
    X(real, l2, 1e-2, "[0, inf)", "added to the gradient as l2 * p")
TN_DECLARE_RULE(adam_l2, HYPER, TN_MOMENT_SLOTS)

typedef struct {
    tn_moments at;
    tn_real step, l2;
} adam_l2_constants;

static void adam_l2_begin(const adam_l2 *h, double t, adam_l2_constants *k)
{
    k->at = tn_moments_at(h->beta1, h->beta2, h->eps, t);
    k->step = (tn_real)(h->lr / tn_correction(h->beta1, t));
    k->l2 = (tn_real)h->l2;
}

TN_BOTH tn_real adam_l2_element(adam_l2_constants k, tn_real p, tn_real g, tn_real *m, tn_real *v)
{
    tn_moments_add(k.at, g + k.l2 * p, m, v);
    return -(k.step * *m) / tn_moments_root(k.at, *v);
}

TN_ELEMENT_RULE(adam_l2, HYPER, TN_MOMENT_SLOTS, "Adam with an L2 penalty",
                TN_PAPER("arXiv:1412.6980")
                    TN_FORMULA("g += l2 p; p -= lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)"))
TN_PLUGIN("org.tenon.adam-l2", "0.1.0", "Apache-2.0", adam_l2)
