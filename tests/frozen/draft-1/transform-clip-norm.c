/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradient clipping by the norm over all parameters. Pascanu, Mikolov and Bengio, ICML 2013, arXiv:1211.5063, with
 * the 1e-6 of torch.nn.utils.clip_grad_norm_: scale = max_norm / (norm + 1e-6) where norm > max_norm. Up to and at
 * max_norm the scale is exactly 1, so no bit of the gradient changes. max_norm: inf only measures.
 *
 * Squares are taken and summed in f64: f32 gradients can not overflow. f64 gradients beyond 1e154 do; the sum is then
 * infinite and the host skips the step.
 */
#include <tenon/rule.h>

#define HYPER(X) X(real, max_norm, 1, "(0, inf]", "longest gradient that passes unscaled")
TN_DECLARE(clip_norm, HYPER)

typedef struct {
    double scale;
} clip_norm_constants;

TN_CLONES static double clip_norm_squares(const tn_real *__restrict x, int64_t n, double scale)
{
    return tn_squares(x, n, scale);
}

static void clip_norm_partial(const tn_piece *piece, const tn_partial *out)
{
    out->scalars[0] = clip_norm_squares((const tn_real *)piece->g, piece->n, piece->scale);
}

static void clip_norm_fold(const tn_fold *fold)
{
    double max = ((const clip_norm *)fold->hyper)->max_norm, norm = sqrt(fold->sums[0]);
    double scale = norm > max ? max / (norm + 1e-6) : 1;
    ((clip_norm_constants *)fold->k)->scale = scale;
    fold->report[0] = norm;
    fold->report[1] = scale;
}

static double clip_norm_scale(const void *k) { return ((const clip_norm_constants *)k)->scale; }

static const tn_optimizer clip_norm_table = {.struct_size = sizeof(tn_optimizer),
                                             .constants_bytes = (uint32_t)sizeof(clip_norm_constants),
                                             .partial = clip_norm_partial,
                                             .fold = clip_norm_fold,
                                             .scale = clip_norm_scale};
TN_LINK(clip_norm, "transform", HYPER, TN_NO_SLOTS, "Clip the gradient to a norm over all parameters",
        TN_STAGE("gradient") TN_GRAIN("element") TN_ROUND("model", 1) TN_REPORTS("norm", "scale")
            TN_PAPER("arXiv:1211.5063") TN_FORMULA("g = g min(1, max_norm / (norm + 1e-6))"),
        clip_norm_table)
TN_PLUGIN("org.tenon.clip-norm", "0.1.0", "Apache-2.0", clip_norm)
