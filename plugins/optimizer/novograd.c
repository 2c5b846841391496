/* SPDX-License-Identifier: Apache-2.0
 *
 * NovoGrad: momentum over gradients that are normalized tensor by tensor. Ginsburg et al., arXiv:1905.11286, Algorithm
 * 1: the second moment is one number a tensor, the mean of |g|^2, which starts as the first; the decay enters the
 * buffer, and a gradient enters it whole. `averaging` lets it enter as (1 - beta1) of it.
 */
#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1e-2, "[0, inf)", "step size")                                                                         \
    X(real, beta1, 0.95, "[0, 1)", "decay of the buffer")                                                              \
    X(real, beta2, 0.98, "[0, 1)", "decay of the mean of |g|^2")                                                       \
    X(real, eps, 1e-8, "(0, inf)", "added to the root of that mean")                                                   \
    X(real, weight_decay, 0, "[0, inf)", "added to the normalized gradient as weight_decay * p")                       \
    X(flag, averaging, false, "", "gradients enter the buffer as (1 - beta1) of them")
#define LIKE(S) S(m, like, zero, signed, "the sum of decayed normalized gradients")
#define SLOTS(S)                                                                                                       \
    LIKE(S)                                                                                                            \
    S(v, scalar, zero, nonnegative, "mean of the gradient's squared norm")
TN_DECLARE_RULE(novograd, HYPER, SLOTS)

typedef struct {
    tn_real lr, beta1, decay, part, inverse; /* of a gradient: part * (inverse g + decay p) */
} novograd_constants;

static void novograd_begin(const void *hyper, const tn_clock *clock, void *constants)
{
    const novograd *h = (const novograd *)hyper;
    novograd_constants *k = (novograd_constants *)constants;
    (void)clock;
    k->lr = (tn_real)h->lr;
    k->beta1 = (tn_real)h->beta1;
    k->decay = (tn_real)h->weight_decay;
    k->part = (tn_real)(h->averaging ? 1 - h->beta1 : 1);
}

TN_CLONES static double novograd_squares(const tn_real *__restrict x, int64_t n, double scale)
{
    return tn_squares(x, n, scale);
}

static void novograd_partial(const tn_piece *piece, const tn_partial *out)
{
    out->scalars[0] = novograd_squares((const tn_real *)piece->g, piece->n, piece->scale);
}

static void novograd_fold(const tn_fold *fold)
{
    const novograd *h = (const novograd *)fold->hyper;
    double *v = (double *)((const novograd_slots *)fold->slot)->v, squares = fold->sums[0];
    *v = fold->clock->t == 1 ? squares : h->beta2 * *v + (1 - h->beta2) * squares;
    ((novograd_constants *)fold->k)->inverse = (tn_real)(1 / (sqrt(*v) + h->eps));
}

TN_BOTH tn_real novograd_element(novograd_constants k, tn_real p, tn_real g, tn_real *m)
{
    *m = k.beta1 * *m + k.part * (k.inverse * g + k.decay * p);
    return -k.lr * *m;
}
TN_ELEMENT_UPDATE(novograd, novograd_element, novograd_constants, novograd_slots, LIKE)

static const tn_optimizer novograd_table = {.struct_size = sizeof(tn_optimizer),
                                            .constants_bytes = (uint32_t)sizeof(novograd_constants),
                                            .begin = novograd_begin,
                                            .partial = novograd_partial,
                                            .fold = novograd_fold,
                                            .update = novograd_update};
TN_LINK(novograd, "optimizer", HYPER, SLOTS, "Momentum over gradients normalized by tensor",
        TN_STAGE("rule") TN_GRAIN("tensor") TN_ROUND("tensor", 1) TN_PAPER("arXiv:1905.11286")
            TN_FORMULA("v = beta2 v + (1 - beta2) |g|^2, first v = |g|^2; m = beta1 m + g / (sqrt(v) + eps) + wd p; "
                       "p -= lr m"),
        novograd_table)
TN_PLUGIN("org.tenon.novograd", "0.1.0", "Apache-2.0", novograd)
