/* SPDX-License-Identifier: Apache-2.0
 *
 * Adadelta. Zeiler, arXiv:1212.5701, Algorithm 1, with a step size as in torch.optim.Adadelta; the paper's is 1.
 */
#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1, "[0, inf)", "what the paper's step is multiplied by")                                               \
    X(real, rho, 0.9, "[0, 1)", "decay of both means")                                                                 \
    X(real, eps, 1e-6, "(0, inf)", "added to both means under their roots")                                            \
    X(real, l2, 0, "[0, inf)", "added to the gradient as l2 * p")
#define SLOTS(S)                                                                                                       \
    S(square, like, zero, nonnegative, "mean of the gradient's square")                                                \
    S(step, like, zero, nonnegative, "mean of the step's square")
TN_DECLARE_RULE(adadelta, HYPER, SLOTS)

typedef struct {
    tn_real lr, rho, rest, eps, l2;
} adadelta_constants;

static void adadelta_begin(const adadelta *h, double t, adadelta_constants *k)
{
    (void)t;
    k->lr = (tn_real)h->lr;
    k->rho = (tn_real)h->rho;
    k->rest = (tn_real)(1 - h->rho);
    k->eps = (tn_real)h->eps;
    k->l2 = (tn_real)h->l2;
}

TN_BOTH tn_real adadelta_element(adadelta_constants k, tn_real p, tn_real g, tn_real *square, tn_real *step)
{
    g += k.l2 * p;
    *square = k.rho * *square + k.rest * g * g;
    tn_real d = tn_sqrt((*step + k.eps) / (*square + k.eps)) * g;
    *step = k.rho * *step + k.rest * d * d;
    return -k.lr * d;
}

TN_ELEMENT_RULE(adadelta, HYPER, SLOTS, "Steps in the parameter's own unit",
                TN_PAPER("arXiv:1212.5701")
                    TN_FORMULA("g += l2 p; s = rho s + (1 - rho) g^2; d = sqrt((u + eps) / (s + eps)) g; "
                               "u = rho u + (1 - rho) d^2; p -= lr d"))
TN_PLUGIN("org.tenon.adadelta", "0.1.0", "Apache-2.0", adadelta)
