/* SPDX-License-Identifier: Apache-2.0
 *
 * MARS: AdamW over gradients whose variance is reduced. Yuan et al., arXiv:2411.10438, Algorithm 2 (MARS-AdamW) in its
 * approximate form: the gradient before stands in for that of the last parameters on this batch. The corrected gradient
 * of a tensor is scaled to a norm of at most 1, tensor by tensor, as in the authors' program; the first is corrected by
 * nothing. The authors use it for matrices and adamw for the rest: give it `on: {axes: [2, 8]}`.
 */
#include <tenon/moments.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 3e-3, "[0, inf)", "step size")                                                                         \
    TN_MOMENT_ROWS(X, 0.95, 0.99, 1e-8)                                                                                \
    X(real, gamma, 0.025, "[0, 1]", "how much of the correction is taken")                                             \
    TN_DECAY_ROW(X, 0)
#define SLOTS(S)                                                                                                       \
    TN_MOMENT_SLOTS(S)                                                                                                 \
    S(last, like, zero, signed, "last gradient")
TN_DECLARE_RULE(mars, HYPER, SLOTS)

typedef struct {
    tn_moments at;
    tn_real step, change, clip; /* change: what g - last counts; 0 in the first step */
    double keep;
} mars_constants;

static void mars_begin(const void *hyper, const tn_clock *clock, void *constants)
{
    const mars *h = (const mars *)hyper;
    mars_constants *k = (mars_constants *)constants;
    double t = (double)clock->t;
    k->at = tn_moments_at(h->beta1, h->beta2, h->eps, t);
    k->step = (tn_real)(h->lr / tn_correction(h->beta1, t));
    k->change = (tn_real)(clock->t > 1 ? h->gamma * h->beta1 / (1 - h->beta1) : 0);
    k->keep = 1 - h->lr * h->weight_decay;
}

TN_BOTH tn_real mars_corrected(mars_constants k, tn_real g, tn_real last) { return g + k.change * (g - last); }

#define PART 256 /* elements that are corrected before their squares are added; a multiple of TN_LANES */

TN_CLONES static double mars_squares(mars_constants k, int64_t n, tn_real scale, const tn_real *__restrict g,
                                     const tn_real *__restrict last)
{
    double lane[TN_LANES] = {0};
    tn_real c[PART];
    for (int64_t at = 0, part; at < n; at += part) {
        part = n - at < PART ? n - at : PART;
        for (int64_t i = 0; i < part; i++)
            c[i] = mars_corrected(k, scale * g[at + i], last[at + i]);
        tn_add_squares(lane, c, part, 1);
    }
    return tn_add_lanes(lane);
}

static void mars_partial(const tn_piece *piece, const tn_partial *out)
{
    out->scalars[0] = mars_squares(*(const mars_constants *)piece->k, piece->n, (tn_real)piece->scale,
                                   (const tn_real *)piece->g, (const tn_real *)((const mars_slots *)piece->slot)->last);
}

static void mars_fold(const tn_fold *fold)
{
    double norm = sqrt(fold->sums[0]);
    ((mars_constants *)fold->k)->clip = (tn_real)(norm > 1 ? 1 / norm : 1);
}

TN_BOTH tn_real mars_element(mars_constants k, tn_real p, tn_real g, tn_real *m, tn_real *v, tn_real *last)
{
    (void)p;
    tn_moments_add(k.at, k.clip * mars_corrected(k, g, *last), m, v);
    *last = g;
    return -(k.step * *m) / tn_moments_root(k.at, *v);
}
TN_ELEMENT_UPDATE(mars, mars_element, mars_constants, mars_slots, SLOTS)

static double mars_keep(const void *k) { return ((const mars_constants *)k)->keep; }

static const tn_optimizer mars_table = {.struct_size = sizeof(tn_optimizer),
                                        .constants_bytes = (uint32_t)sizeof(mars_constants),
                                        .begin = mars_begin,
                                        .partial = mars_partial,
                                        .fold = mars_fold,
                                        .update = mars_update,
                                        .keep = mars_keep};
TN_LINK(mars, "optimizer", HYPER, SLOTS, "AdamW over gradients of reduced variance",
        TN_STAGE("rule") TN_GRAIN("tensor") TN_ROUND("tensor", 1) TN_PAPER("arXiv:2411.10438")
            TN_FORMULA("c = g + gamma beta1 / (1 - beta1) (g - last), |c| at most 1; p = (1 - lr wd) p - "
                       "lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps), m and v of c"),
        mars_table)
TN_PLUGIN("org.tenon.mars", "0.1.0", "Apache-2.0", mars)
