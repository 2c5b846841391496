/* SPDX-License-Identifier: Apache-2.0
 *
 * ADOPT: Adam that normalizes each gradient by the second moment before it, and takes the mean of that. Taniguchi et
 * al., NeurIPS 2024, arXiv:2411.02853, Algorithm 2: the first step only starts the second moment; from the second on
 * the normalized gradient is clipped to (t - 1)^clip_power. There is no bias correction.
 */
#include <tenon/moments.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1e-3, "[0, inf)", "step size")                                                                         \
    X(real, beta1, 0.9, "[0, 1)", "decay of the mean of the normalized gradient")                                      \
    X(real, beta2, 0.9999, "[0, 1)", "decay of the mean of the gradient's square")                                     \
    X(real, eps, 1e-6, "(0, inf)", "least root of the second moment")                                                  \
    X(real, clip_power, 0.25, "[0, inf)", "how the clip grows; inf would be none")                                     \
    TN_DECAY_ROW(X, 0)
TN_DECLARE_RULE(adopt, HYPER, TN_MOMENT_SLOTS)

typedef struct {
    tn_real lr, beta1, rest1, beta2, rest2, eps, clip;
    double keep;
} adopt_constants;

static void adopt_begin(const adopt *h, double t, adopt_constants *k)
{
    int first = t <= 1;
    k->lr = (tn_real)(first ? 0 : h->lr);
    k->beta1 = (tn_real)h->beta1;
    k->rest1 = (tn_real)(first ? 0 : 1 - h->beta1);
    k->beta2 = (tn_real)(first ? 0 : h->beta2);
    k->rest2 = (tn_real)(first ? 1 : 1 - h->beta2);
    k->eps = (tn_real)h->eps;
    k->clip = (tn_real)pow(t - 1, h->clip_power);
    k->keep = first ? 1 : 1 - h->lr * h->weight_decay;
}

TN_BOTH tn_real adopt_element(adopt_constants k, tn_real p, tn_real g, tn_real *m, tn_real *v)
{
    tn_real root = tn_sqrt(*v), x = g / (root > k.eps ? root : k.eps);
    (void)p;
    x = x < -k.clip ? -k.clip : x > k.clip ? k.clip : x;
    *m = k.beta1 * *m + k.rest1 * x;
    *v = k.beta2 * *v + k.rest2 * g * g;
    return -k.lr * *m;
}

static double adopt_keep(const void *k) { return ((const adopt_constants *)k)->keep; }

TN_ELEMENT_RULE_KEEP(adopt, HYPER, TN_MOMENT_SLOTS, "Adam with gradients normalized first",
                     TN_PAPER("arXiv:2411.02853")
                         TN_FORMULA("x = clip(g / max(sqrt(v), eps), (t - 1)^clip_power); m = beta1 m + (1 - beta1) x; "
                                    "p = (1 - lr wd) p - lr m; then v; t = 1: v = g^2 only"),
                     adopt_keep)
TN_PLUGIN("org.tenon.adopt", "0.1.0", "Apache-2.0", adopt)
