/* SPDX-License-Identifier: Apache-2.0
 *
 * Prodigy: Adam that estimates its own step size. Mishchenko and Defazio, arXiv:2306.06101, Algorithm 4 with the
 * weighting of the authors' program: d grows towards the distance to a solution, from how far gradients agree with the
 * way from the first parameters, over all parameters. `lr` is a factor on it: leave 1 and schedule that.
 */
#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1, "[0, inf)", "factor on the estimated step size")                                                    \
    X(real, beta1, 0.9, "[0, 1)", "decay of the mean of the gradient")                                                 \
    X(real, beta2, 0.999, "[0, 1)", "decay of the mean of its square; its root is that of the estimate")               \
    X(real, eps, 1e-8, "(0, inf)", "times d added to the root of the second moment")                                   \
    X(real, weight_decay, 0, "[0, inf)", "decoupled decay, multiplied by d lr")                                        \
    X(fixed, d0, 1e-6, "(0, inf)", "first estimate")                                                                   \
    X(real, coefficient, 1, "(0, inf)", "factor on new estimates")                                                     \
    X(real, growth, inf, "(1, inf]", "most that d grows by in a step")                                                 \
    X(flag, bias_correction, false, "", "correct the moments for their start")                                         \
    X(flag, safeguard_warmup, false, "", "leave lr out of the estimate's divisor, for runs with a warm-up")
#define LIKE(S)                                                                                                        \
    S(m, like, zero, signed, "mean of d g")                                                                            \
    S(v, like, zero, nonnegative, "mean of (d g)^2")                                                                   \
    S(s, like, zero, signed, "decayed sum of weighted gradients")
#define SLOTS(S)                                                                                                       \
    LIKE(S)                                                                                                            \
    S(first, like, parameter, signed, "the first parameters")                                                          \
    S(d, global, zero, nonnegative, "estimated step size; 0: d0")                                                      \
    S(largest, global, zero, nonnegative, "largest estimate so far")                                                   \
    S(numerator, global, zero, signed, "decayed sum of weighted g (first - p)")
TN_DECLARE_RULE(prodigy, HYPER, SLOTS)

typedef struct {
    tn_real beta1, beta2, of_m, of_v; /* of_: what a gradient and its square enter the means with */
    tn_real beta3, of_s, step, eps;
    double correction, keep;
} prodigy_constants;

typedef struct {
    double d, step, weight; /* step: d lr; weight: of a gradient in s */
} prodigy_estimate;

/* The estimate that a step begins with. */
static prodigy_estimate prodigy_now(const prodigy *h, const prodigy_constants *k, const prodigy_slots *slots)
{
    double d = *(const double *)slots->d > 0 ? *(const double *)slots->d : h->d0, step = d * h->lr * k->correction;
    prodigy_estimate e = {d, step, d / h->d0 * (h->safeguard_warmup ? d : step)};
    return e;
}

/* What a clock tells; d is a slot, so fold does the rest. */
static void prodigy_begin(const void *hyper, const tn_clock *clock, void *constants)
{
    const prodigy *h = (const prodigy *)hyper;
    prodigy_constants *k = (prodigy_constants *)constants;
    double t = (double)clock->t;
    k->beta1 = (tn_real)h->beta1;
    k->beta2 = (tn_real)h->beta2;
    k->beta3 = (tn_real)sqrt(h->beta2);
    k->correction = h->bias_correction ? sqrt(1 - pow(h->beta2, t)) / (1 - pow(h->beta1, t)) : 1;
}

TN_CLONES static double prodigy_agreement(int64_t n, double scale, const tn_real *__restrict p,
                                          const tn_real *__restrict g, const tn_real *__restrict first)
{
    double lane[TN_LANES] = {0};
    int64_t i = 0;
    for (; i + TN_LANES <= n; i += TN_LANES)
        for (int j = 0; j < TN_LANES; j++)
            lane[j] += scale * (double)g[i + j] * ((double)first[i + j] - (double)p[i + j]);
    for (int j = 0; i + j < n; j++)
        lane[j] += scale * (double)g[i + j] * ((double)first[i + j] - (double)p[i + j]);
    return tn_add_lanes(lane);
}

TN_BOTH tn_real prodigy_next_s(tn_real beta3, tn_real weight, tn_real g, tn_real s) { return beta3 * s + weight * g; }

