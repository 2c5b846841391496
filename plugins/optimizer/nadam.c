/* SPDX-License-Identifier: Apache-2.0
 *
 * NAdam: Adam with Nesterov's momentum and a momentum that grows. Dozat, ICLR 2016 workshop, with the schedule of its
 * experiments and of torch.optim.NAdam: mu_t = beta1 (1 - 0.96^(t psi) / 2). Without that schedule it is nadamw.
 */
#include <tenon/moments.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 2e-3, "[0, inf)", "step size")                                                                         \
    TN_MOMENT_ROWS(X, 0.9, 0.999, 1e-8)                                                                                \
    X(fixed, momentum_decay, 4e-3, "[0, inf)", "psi: how fast the momentum grows")                                     \
    TN_DECAY_ROW(X, 0)
TN_DECLARE_RULE(nadam, HYPER, TN_MOMENT_SLOTS)

typedef struct {
    tn_moments at;
    tn_real of_g, of_m;
    double keep;
} nadam_constants;

static double nadam_mu(const nadam *h, double t) { return h->beta1 * (1 - 0.5 * pow(0.96, t * h->momentum_decay)); }

/* mu_1 ... mu_t; mu is below beta1, so few factors make it too small to matter beside 1. */
static double nadam_product(const nadam *h, double t)
{
    double product = 1;
    for (double i = 1; i <= t && product > 0x1p-60; i++)
        product *= nadam_mu(h, i);
    return product;
}

static void nadam_begin(const nadam *h, double t, nadam_constants *k)
{
    double mu = nadam_mu(h, t), next = nadam_mu(h, t + 1), product = nadam_product(h, t);
    k->at = tn_moments_at(h->beta1, h->beta2, h->eps, t);
    k->of_g = (tn_real)(h->lr * (1 - mu) / (1 - product));
    k->of_m = (tn_real)(h->lr * next / (1 - product * next));
    k->keep = 1 - h->lr * h->weight_decay;
}

TN_BOTH tn_real nadam_element(nadam_constants k, tn_real p, tn_real g, tn_real *m, tn_real *v)
{
    (void)p;
    tn_moments_add(k.at, g, m, v);
    return -(k.of_g * g + k.of_m * *m) / tn_moments_root(k.at, *v);
}

static double nadam_keep(const void *k) { return ((const nadam_constants *)k)->keep; }

TN_ELEMENT_RULE_KEEP(nadam, HYPER, TN_MOMENT_SLOTS, "Adam with Nesterov's momentum that grows",
                     TN_PAPER("Dozat, ICLR 2016 workshop")
                         TN_FORMULA("mu_t = beta1 (1 - 0.96^(t psi) / 2), P_t = mu_1 ... mu_t; p = (1 - lr wd) p - "
                                    "lr ((1 - mu_t) g / (1 - P_t) + mu_(t+1) m / (1 - P_(t+1))) / "
                                    "(sqrt(v / (1 - beta2^t)) + eps)"),
                     nadam_keep)
TN_PLUGIN("org.tenon.nadam", "0.1.0", "Apache-2.0", nadam)
