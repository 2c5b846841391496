/* SPDX-License-Identifier: Apache-2.0
 *
 * Sharpness-aware minimization: the gradient is taken again a distance rho uphill, and the rest of the chain steps from
 * where the parameters were. Foret et al., ICLR 2021, arXiv:2010.01412: p + rho g / |g|, the norm over all parameters.
 * `adaptive` weighs by T = |p| + eta, so that the neighbourhood scales with the parameters: p + rho T^2 g / |T g|
 * (ASAM; Kwon et al., ICML 2021, arXiv:2102.11600, with their code's eta).
 *
 * Links before the rule see the second gradient only: a clip behind it clips that one. A gradient of 0 moves nothing.
 */
#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(real, rho, 0.05, "[0, inf)", "how far uphill; the paper of adaptive takes ten times as much")                    \
    X(flag, adaptive, false, "", "weigh by the size of each parameter")                                                \
    X(real, eta, 0.01, "[0, inf)", "added to that size")
TN_DECLARE(sam, HYPER)

typedef struct {
    double reach; /* rho / norm */
} sam_constants;

TN_CLONES static double sam_squares(const tn_real *__restrict x, int64_t n, double scale)
{
    return tn_squares(x, n, scale);
}

TN_BOTH double sam_weight(const sam *h, tn_real p) { return h->adaptive ? fabs((double)p) + h->eta : 1; }

static void sam_partial(const tn_piece *piece, const tn_partial *out)
{
    const sam *h = (const sam *)piece->hyper;
    const tn_real *g = (const tn_real *)piece->g, *p = (const tn_real *)piece->p;
    double lane[TN_LANES] = {0};
    if (!h->adaptive) {
        out->scalars[0] = sam_squares(g, piece->n, piece->scale);
        return;
    }
    for (int64_t i = 0; i < piece->n; i++) {
        double x = sam_weight(h, p[i]) * (piece->scale * (double)g[i]);
        lane[i % TN_LANES] += x * x;
    }
    out->scalars[0] = tn_add_lanes(lane);
}

static void sam_fold(const tn_fold *fold)
{
    double norm = sqrt(fold->sums[0]);
    ((sam_constants *)fold->k)->reach = norm > 0 ? ((const sam *)fold->hyper)->rho / norm : 0;
    fold->report[0] = norm;
}

static void sam_update(const tn_piece *piece)
{
    const sam *h = (const sam *)piece->hyper;
    const tn_real *g = (const tn_real *)piece->g, *p = (const tn_real *)piece->p;
    double factor = ((const sam_constants *)piece->k)->reach * piece->scale;
    for (int64_t i = 0; i < piece->n; i++) {
        double weight = sam_weight(h, p[i]);
        ((tn_real *)piece->d)[i] = (tn_real)(factor * (double)g[i] * weight * weight);
    }
}

static const tn_optimizer sam_table = {.struct_size = sizeof(tn_optimizer),
                                       .constants_bytes = (uint32_t)sizeof(sam_constants),
                                       .partial = sam_partial,
                                       .fold = sam_fold,
                                       .update = sam_update};
TN_LINK(sam, "wrapper", HYPER, TN_NO_SLOTS, "The gradient from a short way uphill",
        TN_STAGE("source") TN_GRAIN("element") TN_ROUND("model", 1) TN_SIGNALS("gradient2") TN_REPORTS("norm")
            TN_PAPER("arXiv:2010.01412") TN_FORMULA("g = gradient at p + rho g / |g|"),
        sam_table)
TN_PLUGIN("org.tenon.sam", "0.1.0", "Apache-2.0", sam)
