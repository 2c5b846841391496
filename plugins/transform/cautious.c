/* SPDX-License-Identifier: Apache-2.0
 *
 * Cautious steps: where the rule's step and the present gradient point different ways, no step; the rest is scaled up
 * by what was lost. Liang et al. 2024, arXiv:2411.16085, Algorithm 1 with the authors' clamp of the share. Here d is
 * added to p, so it agrees with the gradient where their signs differ. The share is that of each tensor.
 *
 * Decoupled decay is no part of d (a rule gives it as `keep`), so it is neither masked nor scaled.
 */
#include <tenon/rule.h>

#define HYPER(X) X(real, least, 1e-3, "(0, 1]", "the share of agreeing elements counts as no less")
TN_DECLARE(cautious, HYPER)

typedef struct {
    tn_real gain;
} cautious_constants;

TN_BOTH int cautious_agree(tn_real d, tn_real g) { return ((d < 0) & (g > 0)) | ((d > 0) & (g < 0)); }

/* Of at most a chunk: 32 bits are as wide as the numbers, so the loop is vector code. */
TN_CLONES static int32_t cautious_count(int64_t n, tn_real scale, const tn_real *__restrict g,
                                        const tn_real *__restrict d)
{
    int32_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += cautious_agree(d[i], scale * g[i]);
    return count;
}

static void cautious_partial(const tn_piece *piece, const tn_partial *out)
{
    out->scalars[0] =
        (double)cautious_count(piece->n, (tn_real)piece->scale, (const tn_real *)piece->g, (const tn_real *)piece->d);
}

static void cautious_fold(const tn_fold *fold)
{
    double n = (double)tn_elements(fold->parameter), share = n > 0 ? fold->sums[0] / n : 1;
    double least = ((const cautious *)fold->hyper)->least;
    ((cautious_constants *)fold->k)->gain = (tn_real)(1 / (share > least ? share : least));
}

TN_CLONES static void cautious_loop(int64_t n, tn_real scale, tn_real gain, const tn_real *__restrict g,
                                    tn_real *__restrict d)
{
    for (int64_t i = 0; i < n; i++) {
        tn_real slope = scale * g[i], none = 0 * d[i] + 0 * slope; /* NaN of either stays */
        d[i] = cautious_agree(d[i], slope) ? gain * d[i] : none;
    }
}

static void cautious_update(const tn_piece *piece)
{
    cautious_loop(piece->n, (tn_real)piece->scale, ((const cautious_constants *)piece->k)->gain,
                  (const tn_real *)piece->g, (tn_real *)piece->d);
}

static const tn_optimizer cautious_table = {.struct_size = sizeof(tn_optimizer),
                                            .constants_bytes = (uint32_t)sizeof(cautious_constants),
                                            .partial = cautious_partial,
                                            .fold = cautious_fold,
                                            .update = cautious_update};
TN_LINK(cautious, "transform", HYPER, TN_NO_SLOTS, "Only steps that the gradient agrees with",
        TN_STAGE("update") TN_GRAIN("tensor") TN_ROUND("tensor", 1) TN_PAPER("arXiv:2411.16085")
            TN_FORMULA("d = d [d g < 0] / max(least, mean of [d g < 0])"),
        cautious_table)
TN_PLUGIN("org.tenon.cautious", "0.1.0", "Apache-2.0", cautious)