TN_CLONES static double prodigy_size(int64_t n, tn_real scale, tn_real beta3, tn_real weight,
                                     const tn_real *__restrict g, const tn_real *__restrict s)
{
    double lane[TN_LANES] = {0};
    int64_t i = 0;
    for (; i + TN_LANES <= n; i += TN_LANES)
        for (int j = 0; j < TN_LANES; j++)
            lane[j] += (double)tn_abs(prodigy_next_s(beta3, weight, scale * g[i + j], s[i + j]));
    for (int j = 0; i + j < n; j++)
        lane[j] += (double)tn_abs(prodigy_next_s(beta3, weight, scale * g[i + j], s[i + j]));
    return tn_add_lanes(lane);
}

static void prodigy_partial(const tn_piece *piece, const tn_partial *out)
{
    const prodigy_slots *slots = (const prodigy_slots *)piece->slot;
    const prodigy_constants *k = (const prodigy_constants *)piece->k;
    const tn_real *g = (const tn_real *)piece->g;
    prodigy_estimate now = prodigy_now((const prodigy *)piece->hyper, k, slots);
    out->scalars[0] =
        prodigy_agreement(piece->n, piece->scale, (const tn_real *)piece->p, g, (const tn_real *)slots->first);
    out->scalars[1] =
        prodigy_size(piece->n, (tn_real)piece->scale, k->beta3, (tn_real)now.weight, g, (const tn_real *)slots->s);
}

/* A step without any gradient so far learns nothing. */
static double prodigy_learn(const prodigy *h, const prodigy_slots *slots, prodigy_estimate now, const double *sums)
{
    double *largest = (double *)slots->largest, *numerator = (double *)slots->numerator;
    double before = *largest > 0 ? *largest : h->d0, d = now.d;
    if (!(sums[1] > 0) || !(h->lr > 0))
        return d;
    *numerator = sqrt(h->beta2) * *numerator + now.d / h->d0 * now.step * sums[0];
    double found = h->coefficient * *numerator / sums[1];
    d = d == h->d0 && found > d ? found : d;
    *largest = found > before ? found : before;
    return *largest < d * h->growth ? *largest : d * h->growth;
}

static void prodigy_fold(const tn_fold *fold)
{
    const prodigy *h = (const prodigy *)fold->hyper;
    const prodigy_slots *slots = (const prodigy_slots *)fold->slot;
    prodigy_constants *k = (prodigy_constants *)fold->k;
    prodigy_estimate now = prodigy_now(h, k, slots);
    double d = prodigy_learn(h, slots, now, fold->sums);
    k->of_m = (tn_real)(now.d * (1 - h->beta1));
    k->of_v = (tn_real)(now.d * now.d * (1 - h->beta2));
    k->of_s = (tn_real)now.weight;
    k->step = (tn_real)now.step;
    k->eps = (tn_real)(d * h->eps);
    k->keep = 1 - now.step * h->weight_decay;
    *(double *)slots->d = d;
    fold->report[0] = d;
}

TN_BOTH tn_real prodigy_element(prodigy_constants k, tn_real p, tn_real g, tn_real *m, tn_real *v, tn_real *s)
{
    (void)p;
    *m = k.beta1 * *m + k.of_m * g;
    *v = k.beta2 * *v + k.of_v * g * g;
    *s = prodigy_next_s(k.beta3, k.of_s, g, *s);
    return -(k.step * *m) / (tn_sqrt(*v) + k.eps);
}
TN_ELEMENT_UPDATE(prodigy, prodigy_element, prodigy_constants, prodigy_slots, LIKE)

static double prodigy_keep(const void *k) { return ((const prodigy_constants *)k)->keep; }

static const tn_optimizer prodigy_table = {.struct_size = sizeof(tn_optimizer),
                                           .constants_bytes = (uint32_t)sizeof(prodigy_constants),
                                           .begin = prodigy_begin,
                                           .partial = prodigy_partial,
                                           .fold = prodigy_fold,
                                           .update = prodigy_update,
                                           .keep = prodigy_keep};
TN_LINK(prodigy, "optimizer", HYPER, SLOTS, "Adam that estimates its step size",
        TN_STAGE("rule") TN_GRAIN("element") TN_ROUND("model", 2) TN_REPORTS("d") TN_PAPER("arXiv:2306.06101")
            TN_FORMULA("d = max(d, sum of d^2/d0 lr g (first - p) / |s|_1), s = sqrt(beta2) s + d^2/d0 lr g; "
                       "p -= d lr m / (sqrt(v) + d eps), m of d g, v of (d g)^2"),
        prodigy_table)
TN_PLUGIN("org.tenon.prodigy", "0.1.0", "Apache-2.0", prodigy)
