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

#define LANES 16 /* named, so the order of the additions is the same for any vector width */

TN_CLONES static double clip_norm_squares(const tn_real *__restrict g, int64_t n, double scale)
{
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) {
            double x = scale * (double)g[i + j];
            lane[j] += x * x;
        }
    for (int j = 0; i + j < n; j++) {
        double x = scale * (double)g[i + j];
        lane[j] += x * x;
    }
    for (int half = LANES / 2; half; half /= 2)
        for (int j = 0; j < half; j++)
            lane[j] += lane[j + half];
    return lane[0];
}

static void clip_norm_partial(const tn_piece *piece, const tn_partial *out)
{
    out->scalars[0] = clip_norm_squares((const tn_real *)piece->g, piece->n, piece->scale);
}

static void clip_norm_fold(const void *hyper, const tn_clock *clock, int32_t round, const double *sums, void *k,
                           double *report)
{
    double max = ((const clip_norm *)hyper)->max_norm, norm = sqrt(sums[0]);
    double scale = norm > max ? max / (norm + 1e-6) : 1;
    (void)clock;
    (void)round;
    ((clip_norm_constants *)k)->scale = scale;
    report[0] = norm;
    report[1] = scale;
}

static double clip_norm_scale(const void *k) { return ((const clip_norm_constants *)k)->scale; }

static const tn_optimizer clip_norm_table = {sizeof(tn_optimizer),
                                             (uint32_t)sizeof(clip_norm_constants),
                                             NULL,
                                             NULL,
                                             clip_norm_partial,
                                             clip_norm_fold,
                                             NULL,
                                             clip_norm_scale,
                                             NULL};
TN_LINK(clip_norm, "transform", HYPER, TN_NO_SLOTS, "Clip the gradient to a norm over all parameters",
        TN_STAGE("gradient") TN_GRAIN("element") TN_ROUND("model", 1) TN_REPORTS("norm", "scale")
            TN_PAPER("arXiv:1211.5063") TN_FORMULA("g = g min(1, max_norm / (norm + 1e-6))"),
        clip_norm_table)
TN_PLUGIN("org.tenon.clip-norm", "0.1.0", "Apache-2.0", clip_norm)
