/* SPDX-License-Identifier: Apache-2.0
 *
 * DoG: the step size is the largest distance from the start over the root of the sum of squared gradients. Ivgi, Hinder
 * and Carmon, ICML 2023, arXiv:2302.12022, equation 1, over all parameters. Until there is a distance it is `reach`
 * times (1 + the norm of the first parameters). The paper evaluates an average of the iterates: add ema or swa.
 */
#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1, "[0, inf)", "factor on the step size, which should need none")                                      \
    X(fixed, reach, 1e-6, "(0, inf)", "first distance, of 1 + the norm of the first parameters")                       \
    X(real, eps, 1e-8, "(0, inf)", "added to the sum of squared gradients")                                            \
    X(real, weight_decay, 0, "[0, inf)", "decoupled decay, multiplied by lr and the step size")
#define SLOTS(S)                                                                                                       \
    S(first, like, parameter, signed, "the first parameters")                                                          \
    S(distance, global, zero, nonnegative, "largest distance from them so far")                                        \
    S(squares, global, zero, nonnegative, "sum of the gradient's squared norms")
TN_DECLARE_RULE(dog, HYPER, SLOTS)

typedef struct {
    tn_real step;
    double keep;
} dog_constants;

TN_CLONES static double dog_squares(const tn_real *__restrict x, int64_t n, double scale)
{
    return tn_squares(x, n, scale);
}

TN_CLONES static double dog_gap(int64_t n, const tn_real *__restrict p, const tn_real *__restrict first)
{
    double lane[TN_LANES] = {0};
    int64_t i = 0;
    for (; i + TN_LANES <= n; i += TN_LANES)
        for (int j = 0; j < TN_LANES; j++) {
            double gap = (double)p[i + j] - (double)first[i + j];
            lane[j] += gap * gap;
        }
    for (int j = 0; i + j < n; j++) {
        double gap = (double)p[i + j] - (double)first[i + j];
        lane[j] += gap * gap;
    }
    return tn_add_lanes(lane);
}

static void dog_partial(const tn_piece *piece, const tn_partial *out)
{
    const tn_real *p = (const tn_real *)piece->p, *first = (const tn_real *)((const dog_slots *)piece->slot)->first;
    out->scalars[0] = dog_squares((const tn_real *)piece->g, piece->n, piece->scale);
    out->scalars[1] = dog_gap(piece->n, p, first);
    out->scalars[2] = dog_squares(first, piece->n, 1);
}

static void dog_fold(const tn_fold *fold)
{
    const dog *h = (const dog *)fold->hyper;
    const dog_slots *slots = (const dog_slots *)fold->slot;
    dog_constants *k = (dog_constants *)fold->k;
    double *distance = (double *)slots->distance, *squares = (double *)slots->squares, gap = sqrt(fold->sums[1]);
    if (*distance == 0)
        *distance = h->reach * (1 + sqrt(fold->sums[2]));
    *distance = gap > *distance ? gap : *distance;
    *squares += fold->sums[0];
    double step = h->lr * *distance / sqrt(*squares + h->eps);
    k->step = (tn_real)step;
    k->keep = 1 - step * h->weight_decay;
    fold->report[0] = step;
}

TN_BOTH tn_real dog_element(dog_constants k, tn_real p, tn_real g)
{
    (void)p;
    return -k.step * g;
}
TN_ELEMENT_UPDATE(dog, dog_element, dog_constants, dog_slots, TN_NO_SLOTS)

static double dog_keep(const void *k) { return ((const dog_constants *)k)->keep; }

static const tn_optimizer dog_table = {.struct_size = sizeof(tn_optimizer),
                                       .constants_bytes = (uint32_t)sizeof(dog_constants),
                                       .partial = dog_partial,
                                       .fold = dog_fold,
                                       .update = dog_update,
                                       .keep = dog_keep};
TN_LINK(dog, "optimizer", HYPER, SLOTS, "Steps by the distance over the gradients so far",
        TN_STAGE("rule") TN_GRAIN("element") TN_ROUND("model", 3) TN_REPORTS("step") TN_PAPER("arXiv:2302.12022")
            TN_FORMULA("r = max(r, |p - first|), G += |g|^2; p -= lr r / sqrt(G + eps) g"),
        dog_table)
TN_PLUGIN("org.tenon.dog", "0.1.0", "Apache-2.0", dog)
