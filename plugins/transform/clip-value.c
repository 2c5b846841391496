/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradient clipping element by element, as torch.nn.utils.clip_grad_value_ has it. It changes the gradient's direction.
 * NaN stays; infinity becomes the limit, so a check of the gradients has to come before it.
 */
#include <tenon/rule.h>

#define HYPER(X) X(real, limit, 1, "(0, inf]", "largest size of an element")
TN_DECLARE(clip_value, HYPER)

TN_CLONES static void clip_value_loop(int64_t n, tn_real scale, tn_real limit, const tn_real *__restrict g,
                                      tn_real *__restrict d)
{
    for (int64_t i = 0; i < n; i++) {
        tn_real x = scale * g[i];
        x = x > limit ? limit : x;
        d[i] = x < -limit ? -limit : x;
    }
}

static void clip_value_update(const tn_piece *piece)
{
    clip_value_loop(piece->n, (tn_real)piece->scale, (tn_real)((const clip_value *)piece->hyper)->limit,
                    (const tn_real *)piece->g, (tn_real *)piece->d);
}

static const tn_optimizer clip_value_table = {.struct_size = sizeof(tn_optimizer), .update = clip_value_update};
TN_LINK(clip_value, "transform", HYPER, TN_NO_SLOTS, "Clip each element of the gradient",
        TN_STAGE("gradient") TN_GRAIN("element") TN_FORMULA("g = min(max(g, -limit), limit)"), clip_value_table)
TN_PLUGIN("org.tenon.clip-value", "0.1.0", "Apache-2.0", clip_value)
