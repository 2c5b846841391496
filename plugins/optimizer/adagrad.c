/* SPDX-License-Identifier: Apache-2.0
 *
 * Adagrad. Duchi, Hazan and Singer, JMLR 12 (2011), diagonal form, in the convention of torch.optim.Adagrad: the step
 * size is lr / (1 + (t - 1) lr_decay) and eps is added to the root. `initial` is what the sum of squares starts with.
 */
#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1e-2, "[0, inf)", "step size")                                                                         \
    X(fixed, lr_decay, 0, "[0, inf)", "how fast the step size falls, a step")                                          \
    X(fixed, initial, 0, "[0, inf)", "what the sum of squares starts with")                                            \
    X(real, eps, 1e-10, "(0, inf)", "added to the root of the sum")                                                    \
    X(real, l2, 0, "[0, inf)", "added to the gradient as l2 * p")
#define SLOTS(S) S(sum, like, zero, nonnegative, "sum of the gradient's square, without `initial`")
TN_DECLARE_RULE(adagrad, HYPER, SLOTS)

typedef struct {
    tn_real lr, initial, eps, l2;
} adagrad_constants;

static void adagrad_begin(const adagrad *h, double t, adagrad_constants *k)
{
    k->lr = (tn_real)(h->lr / (1 + (t - 1) * h->lr_decay));
    k->initial = (tn_real)h->initial;
    k->eps = (tn_real)h->eps;
    k->l2 = (tn_real)h->l2;
}

TN_BOTH tn_real adagrad_element(adagrad_constants k, tn_real p, tn_real g, tn_real *sum)
{
    g += k.l2 * p;
    *sum += g * g;
    return -(k.lr * g) / (tn_sqrt(k.initial + *sum) + k.eps);
}

TN_ELEMENT_RULE(adagrad, HYPER, SLOTS, "Steps over the root of all squares",
                TN_PAPER("Duchi et al., JMLR 12, 2011")
                    TN_FORMULA("g += l2 p; s += g^2; p -= lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps)"))
TN_PLUGIN("org.tenon.adagrad", "0.1.0", "Apache-2.0", adagrad)
