/* SPDX-License-Identifier: Apache-2.0
 *
 * Clips the gradient of each tensor to a multiple of the tensor's own norm (unit-wise in Brock, De, Smith and Simonyan
 * 2021, arXiv:2102.06171; here the whole tensor):  g = g min(1, most max(|p|, least) / |g|)
 */
#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(real, most, 0.1, "(0, inf]", "times the norm of the parameter that the norm of its gradient may be")             \
    X(real, least, 1e-3, "(0, inf)", "norm that a parameter is taken to have at least")
TN_DECLARE(my_thing, HYPER)

typedef struct {
    double scale;
} my_thing_constants;

TN_CLONES static double my_thing_squares(const tn_real *__restrict x, int64_t n, double scale)
{
    return tn_squares(x, n, scale);
}

/* One piece's share of two sums, which the host adds exactly over the tensor. */
static void my_thing_partial(const tn_piece *piece, const tn_partial *out)
{
    out->scalars[0] = my_thing_squares((const tn_real *)piece->g, piece->n, piece->scale);
    out->scalars[1] = my_thing_squares((const tn_real *)piece->p, piece->n, 1);
}

/* Once a tensor, with the sums. */
static void my_thing_fold(const tn_fold *fold)
{
    const my_thing *h = (const my_thing *)fold->hyper;
    double norm = sqrt(fold->sums[0]), most = h->most * fmax(sqrt(fold->sums[1]), h->least);
    ((my_thing_constants *)fold->k)->scale = norm > most ? most / norm : 1;
}

/* The factor on the gradient; as nothing else is set, no pass over memory is made. */
static double my_thing_scale(const void *k) { return ((const my_thing_constants *)k)->scale; }

static const tn_optimizer my_thing_table = {.struct_size = sizeof(tn_optimizer),
                                            .constants_bytes = (uint32_t)sizeof(my_thing_constants),
                                            .partial = TN_CALL(my_thing_partial),
                                            .fold = TN_CALL(my_thing_fold),
                                            .scale = my_thing_scale};
TN_LINK(my_thing, "transform", HYPER, TN_NO_SLOTS, "Clip each tensor's gradient to a part of the tensor's norm",
        TN_STAGE("gradient") TN_GRAIN("tensor") TN_ROUND("tensor", 2) TN_PAPER("arXiv:2102.06171")
            TN_FORMULA("g = g min(1, most max(|p|, least) / |g|)"),
        my_thing_table)
TN_PLUGIN("org.example.my-thing", "0.1.0", "Apache-2.0", my_thing)
