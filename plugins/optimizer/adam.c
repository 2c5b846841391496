/* SPDX-License-Identifier: Apache-2.0
 *
 * Adam. Kingma and Ba, ICLR 2015, arXiv:1412.6980, Algorithm 1: eps is added after bias correction. `l2` adds
 * l2 * p to the gradient first, so it enters both moments; decoupled decay is adamw.
 */
#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1e-3, "[0, inf)", "step size")                                                                         \
    X(real, beta1, 0.9, "[0, 1)", "decay of the mean of the gradient")                                                 \
    X(real, beta2, 0.999, "[0, 1)", "decay of the mean of its square")                                                 \
    X(real, eps, 1e-8, "(0, inf)", "added to the root of the corrected second moment")                                 \
    X(real, l2, 0, "[0, inf)", "added to the gradient as l2 * p")
#define SLOTS(S)                                                                                                       \
    S(m, like, zero, signed, "mean of the gradient")                                                                   \
    S(v, like, zero, nonnegative, "mean of its square")
TN_DECLARE_RULE(adam, HYPER, SLOTS)

typedef struct {
    tn_real step, beta1, one_minus_beta1, beta2, one_minus_beta2, root_correction, eps, l2;
} adam_constants;

static void adam_begin(const adam *h, double t, adam_constants *k)
{
    k->step = (tn_real)(h->lr / (1 - pow(h->beta1, t)));
    k->beta1 = (tn_real)h->beta1;
    k->one_minus_beta1 = (tn_real)(1 - h->beta1);
    k->beta2 = (tn_real)h->beta2;
    k->one_minus_beta2 = (tn_real)(1 - h->beta2);
    k->root_correction = (tn_real)(1 / sqrt(1 - pow(h->beta2, t)));
    k->eps = (tn_real)h->eps;
    k->l2 = (tn_real)h->l2;
}

TN_BOTH tn_real adam_element(adam_constants k, tn_real p, tn_real g, tn_real *m, tn_real *v)
{
    g += k.l2 * p;
    *m = k.beta1 * *m + k.one_minus_beta1 * g;
    *v = k.beta2 * *v + k.one_minus_beta2 * g * g;
    return -(k.step * *m) / (tn_sqrt(*v) * k.root_correction + k.eps);
}

TN_ELEMENT_RULE(adam, HYPER, SLOTS, "Adaptive moments",
                TN_PAPER("arXiv:1412.6980")
                    TN_FORMULA("g += l2 p; p -= lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)"))
TN_PLUGIN("org.tenon.adam", "0.1.0", "Apache-2.0", adam)
