/* SPDX-License-Identifier: Apache-2.0
 *
 * LAMB: Adam's direction, scaled for each tensor by the ratio of the parameter's norm to the direction's. You et al.,
 * ICLR 2020, arXiv:1904.00962, Algorithm 2, with bias correction and phi the identity; decay is part of the direction.
 * Where either norm is 0 the ratio is 1, so a bias that starts at 0 moves; so it is where lr times the ratio overflows.
 */
#include <tenon/moments.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1e-3, "[0, inf)", "step size")                                                                         \
    TN_MOMENT_ROWS(X, 0.9, 0.999, 1e-6)                                                                                \
    X(real, weight_decay, 0.01, "[0, inf)", "added to the direction as weight_decay * p")
TN_DECLARE_RULE(lamb, HYPER, TN_MOMENT_SLOTS)

typedef struct {
    tn_moments at;
    tn_real correction1, decay, step;
    double lr;
} lamb_constants;

static void lamb_begin(const void *hyper, const tn_clock *clock, void *constants)
{
    const lamb *h = (const lamb *)hyper;
    lamb_constants *k = (lamb_constants *)constants;
    double t = (double)clock->t;
    k->at = tn_moments_at(h->beta1, h->beta2, h->eps, t);
    k->correction1 = (tn_real)(1 / tn_correction(h->beta1, t));
    k->decay = (tn_real)h->weight_decay;
    k->lr = h->lr;
}

/* The direction; m and v are the new moments afterwards. */
TN_BOTH tn_real lamb_direction(lamb_constants k, tn_real p, tn_real g, tn_real *m, tn_real *v)
{
    tn_moments_add(k.at, g, m, v);
    return k.correction1 * *m / tn_moments_root(k.at, *v) + k.decay * p;
}

TN_BOTH tn_real lamb_element(lamb_constants k, tn_real p, tn_real g, tn_real *m, tn_real *v)
{
    return -k.step * lamb_direction(k, p, g, m, v);
}
TN_ELEMENT_UPDATE(lamb, lamb_element, lamb_constants, lamb_slots, TN_MOMENT_SLOTS)

#define PART 256 /* elements whose directions are there before their squares are added; a multiple of TN_LANES */

/* The squares of the direction, from copies of the state. */
TN_CLONES static double lamb_squares(lamb_constants k, int64_t n, tn_real scale, const tn_real *__restrict p,
                                     const tn_real *__restrict g, const tn_real *__restrict m,
                                     const tn_real *__restrict v)
{
    double lane[TN_LANES] = {0};
    tn_real d[PART];
    for (int64_t at = 0, part; at < n; at += part) {
        part = n - at < PART ? n - at : PART;
        for (int64_t i = 0; i < part; i++) {
            tn_real new_m = m[at + i], new_v = v[at + i];
            d[i] = lamb_direction(k, p[at + i], scale * g[at + i], &new_m, &new_v);
        }
        tn_add_squares(lane, d, part, 1);
    }
    return tn_add_lanes(lane);
}

TN_CLONES static double lamb_norm(const tn_real *__restrict p, int64_t n) { return tn_squares(p, n, 1); }

static void lamb_partial(const tn_piece *piece, const tn_partial *out)
{
    const lamb_slots *slots = (const lamb_slots *)piece->slot;
    const tn_real *p = (const tn_real *)piece->p;
    out->scalars[0] = lamb_norm(p, piece->n);
    out->scalars[1] = lamb_squares(*(const lamb_constants *)piece->k, piece->n, (tn_real)piece->scale, p,
                                   (const tn_real *)piece->g, (const tn_real *)slots->m, (const tn_real *)slots->v);
}

static void lamb_fold(const tn_fold *fold)
{
    lamb_constants *k = (lamb_constants *)fold->k;
    double of_p = fold->sums[0], of_d = fold->sums[1], ratio = of_p > 0 && of_d > 0 ? sqrt(of_p) / sqrt(of_d) : 1;
    /* Moments that died out leave a direction of almost nothing: its ratio is no number of the real type. */
    k->step = isfinite((tn_real)(k->lr * ratio)) ? (tn_real)(k->lr * ratio) : (tn_real)k->lr;
}

static const tn_optimizer lamb_table = {.struct_size = sizeof(tn_optimizer),
                                        .constants_bytes = (uint32_t)sizeof(lamb_constants),
                                        .begin = lamb_begin,
                                        .partial = lamb_partial,
                                        .fold = lamb_fold,
                                        .update = lamb_update};
TN_LINK(lamb, "optimizer", HYPER, TN_MOMENT_SLOTS, "Adam with a step relative to each tensor's norm",
        TN_STAGE("rule") TN_GRAIN("tensor") TN_ROUND("tensor", 2) TN_PAPER("arXiv:1904.00962")
            TN_FORMULA("r = m^ / (sqrt(v^) + eps) + wd p; p = p - lr (|p| / |r|) r"),
        lamb_table)
TN_PLUGIN("org.tenon.lamb", "0.1.0", "Apache-2.0", lamb)
