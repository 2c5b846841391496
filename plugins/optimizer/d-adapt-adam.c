/* SPDX-License-Identifier: Apache-2.0
 *
 * D-Adaptation of Adam: the step size is an estimate of the distance to a solution. Defazio and Mishchenko, ICML 2023,
 * arXiv:2301.07733, Algorithm 5 with the weighting of the authors' program (DAdaptAdam). `lr` is a factor on it: leave
 * 1 and schedule that. The moments are not corrected for their start.
 */
#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1, "[0, inf)", "factor on the estimated step size")                                                    \
    X(real, beta1, 0.9, "[0, 1)", "decay of the mean of the gradient")                                                 \
    X(real, beta2, 0.999, "[0, 1)", "decay of the mean of its square; its root is that of the estimate")               \
    X(real, eps, 1e-8, "(0, inf)", "added to the root of the second moment")                                           \
    X(real, weight_decay, 0, "[0, inf)", "decoupled decay, multiplied by d lr")                                        \
    X(fixed, d0, 1e-6, "(0, inf)", "first estimate")                                                                   \
    X(real, growth, inf, "(1, inf]", "most that d grows by in a step")
#define LIKE(S)                                                                                                        \
    S(m, like, zero, signed, "mean of d lr g")                                                                         \
    S(v, like, zero, nonnegative, "mean of the gradient's square")                                                     \
    S(s, like, zero, signed, "mean of d lr g, by the root of beta2")
#define SLOTS(S)                                                                                                       \
    LIKE(S)                                                                                                            \
    S(d, global, zero, nonnegative, "estimated step size; 0: d0")                                                      \
    S(numerator, global, zero, signed, "mean of weighted g s / (sqrt(v) + eps)")
TN_DECLARE_RULE(d_adapt_adam, HYPER, SLOTS)

typedef struct {
    tn_real beta1, beta2, rest2, root2, of_m, of_s, eps;
    double keep;
} d_adapt_adam_constants;

static double d_adapt_adam_d(const d_adapt_adam *h, const d_adapt_adam_slots *slots)
{
    double d = *(const double *)slots->d;
    return d > 0 ? d : h->d0;
}

static void d_adapt_adam_begin(const void *hyper, const tn_clock *clock, void *constants)
{
    const d_adapt_adam *h = (const d_adapt_adam *)hyper;
    d_adapt_adam_constants *k = (d_adapt_adam_constants *)constants;
    (void)clock;
    k->beta1 = (tn_real)h->beta1;
    k->beta2 = (tn_real)h->beta2;
    k->rest2 = (tn_real)(1 - h->beta2);
    k->root2 = (tn_real)sqrt(h->beta2);
    k->eps = (tn_real)h->eps;
}

TN_BOTH tn_real d_adapt_adam_next_s(tn_real root2, tn_real of_s, tn_real g, tn_real s) { return root2 * s + of_s * g; }

#define PART 256 /* elements whose terms are there before they are added; a multiple of TN_LANES */

/* What one element adds: to the numerator with the moments as they are, to the divisor with the next s. */
TN_CLONES static void d_adapt_adam_terms(d_adapt_adam_constants k, int64_t n, tn_real scale, tn_real of_s,
                                         const tn_real *__restrict g, const tn_real *__restrict v,
                                         const tn_real *__restrict s, tn_real *__restrict agrees,
                                         tn_real *__restrict size)
{
    for (int64_t i = 0; i < n; i++) {
        agrees[i] = scale * g[i] * (s[i] / (tn_sqrt(v[i]) + k.eps));
        size[i] = tn_abs(d_adapt_adam_next_s(k.root2, of_s, scale * g[i], s[i]));
    }
}

TN_CLONES static double d_adapt_adam_sum(int64_t n, const tn_real *__restrict x)
{
    double lane[TN_LANES] = {0};
    int64_t i = 0;
    for (; i + TN_LANES <= n; i += TN_LANES)
        for (int j = 0; j < TN_LANES; j++)
            lane[j] += (double)x[i + j];
    for (int j = 0; i + j < n; j++)
        lane[j] += (double)x[i + j];
    return tn_add_lanes(lane);
}

