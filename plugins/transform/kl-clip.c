/* SPDX-License-Identifier: Apache-2.0
 *
 * Clipping a natural-gradient step by the change in distribution that it predicts. Ba, Grosse and Martens, ICLR 2017,
 * "Distributed second-order optimization using Kronecker-factored approximations". A step d = -lr F^-1 g moves the
 * model by about d^T F d / 2 in Kullback-Leibler divergence, and d^T F d = -lr d^T g, which needs no Fisher matrix:
 *
 *   d <- nu d,   nu = min(1, sqrt(kappa / (lr |sum d g|)))
 *
 * over all parameters that the link is on; kappa, as in the common ports, bounds d^T F d. `lr` is the rule's, which is
 * in d already. Where the sum is 0, or rounding or momentum turned its sign so that d does not descend, the step passes
 * unchanged.
 */
#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(real, kappa, 1e-3, "(0, inf)", "the most that d^T F d may be")                                                   \
    X(real, lr, 1, "(0, inf)", "of the rule before it, where d has it as a factor: give both the same")
TN_DECLARE(kl_clip, HYPER)

typedef struct {
    double nu;
} kl_clip_constants;

TN_CLONES static double kl_clip_dot(const tn_real *__restrict d, const tn_real *__restrict g, int64_t n, double scale)
{
    double lane[TN_LANES] = {0};
    int64_t i = 0;
    for (; i + TN_LANES <= n; i += TN_LANES)
        for (int j = 0; j < TN_LANES; j++)
            lane[j] += (double)d[i + j] * (scale * (double)g[i + j]);
    for (int j = 0; i + j < n; j++)
        lane[j] += (double)d[i + j] * (scale * (double)g[i + j]);
    return tn_add_lanes(lane);
}

static void kl_clip_partial(const tn_piece *piece, const tn_partial *out)
{
    out->scalars[0] = kl_clip_dot((const tn_real *)piece->d, (const tn_real *)piece->g, piece->n, piece->scale);
}

static void kl_clip_fold(const tn_fold *fold)
{
    const kl_clip *h = (const kl_clip *)fold->hyper;
    double size = -h->lr * fold->sums[0], nu = size > h->kappa ? sqrt(h->kappa / size) : 1;
    ((kl_clip_constants *)fold->k)->nu = nu;
    fold->report[0] = size;
    fold->report[1] = nu;
}

TN_CLONES static void kl_clip_scale(tn_real *d, int64_t n, tn_real nu)
{
    for (int64_t i = 0; i < n; i++)
        d[i] *= nu;
}

static void kl_clip_update(const tn_piece *piece)
{
    double nu = ((const kl_clip_constants *)piece->k)->nu;
    if (nu < 1)
        kl_clip_scale((tn_real *)piece->d, piece->n, (tn_real)nu);
}

static const tn_optimizer kl_clip_table = {.struct_size = sizeof(tn_optimizer),
                                           .constants_bytes = (uint32_t)sizeof(kl_clip_constants),
                                           .partial = kl_clip_partial,
                                           .fold = kl_clip_fold,
                                           .update = kl_clip_update};
TN_LINK(kl_clip, "transform", HYPER, TN_NO_SLOTS, "Clip a natural-gradient step by the divergence it predicts",
        TN_STAGE("update") TN_GRAIN("element") TN_ROUND("model", 1) TN_REPORTS("size", "nu")
            TN_FORMULA("d = d min(1, sqrt(kappa / (lr |sum d g|)))"),
        kl_clip_table)
TN_PLUGIN("org.tenon.kl-clip", "0.1.0", "Apache-2.0", kl_clip)
