/* SPDX-License-Identifier: Apache-2.0
 *
 * Adan: Nesterov momentum from differences of gradients. Xie, Zhou, Li, Lin and Yan, arXiv:2208.06677, Algorithm 1. The
 * betas are those that means keep, as in the authors' program; the paper writes 1 minus them. The first difference is
 * 0. Its decay is proximal, p <- (p - d) / (1 + lr wd).
 */
#include <tenon/moments.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1e-3, "[0, inf)", "step size")                                                                         \
    X(real, beta1, 0.98, "[0, 1)", "decay of the mean of the gradient")                                                \
    X(real, beta2, 0.92, "[0, 1)", "decay of the mean of its difference")                                              \
    X(real, beta3, 0.99, "[0, 1)", "decay of the mean of the extrapolated gradient's square")                          \
    X(real, eps, 1e-8, "(0, inf)", "added to the root of the corrected second moment")                                 \
    X(real, weight_decay, 0, "[0, inf)", "proximal decay, multiplied by lr")
#define SLOTS(S)                                                                                                       \
    S(m, like, zero, signed, "mean of the gradient")                                                                   \
    S(difference, like, zero, signed, "mean of its difference")                                                        \
    S(n, like, zero, nonnegative, "mean of the square of g + beta2 (g - last)")                                        \
    S(last, like, zero, signed, "last gradient")
TN_DECLARE_RULE(adan, HYPER, SLOTS)

typedef struct {
    tn_real beta1, rest1, beta2, rest2, beta3, rest3, unbias3, eps;
    tn_real of_m, of_difference, later; /* later: 0 in the first step */
    double keep;
} adan_constants;

static void adan_begin(const adan *h, double t, adan_constants *k)
{
    k->keep = 1 / (1 + h->lr * h->weight_decay);
    k->beta1 = (tn_real)h->beta1;
    k->rest1 = (tn_real)(1 - h->beta1);
    k->beta2 = (tn_real)h->beta2;
    k->rest2 = (tn_real)(1 - h->beta2);
    k->beta3 = (tn_real)h->beta3;
    k->rest3 = (tn_real)(1 - h->beta3);
    k->unbias3 = (tn_real)(1 / sqrt(tn_correction(h->beta3, t)));
    k->eps = (tn_real)h->eps;
    k->of_m = (tn_real)(k->keep * h->lr / tn_correction(h->beta1, t));
    k->of_difference = (tn_real)(k->keep * h->lr * h->beta2 / tn_correction(h->beta2, t));
    k->later = t > 1;
}

TN_BOTH tn_real adan_element(adan_constants k, tn_real p, tn_real g, tn_real *m, tn_real *difference, tn_real *n,
                             tn_real *last)
{
    tn_real change = k.later * (g - *last), ahead = g + k.beta2 * change;
    (void)p;
    *m = k.beta1 * *m + k.rest1 * g;
    *difference = k.beta2 * *difference + k.rest2 * change;
    *n = k.beta3 * *n + k.rest3 * ahead * ahead;
    *last = g;
    return -(k.of_m * *m + k.of_difference * *difference) / (tn_sqrt(*n) * k.unbias3 + k.eps);
}

static double adan_keep(const void *k) { return ((const adan_constants *)k)->keep; }

TN_ELEMENT_RULE_KEEP(adan, HYPER, SLOTS, "Nesterov momentum from differences of gradients",
                     TN_PAPER("arXiv:2208.06677")
                         TN_FORMULA("m = mean of g, u of g - last, n of (g + beta2 (g - last))^2; p = (p - lr "
                                    "(m/c1 + beta2 u/c2) / (sqrt(n/c3) + eps)) / (1 + lr wd)"),
                     adan_keep)
TN_PLUGIN("org.tenon.adan", "0.1.0", "Apache-2.0", adan)