static void d_adapt_adam_partial(const tn_piece *piece, const tn_partial *out)
{
    const d_adapt_adam *h = (const d_adapt_adam *)piece->hyper;
    const d_adapt_adam_slots *slots = (const d_adapt_adam_slots *)piece->slot;
    const d_adapt_adam_constants *k = (const d_adapt_adam_constants *)piece->k;
    tn_real of_s = (tn_real)(d_adapt_adam_d(h, slots) * h->lr * (1 - sqrt(h->beta2))), agrees[PART], size[PART];
    for (int64_t at = 0, n; at < piece->n; at += n) {
        n = piece->n - at < PART ? piece->n - at : PART;
        d_adapt_adam_terms(*k, n, (tn_real)piece->scale, of_s, (const tn_real *)piece->g + at,
                           (const tn_real *)slots->v + at, (const tn_real *)slots->s + at, agrees, size);
        out->scalars[0] += d_adapt_adam_sum(n, agrees);
        out->scalars[1] += d_adapt_adam_sum(n, size);
    }
}

static void d_adapt_adam_fold(const tn_fold *fold)
{
    const d_adapt_adam *h = (const d_adapt_adam *)fold->hyper;
    const d_adapt_adam_slots *slots = (const d_adapt_adam_slots *)fold->slot;
    d_adapt_adam_constants *k = (d_adapt_adam_constants *)fold->k;
    double d = d_adapt_adam_d(h, slots), step = d * h->lr, root2 = sqrt(h->beta2), *numerator;
    numerator = (double *)slots->numerator;
    k->of_m = (tn_real)(step * (1 - h->beta1));
    k->of_s = (tn_real)(step * (1 - root2));
    k->keep = 1 - step * h->weight_decay;
    if (fold->sums[1] > 0 && h->lr > 0) {
        *numerator = root2 * *numerator + (1 - root2) * step * fold->sums[0];
        double found = *numerator / ((1 - root2) * fold->sums[1]), most = d * h->growth;
        found = found < most ? found : most;
        d = found > d ? found : d;
    }
    *(double *)slots->d = d;
    fold->report[0] = d;
}

TN_BOTH tn_real d_adapt_adam_element(d_adapt_adam_constants k, tn_real p, tn_real g, tn_real *m, tn_real *v, tn_real *s)
{
    (void)p;
    *m = k.beta1 * *m + k.of_m * g;
    *v = k.beta2 * *v + k.rest2 * g * g;
    *s = d_adapt_adam_next_s(k.root2, k.of_s, g, *s);
    return -*m / (tn_sqrt(*v) + k.eps);
}
TN_ELEMENT_UPDATE(d_adapt_adam, d_adapt_adam_element, d_adapt_adam_constants, d_adapt_adam_slots, LIKE)

static double d_adapt_adam_keep(const void *k) { return ((const d_adapt_adam_constants *)k)->keep; }

static const tn_optimizer d_adapt_adam_table = {.struct_size = sizeof(tn_optimizer),
                                                .constants_bytes = (uint32_t)sizeof(d_adapt_adam_constants),
                                                .begin = d_adapt_adam_begin,
                                                .partial = d_adapt_adam_partial,
                                                .fold = d_adapt_adam_fold,
                                                .update = d_adapt_adam_update,
                                                .keep = d_adapt_adam_keep};
TN_LINK(d_adapt_adam, "optimizer", HYPER, SLOTS, "Adam whose step size is the estimated distance",
        TN_STAGE("rule") TN_GRAIN("element") TN_ROUND("model", 2) TN_REPORTS("d") TN_PAPER("arXiv:2301.07733")
            TN_FORMULA("r = sqrt(beta2) r + (1 - sqrt(beta2)) d lr sum g s / (sqrt(v) + eps); "
                       "d = max(d, r / ((1 - sqrt(beta2)) |s|_1)); p -= m / (sqrt(v) + eps), m of d lr g"),
        d_adapt_adam_table)
TN_PLUGIN("org.tenon.d-adapt-adam", "0.1.0", "Apache-2.0", d_adapt_adam)
