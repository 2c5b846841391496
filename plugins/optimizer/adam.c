/* SPDX-License-Identifier: Apache-2.0
 *
 * Adam. Kingma and Ba, ICLR 2015, arXiv:1412.6980, Algorithm 1: eps is added after bias correction. With decay that
 * enters the moments it is adam-l2, with decoupled decay adamw.
 */
#include <tenon/moments.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1e-3, "[0, inf)", "step size")                                                                         \
    TN_MOMENT_ROWS(X, 0.9, 0.999, 1e-8)
TN_DECLARE_RULE(adam, HYPER, TN_MOMENT_SLOTS)

typedef struct {
    tn_moments at;
    tn_real step;
} adam_constants;

static void adam_begin(const adam *h, double t, adam_constants *k)
{
    k->at = tn_moments_at(h->beta1, h->beta2, h->eps, t);
    k->step = (tn_real)(h->lr / tn_correction(h->beta1, t));
}

TN_BOTH tn_real adam_element(adam_constants k, tn_real p, tn_real g, tn_real *m, tn_real *v)
{
    (void)p;
    tn_moments_add(k.at, g, m, v);
    return -(k.step * *m) / tn_moments_root(k.at, *v);
}

TN_ELEMENT_RULE(adam, HYPER, TN_MOMENT_SLOTS, "Adaptive moments",
                TN_PAPER("arXiv:1412.6980") TN_FORMULA("p -= lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)"))
TN_PLUGIN("org.tenon.adam", "0.1.0", "Apache-2.0", adam)
