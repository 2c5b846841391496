/* SPDX-License-Identifier: Apache-2.0
 *
 * AdaMax: Adam with the infinity norm. Kingma and Ba, arXiv:1412.6980, Algorithm 2, with eps inside the maximum, as in
 * torch.optim.Adamax: u = max(beta2 u, |g| + eps).
 */
#include <tenon/moments.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 2e-3, "[0, inf)", "step size")                                                                         \
    TN_MOMENT_ROW_1(X, 0.9)                                                                                            \
    X(real, beta2, 0.999, "[0, 1)", "decay of the largest gradient")                                                   \
    X(real, eps, 1e-8, "(0, inf)", "added to each gradient's size")                                                    \
    TN_DECAY_ROW(X, 0)
#define SLOTS(S)                                                                                                       \
    S(m, like, zero, signed, "mean of the gradient")                                                                   \
    S(u, like, zero, nonnegative, "decayed largest size of the gradient")
TN_DECLARE_RULE(adamax, HYPER, SLOTS)

typedef struct {
    tn_real beta1, rest1, beta2, eps, step;
    double keep;
} adamax_constants;

static void adamax_begin(const adamax *h, double t, adamax_constants *k)
{
    k->beta1 = (tn_real)h->beta1;
    k->rest1 = (tn_real)(1 - h->beta1);
    k->beta2 = (tn_real)h->beta2;
    k->eps = (tn_real)h->eps;
    k->step = (tn_real)(h->lr / tn_correction(h->beta1, t));
    k->keep = 1 - h->lr * h->weight_decay;
}

TN_BOTH tn_real adamax_element(adamax_constants k, tn_real p, tn_real g, tn_real *m, tn_real *u)
{
    tn_real size = tn_abs(g) + k.eps, decayed = k.beta2 * *u;
    (void)p;
    *m = k.beta1 * *m + k.rest1 * g;
    *u = decayed >= size ? decayed : size; /* a NaN of g stays */
    return -(k.step * *m) / *u;
}

static double adamax_keep(const void *k) { return ((const adamax_constants *)k)->keep; }

TN_ELEMENT_RULE_KEEP(adamax, HYPER, SLOTS, "Adam with the infinity norm",
                     TN_PAPER("arXiv:1412.6980") TN_FORMULA("u = max(beta2 u, |g| + eps); p = (1 - lr wd) p - "
                                                            "lr m / ((1 - beta1^t) u)"),
                     adamax_keep)
TN_PLUGIN("org.tenon.adamax", "0.1.0", "Apache-2.0", adamax)
