/* SPDX-License-Identifier: Apache-2.0
 *
 * NAdamW: AdamW with Nesterov's momentum at a constant beta1. Dozat, ICLR 2016 workshop, Algorithm 2 with mu constant,
 * as optax.nadamw has it: beta1 m with the correction of t + 1, the gradient with that of t. AlgoPerf and timm divide
 * both by that of t, so their first steps are larger. With PyTorch's momentum schedule it is nadam.
 */
#include <tenon/moments.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1e-3, "[0, inf)", "step size")                                                                         \
    TN_MOMENT_ROWS(X, 0.9, 0.999, 1e-8)                                                                                \
    TN_DECAY_ROW(X, 1e-4)
TN_DECLARE_RULE(nadamw, HYPER, TN_MOMENT_SLOTS)

typedef struct {
    tn_moments at;
    tn_real of_g, of_m;
    double keep;
} nadamw_constants;

static void nadamw_begin(const nadamw *h, double t, nadamw_constants *k)
{
    k->at = tn_moments_at(h->beta1, h->beta2, h->eps, t);
    k->of_g = (tn_real)(h->lr * (1 - h->beta1) / tn_correction(h->beta1, t));
    k->of_m = (tn_real)(h->lr * h->beta1 / tn_correction(h->beta1, t + 1));
    k->keep = 1 - h->lr * h->weight_decay;
}

TN_BOTH tn_real nadamw_element(nadamw_constants k, tn_real p, tn_real g, tn_real *m, tn_real *v)
{
    (void)p;
    tn_moments_add(k.at, g, m, v);
    return -(k.of_g * g + k.of_m * *m) / tn_moments_root(k.at, *v);
}

static double nadamw_keep(const void *k) { return ((const nadamw_constants *)k)->keep; }

TN_ELEMENT_RULE_KEEP(nadamw, HYPER, TN_MOMENT_SLOTS, "AdamW with Nesterov's momentum",
                     TN_PAPER("Dozat, ICLR 2016 workshop")
                         TN_FORMULA("p = (1 - lr wd) p - lr (beta1 m / (1 - beta1^(t+1)) + (1 - beta1) g / "
                                    "(1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)"),
                     nadamw_keep)
TN_PLUGIN("org.tenon.nadamw", "0.1.0", "Apache-2.0", nadamw)
