/* SPDX-License-Identifier: Apache-2.0
 *
 * AdamW: Adam with decoupled weight decay. Loshchilov and Hutter, ICLR 2019, arXiv:1711.05101, Algorithm 2, in
 * PyTorch's convention: the decay is multiplied by the learning rate, p <- (1 - lr * weight_decay) p.
 * eps is added after bias correction (Kingma and Ba, arXiv:1412.6980, Algorithm 1).
 */
#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1e-3, "[0, inf)", "step size")                                                                         \
    X(real, beta1, 0.9, "[0, 1)", "decay of the mean of the gradient")                                                 \
    X(real, beta2, 0.999, "[0, 1)", "decay of the mean of its square")                                                 \
    X(real, eps, 1e-8, "(0, inf)", "added to the root of the corrected second moment")                                 \
    X(real, weight_decay, 1e-2, "[0, inf)", "decoupled decay, multiplied by lr")
#define SLOTS(S)                                                                                                       \
    S(m, like, zero, signed, "mean of the gradient")                                                                   \
    S(v, like, zero, nonnegative, "mean of its square")
TN_DECLARE_RULE(adamw, HYPER, SLOTS)

typedef struct {
    tn_real step, beta1, one_minus_beta1, beta2, one_minus_beta2, root_correction, eps;
    double keep;
} adamw_constants;

static void adamw_begin(const adamw *h, double t, adamw_constants *k)
{
    k->step = (tn_real)(h->lr / (1 - pow(h->beta1, t)));
    k->beta1 = (tn_real)h->beta1;
    k->one_minus_beta1 = (tn_real)(1 - h->beta1);
    k->beta2 = (tn_real)h->beta2;
    k->one_minus_beta2 = (tn_real)(1 - h->beta2);
    k->root_correction = (tn_real)(1 / sqrt(1 - pow(h->beta2, t)));
    k->eps = (tn_real)h->eps;
    k->keep = 1 - h->lr * h->weight_decay;
}

TN_BOTH tn_real adamw_element(adamw_constants k, tn_real p, tn_real g, tn_real *m, tn_real *v)
{
    (void)p;
    *m = k.beta1 * *m + k.one_minus_beta1 * g;
    *v = k.beta2 * *v + k.one_minus_beta2 * g * g;
    return -(k.step * *m) / (tn_sqrt(*v) * k.root_correction + k.eps);
}

static double adamw_keep(const void *k) { return ((const adamw_constants *)k)->keep; }

TN_ELEMENT_RULE_KEEP(adamw, HYPER, SLOTS, "Adam with decoupled weight decay",
                     TN_PAPER("arXiv:1711.05101")
                         TN_FORMULA("p = (1 - lr wd) p - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)"),
                     adamw_keep)
TN_PLUGIN("org.tenon.adamw", "0.1.0", "Apache-2.0", adamw)
