/* SPDX-License-Identifier: Apache-2.0
 *
 * Stochastic weight averaging: the plain mean of the parameters at every `period`-th update from `from` on. Izmailov et
 * al., UAI 2018, arXiv:1803.05407, Algorithm 1. Until the first the average is p. Evaluations read it; batch-norm's
 * statistics for it come from eval.refresh.
 */
#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(integer, from, 0, "[0, inf) updates", "the first that is averaged; 0: the first of all")                         \
    X(integer, period, 1, "[1, inf) updates", "from one that is averaged to the next; the cycle's length")
#define SLOTS(S) S(average, like, parameter, signed, "mean of the parameter")
TN_DECLARE_RULE(swa, HYPER, SLOTS)

typedef struct {
    tn_real weight; /* of p in the mean */
} swa_constants;

static void swa_begin(const void *hyper, const tn_clock *clock, void *k)
{
    const swa *h = (const swa *)hyper;
    int64_t since = clock->t - (h->from > 0 ? h->from : 1);
    double weight = since <= 0 ? 1 : since % h->period == 0 ? 1 / (double)(since / h->period + 1) : 0;
    ((swa_constants *)k)->weight = (tn_real)weight;
}

TN_CLONES static void swa_loop(int64_t n, tn_real weight, const tn_real *__restrict p, tn_real *__restrict average)
{
    for (int64_t i = 0; i < n; i++)
        average[i] += weight * (p[i] - average[i]);
}

static void swa_update(const tn_piece *piece)
{
    tn_real weight = ((const swa_constants *)piece->k)->weight, *average;
    average = (tn_real *)((const swa_slots *)piece->slot)->average;
    if (weight == 1)
        memcpy(average, piece->p, (size_t)piece->n * sizeof(tn_real));
    else if (weight > 0)
        swa_loop(piece->n, weight, (const tn_real *)piece->p, average);
}

static const tn_optimizer swa_table = {.struct_size = sizeof(tn_optimizer),
                                       .constants_bytes = (uint32_t)sizeof(swa_constants),
                                       .begin = swa_begin,
                                       .update = swa_update};
TN_LINK(swa, "average", HYPER, SLOTS, "Mean of the parameters at every period",
        TN_STAGE("after") TN_GRAIN("element") TN_VIEW(average) TN_PAPER("arXiv:1803.05407")
            TN_FORMULA("average = mean of p at updates from, from + period, ..."),
        swa_table)
TN_PLUGIN("org.tenon.swa", "0.1.0", "Apache-2.0", swa)
