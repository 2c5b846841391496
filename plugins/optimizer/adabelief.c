/* SPDX-License-Identifier: Apache-2.0
 *
 * AdaBelief: Adam that divides by how far gradients are from their mean. Zhuang et al., NeurIPS 2020, arXiv:2010.07468,
 * Algorithm 2: eps is added to the second moment in every step, and once more to its corrected root.
 */
#include <tenon/moments.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1e-3, "[0, inf)", "step size")                                                                         \
    X(real, beta1, 0.9, "[0, 1)", "decay of the mean of the gradient")                                                 \
    X(real, beta2, 0.999, "[0, 1)", "decay of the mean of the deviation's square")                                     \
    X(real, eps, 1e-16, "(0, inf)", "added to the second moment in every step, and to its corrected root")             \
    TN_DECAY_ROW(X, 0)
#define SLOTS(S)                                                                                                       \
    S(m, like, zero, signed, "mean of the gradient")                                                                   \
    S(s, like, zero, nonnegative, "mean of its deviation's square, eps in it")
TN_DECLARE_RULE(adabelief, HYPER, SLOTS)

typedef struct {
    tn_moments at;
    tn_real step;
    double keep;
} adabelief_constants;

static void adabelief_begin(const adabelief *h, double t, adabelief_constants *k)
{
    k->at = tn_moments_at(h->beta1, h->beta2, h->eps, t);
    k->step = (tn_real)(h->lr / tn_correction(h->beta1, t));
    k->keep = 1 - h->lr * h->weight_decay;
}

TN_BOTH tn_real adabelief_element(adabelief_constants k, tn_real p, tn_real g, tn_real *m, tn_real *s)
{
    (void)p;
    *m = k.at.beta1 * *m + k.at.rest1 * g;
    *s = k.at.beta2 * *s + k.at.rest2 * (g - *m) * (g - *m) + k.at.eps;
    return -(k.step * *m) / tn_moments_root(k.at, *s);
}

static double adabelief_keep(const void *k) { return ((const adabelief_constants *)k)->keep; }

TN_ELEMENT_RULE_KEEP(adabelief, HYPER, SLOTS, "Adam over the deviation of gradients",
                     TN_PAPER("arXiv:2010.07468")
                         TN_FORMULA("s = beta2 s + (1 - beta2) (g - m)^2 + eps; p = (1 - lr wd) p - "
                                    "lr (m / (1 - beta1^t)) / (sqrt(s / (1 - beta2^t)) + eps)"),
                     adabelief_keep)
TN_PLUGIN("org.tenon.adabelief", "0.1.0", "Apache-2.0", adabelief)
