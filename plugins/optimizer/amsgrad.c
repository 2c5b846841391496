/* SPDX-License-Identifier: Apache-2.0
 *
 * AMSGrad: Adam that divides by the largest second moment so far. Reddi, Kale and Kumar, ICLR 2018, arXiv:1904.09237,
 * Algorithm 2, with the bias corrections of PyTorch's Adam(amsgrad=True): the largest is taken before the correction.
 */
#include <tenon/moments.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1e-3, "[0, inf)", "step size")                                                                         \
    TN_MOMENT_ROWS(X, 0.9, 0.999, 1e-8)                                                                                \
    TN_DECAY_ROW(X, 0)
#define SLOTS(S)                                                                                                       \
    TN_MOMENT_SLOTS(S)                                                                                                 \
    S(largest, like, zero, nonnegative, "largest mean of the square so far")
TN_DECLARE_RULE(amsgrad, HYPER, SLOTS)

typedef struct {
    tn_moments at;
    tn_real step;
    double keep;
} amsgrad_constants;

static void amsgrad_begin(const amsgrad *h, double t, amsgrad_constants *k)
{
    k->at = tn_moments_at(h->beta1, h->beta2, h->eps, t);
    k->step = (tn_real)(h->lr / tn_correction(h->beta1, t));
    k->keep = 1 - h->lr * h->weight_decay;
}

TN_BOTH tn_real amsgrad_element(amsgrad_constants k, tn_real p, tn_real g, tn_real *m, tn_real *v, tn_real *largest)
{
    (void)p;
    tn_moments_add(k.at, g, m, v);
    *largest = *largest >= *v ? *largest : *v; /* a NaN of v stays */
    return -(k.step * *m) / tn_moments_root(k.at, *largest);
}

static double amsgrad_keep(const void *k) { return ((const amsgrad_constants *)k)->keep; }

TN_ELEMENT_RULE_KEEP(amsgrad, HYPER, SLOTS, "Adam over the largest second moment",
                     TN_PAPER("arXiv:1904.09237")
                         TN_FORMULA("u = max(u, v); p = (1 - lr wd) p - lr (m / (1 - beta1^t)) / "
                                    "(sqrt(u / (1 - beta2^t)) + eps)"),
                     amsgrad_keep)
TN_PLUGIN("org.tenon.amsgrad", "0.1.0", "Apache-2.0", amsgrad)
