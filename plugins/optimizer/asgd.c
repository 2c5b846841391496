/* SPDX-License-Identifier: Apache-2.0
 *
 * ASGD: SGD whose evaluation view is the average of its iterates. Polyak and Juditsky, SIAM J. Control Optim. 30
 * (1992), in the convention of torch.optim.ASGD: the step size falls as (1 + lambda lr (t - 1))^-alpha, p also decays
 * by lambda times it, and averaging begins at step `from`; until then the average is p.
 */
#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1e-2, "[0, inf)", "first step size")                                                                   \
    X(fixed, lambda, 1e-4, "[0, inf)", "decay of p, and of the step size")                                             \
    X(fixed, alpha, 0.75, "[0, inf)", "power of the step size's fall")                                                 \
    X(fixed, from, 1e6, "[0, inf) steps", "when averaging begins")                                                     \
    X(real, l2, 0, "[0, inf)", "added to the gradient as l2 * p")
#define SLOTS(S) S(average, like, parameter, signed, "average of p, read by evaluations")
TN_DECLARE_RULE(asgd, HYPER, SLOTS)

typedef struct {
    tn_real lr, l2, keep_real, mu;
    double keep;
} asgd_constants;

static void asgd_begin(const asgd *h, double t, asgd_constants *k)
{
    double lr = h->lr / pow(1 + h->lambda * h->lr * (t - 1), h->alpha), averaged = t - 1 - h->from;
    k->lr = (tn_real)lr;
    k->l2 = (tn_real)h->l2;
    k->mu = (tn_real)(averaged > 1 ? 1 / averaged : 1);
    k->keep = 1 - h->lambda * lr;
    k->keep_real = (tn_real)k->keep;
}

/* The average is of what p becomes. */
TN_BOTH tn_real asgd_element(asgd_constants k, tn_real p, tn_real g, tn_real *average)
{
    tn_real d = -k.lr * (g + k.l2 * p), next = k.keep_real * p + d;
    *average = k.mu < 1 ? *average + k.mu * (next - *average) : next;
    return d;
}

static double asgd_keep(const void *k) { return ((const asgd_constants *)k)->keep; }

TN_ELEMENT_RULE_KEEP(asgd, HYPER, SLOTS, "SGD with the average of its iterates",
                     TN_VIEW(average) TN_PAPER("Polyak and Juditsky, 1992")
                         TN_FORMULA("p = (1 - lambda lr_t) p - lr_t g, lr_t = lr (1 + lambda lr (t - 1))^-alpha; "
                                    "average += (p - average) / max(1, t - 1 - from)"),
                     asgd_keep)
TN_PLUGIN("org.tenon.asgd", "0.1.0", "Apache-2.0", asgd)
