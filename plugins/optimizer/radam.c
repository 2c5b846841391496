/* SPDX-License-Identifier: Apache-2.0
 *
 * RAdam: Adam whose adaptive step waits until its variance is bounded. Liu et al., ICLR 2020, arXiv:1908.03265,
 * Algorithm 2. rho_t is the length of the simple average that the second moment amounts to; above `threshold` the step
 * is rectified, below it is momentum alone. Two conventions are in use: the paper's is `threshold: 4`, PyTorch's 5, the
 * default here; the authors' program leaves steps below its threshold of 5 out, decay too: `below: skip`. For any
 * beta2 from 0.9 to 0.9999 the first adaptive step is 5 in the paper, else 6. eps is added to the root of v as it is,
 * before the correction, as in PyTorch and the authors' program.
 */
#include <tenon/moments.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1e-3, "[0, inf)", "step size")                                                                         \
    TN_MOMENT_ROW_1(X, 0.9)                                                                                            \
    TN_MOMENT_ROW_2(X, 0.999)                                                                                          \
    X(real, eps, 1e-8, "(0, inf)", "added to the root of the second moment")                                           \
    X(fixed, threshold, 5, "[4, inf)", "rho_t above which the step is adaptive")                                       \
    X(choice, below, momentum, "momentum | skip", "what a step below it is")                                           \
    TN_DECAY_ROW(X, 0)
TN_DECLARE_RULE(radam, HYPER, TN_MOMENT_SLOTS)

typedef struct {
    tn_moments at;
    tn_real adaptive, plain; /* one is 0 */
    double keep;
} radam_constants;

static double radam_length(double beta2, double t)
{
    double power = pow(beta2, t);
    return 2 / (1 - beta2) - 1 - 2 * t * power / (1 - power);
}

/* rho_t > 4 leaves rho_inf, which is larger, above 4 too. */
static double radam_rectifier(double beta2, double length)
{
    double most = 2 / (1 - beta2) - 1;
    return sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length));
}

static void radam_begin(const radam *h, double t, radam_constants *k)
{
    double length = radam_length(h->beta2, t), step = h->lr / tn_correction(h->beta1, t);
    int adaptive = length > h->threshold, skip = !adaptive && h->below == 1;
    k->at = tn_moments_at(h->beta1, h->beta2, h->eps, t);
    k->adaptive = (tn_real)(adaptive ? step * radam_rectifier(h->beta2, length) * sqrt(tn_correction(h->beta2, t)) : 0);
    k->plain = (tn_real)(adaptive || skip ? 0 : step);
    k->keep = skip ? 1 : 1 - h->lr * h->weight_decay;
}

TN_BOTH tn_real radam_element(radam_constants k, tn_real p, tn_real g, tn_real *m, tn_real *v)
{
    (void)p;
    tn_moments_add(k.at, g, m, v);
    return -(k.adaptive / (tn_sqrt(*v) + k.at.eps) + k.plain) * *m;
}

static double radam_keep(const void *k) { return ((const radam_constants *)k)->keep; }

TN_ELEMENT_RULE_KEEP(radam, HYPER, TN_MOMENT_SLOTS, "Adam with rectified variance",
                     TN_PAPER("arXiv:1908.03265")
                         TN_FORMULA("rho_t = rho - 2 t beta2^t / (1 - beta2^t), rho = 2 / (1 - beta2) - 1; above the "
                                    "threshold p -= lr r_t m / (1 - beta1^t) sqrt(1 - beta2^t) / (sqrt(v) + eps), "
                                    "r_t^2 = (rho_t - 4) (rho_t - 2) rho / ((rho - 4) (rho - 2) rho_t); below "
                                    "p -= lr m / (1 - beta1^t)"),
                     radam_keep)
TN_PLUGIN("org.tenon.radam", "0.1.0", "Apache-2.0", radam)
