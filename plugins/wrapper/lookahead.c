/* SPDX-License-Identifier: Apache-2.0
 *
 * Lookahead: every k steps the parameters go back to a slow copy that has moved a part of the way. Zhang, Lucas, Ba and
 * Hinton, NeurIPS 2019, arXiv:1907.08610, Algorithm 1. The rule before it keeps its state over a return.
 */
#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(integer, k, 5, "[1, inf) steps", "fast steps to a slow one")                                                     \
    X(real, alpha, 0.5, "[0, 1]", "part of the way that the slow copy moves")
#define SLOTS(S) S(slow, like, parameter, signed, "the slow parameters")
TN_DECLARE_RULE(lookahead, HYPER, SLOTS)

typedef struct {
    tn_real alpha;
    int32_t now; /* 1: this step ends a round of k */
} lookahead_constants;

static void lookahead_begin(const void *hyper, const tn_clock *clock, void *constants)
{
    const lookahead *h = (const lookahead *)hyper;
    ((lookahead_constants *)constants)->alpha = (tn_real)h->alpha;
    ((lookahead_constants *)constants)->now = clock->t % h->k == 0;
}

TN_CLONES static void lookahead_fast(int64_t n, tn_real keep, const tn_real *__restrict p, tn_real *__restrict d)
{
    for (int64_t i = 0; i < n; i++)
        d[i] = keep * p[i] + d[i];
}

TN_CLONES static void lookahead_slow(int64_t n, tn_real keep, tn_real alpha, const tn_real *__restrict p,
                                     tn_real *__restrict d, tn_real *__restrict slow)
{
    for (int64_t i = 0; i < n; i++)
        d[i] = slow[i] += alpha * (keep * p[i] + d[i] - slow[i]);
}

static void lookahead_update(const tn_piece *piece)
{
    const lookahead_constants *k = (const lookahead_constants *)piece->k;
    const tn_real *p = (const tn_real *)piece->p, keep = (tn_real)piece->scale;
    tn_real *d = (tn_real *)piece->d;
    if (k->now)
        lookahead_slow(piece->n, keep, k->alpha, p, d, (tn_real *)((const lookahead_slots *)piece->slot)->slow);
    else
        lookahead_fast(piece->n, keep, p, d);
}

static const tn_optimizer lookahead_table = {.struct_size = sizeof(tn_optimizer),
                                             .constants_bytes = (uint32_t)sizeof(lookahead_constants),
                                             .begin = lookahead_begin,
                                             .update = lookahead_update};
TN_LINK(lookahead, "wrapper", HYPER, SLOTS, "Return to a slow copy every k steps",
        TN_STAGE("write") TN_GRAIN("element") TN_PAPER("arXiv:1907.08610")
            TN_FORMULA("every k steps: slow += alpha (p - slow); p = slow"),
        lookahead_table)
TN_PLUGIN("org.tenon.lookahead", "0.1.0", "Apache-2.0", lookahead)
