/* SPDX-License-Identifier: Apache-2.0
 *
 * Lion: the sign of an interpolated mean of gradients. Chen et al. 2023, arXiv:2302.06675, Algorithm 2.
 */
#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1e-4, "[0, inf)", "step size")                                                                         \
    X(real, beta1, 0.9, "[0, 1)", "weight of the mean in the step")                                                    \
    X(real, beta2, 0.99, "[0, 1)", "decay of the mean of the gradient")                                                \
    X(real, weight_decay, 0, "[0, inf)", "decoupled decay, multiplied by lr")
#define SLOTS(S) S(m, like, zero, signed, "mean of the gradient")
TN_DECLARE_RULE(lion, HYPER, SLOTS)

typedef struct {
    tn_real lr, beta1, beta2;
    double keep;
} lion_constants;

static void lion_begin(const lion *h, double t, lion_constants *k)
{
    (void)t;
    *k = (lion_constants){(tn_real)h->lr, (tn_real)h->beta1, (tn_real)h->beta2, 1 - h->lr * h->weight_decay};
}

TN_BOTH tn_real lion_element(lion_constants k, tn_real p, tn_real g, tn_real *m)
{
    (void)p;
    tn_real step = tn_sign(k.beta1 * *m + (1 - k.beta1) * g);
    *m = k.beta2 * *m + (1 - k.beta2) * g;
    return -k.lr * step;
}

static double lion_keep(const void *k) { return ((const lion_constants *)k)->keep; }

TN_ELEMENT_RULE_KEEP(lion, HYPER, SLOTS, "Sign of an interpolated mean of gradients",
                     TN_PAPER("arXiv:2302.06675") TN_FORMULA("p = (1 - lr wd) p - lr sign(beta1 m + (1 - beta1) g)"),
                     lion_keep)
TN_PLUGIN("org.tenon.lion", "0.1.0", "Apache-2.0", lion)
