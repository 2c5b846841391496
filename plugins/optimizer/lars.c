/* SPDX-License-Identifier: Apache-2.0
 *
 * LARS: momentum whose step is relative to each tensor's norm. You, Gitman and Ginsburg, arXiv:1708.03888, Algorithm 1:
 * the gradient and its decay are scaled by trust |p| / (|g| + wd |p|), and enter the buffer with the step size. Where
 * |p| or |g| is 0 that ratio is 1. Biases and norms usually have another rule: give this one `on: {axes: [2, 8]}`.
 */
#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1, "[0, inf)", "step size")                                                                            \
    X(real, momentum, 0.9, "[0, 1)", "decay of the buffer")                                                            \
    X(real, trust, 1e-3, "(0, inf)", "size of the step, of the parameter's norm")                                      \
    X(real, weight_decay, 0, "[0, inf)", "added to the gradient as weight_decay * p")                                  \
    X(real, eps, 0, "[0, inf)", "added to the ratio's divisor")
#define SLOTS(S) S(buffer, like, zero, signed, "the sum of decayed steps")
TN_DECLARE_RULE(lars, HYPER, SLOTS)

typedef struct {
    tn_real momentum, decay, step;
} lars_constants;

static void lars_begin(const void *hyper, const tn_clock *clock, void *constants)
{
    const lars *h = (const lars *)hyper;
    lars_constants *k = (lars_constants *)constants;
    (void)clock;
    k->momentum = (tn_real)h->momentum;
    k->decay = (tn_real)h->weight_decay;
}

TN_CLONES static double lars_squares(const tn_real *__restrict x, int64_t n, double scale)
{
    return tn_squares(x, n, scale);
}

static void lars_partial(const tn_piece *piece, const tn_partial *out)
{
    out->scalars[0] = lars_squares((const tn_real *)piece->p, piece->n, 1);
    out->scalars[1] = lars_squares((const tn_real *)piece->g, piece->n, piece->scale);
}

static void lars_fold(const tn_fold *fold)
{
    const lars *h = (const lars *)fold->hyper;
    double of_p = sqrt(fold->sums[0]), of_g = sqrt(fold->sums[1]);
    double ratio = of_p > 0 && of_g > 0 ? h->trust * of_p / (of_g + h->weight_decay * of_p + h->eps) : 1;
    ((lars_constants *)fold->k)->step = (tn_real)(h->lr * ratio);
}

TN_BOTH tn_real lars_element(lars_constants k, tn_real p, tn_real g, tn_real *buffer)
{
    *buffer = k.momentum * *buffer + k.step * (g + k.decay * p);
    return -*buffer;
}
TN_ELEMENT_UPDATE(lars, lars_element, lars_constants, lars_slots, SLOTS)

static const tn_optimizer lars_table = {.struct_size = sizeof(tn_optimizer),
                                        .constants_bytes = (uint32_t)sizeof(lars_constants),
                                        .begin = lars_begin,
                                        .partial = lars_partial,
                                        .fold = lars_fold,
                                        .update = lars_update};
TN_LINK(lars, "optimizer", HYPER, SLOTS, "Momentum with steps relative to each tensor's norm",
        TN_STAGE("rule") TN_GRAIN("tensor") TN_ROUND("tensor", 2) TN_PAPER("arXiv:1708.03888")
            TN_FORMULA("b = momentum b + lr trust |p| / (|g| + wd |p|) (g + wd p); p -= b"),
        lars_table)
TN_PLUGIN("org.tenon.lars", "0.1.0", "Apache-2.0", lars)
