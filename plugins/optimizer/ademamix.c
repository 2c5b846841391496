/* SPDX-License-Identifier: Apache-2.0
 *
 * AdEMAMix: Adam with a second, much slower mean of the gradient. Pagliardini, Ablin and Grangier, arXiv:2409.03137,
 * equations 1 to 3 and the schedulers of appendix A.1: over `warmup` steps alpha grows linearly and beta3 from beta1
 * such that the mean's half-life grows linearly. The slow mean is not corrected for its start.
 */
#include <tenon/moments.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1e-3, "[0, inf)", "step size")                                                                         \
    TN_MOMENT_ROWS(X, 0.9, 0.999, 1e-8)                                                                                \
    X(real, beta3, 0.9999, "[0, 1)", "decay of the slow mean")                                                         \
    X(real, alpha, 5, "[0, inf)", "weight of the slow mean")                                                           \
    X(integer, warmup, 0, "[0, inf) steps", "steps until alpha and beta3 have these values; 0: from the first")        \
    TN_DECAY_ROW(X, 0)
#define SLOTS(S)                                                                                                       \
    TN_MOMENT_SLOTS(S)                                                                                                 \
    S(slow, like, zero, signed, "slow mean of the gradient")
TN_DECLARE_RULE(ademamix, HYPER, SLOTS)

typedef struct {
    tn_moments at;
    tn_real unbias1, alpha, beta3, rest3, lr;
    double keep;
} ademamix_constants;

/* Between two decays by half-life: at part 0 beta1, at 1 beta3. */
static double ademamix_decay(double beta1, double beta3, double part)
{
    double slow = log(beta3), fast = log(beta1);
    if (part >= 1 || beta3 <= beta1 || beta1 <= 0)
        return beta3;
    double between = exp(fast * slow / ((1 - part) * slow + part * fast));
    return between < beta3 ? between : beta3;
}

static void ademamix_begin(const ademamix *h, double t, ademamix_constants *k)
{
    double part = h->warmup > 0 && t < (double)h->warmup ? t / (double)h->warmup : 1;
    double beta3 = ademamix_decay(h->beta1, h->beta3, part);
    k->at = tn_moments_at(h->beta1, h->beta2, h->eps, t);
    k->unbias1 = (tn_real)(1 / tn_correction(h->beta1, t));
    k->alpha = (tn_real)(part * h->alpha);
    k->beta3 = (tn_real)beta3;
    k->rest3 = (tn_real)(1 - beta3);
    k->lr = (tn_real)h->lr;
    k->keep = 1 - h->lr * h->weight_decay;
}

TN_BOTH tn_real ademamix_element(ademamix_constants k, tn_real p, tn_real g, tn_real *m, tn_real *v, tn_real *slow)
{
    (void)p;
    tn_moments_add(k.at, g, m, v);
    *slow = k.beta3 * *slow + k.rest3 * g;
    return -k.lr * (k.unbias1 * *m + k.alpha * *slow) / tn_moments_root(k.at, *v);
}

static double ademamix_keep(const void *k) { return ((const ademamix_constants *)k)->keep; }

TN_ELEMENT_RULE_KEEP(ademamix, HYPER, SLOTS, "Adam with a second, slow mean",
                     TN_PAPER("arXiv:2409.03137")
                         TN_FORMULA("p = (1 - lr wd) p - lr (m / (1 - beta1^t) + alpha slow) / "
                                    "(sqrt(v / (1 - beta2^t)) + eps), slow = beta3 slow + (1 - beta3) g"),
                     ademamix_keep)
TN_PLUGIN("org.tenon.ademamix", "0.1.0", "Apache-2.0", ademamix)
