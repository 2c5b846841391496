/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradient clipping at a percentile of its own past norms, this update's included: AutoClip. Seetharaman et al., MLSP
 * 2020, arXiv:2007.14469, there with all norms of the run; here with the last `window` of them. Norms are kept as they
 * were before clipping; that of a skipped update is not. The percentile interpolates between the two nearest norms, as
 * numpy does; the scale is clip-norm's: threshold / (norm + 1e-6), and exactly 1 up to and at the threshold.
 */
#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(real, percentile, 10, "[0, 100]", "of the norms kept: longer gradients are scaled down to it")                   \
    X(integer, window, 1000, "[1, 1000000] updates", "how many norms are kept")                                        \
    X(integer, warmup, 0, "[0, inf) updates", "at first norms are only collected")
#define SLOTS(S)                                                                                                       \
    S(recent, global, zero, nonnegative, "the last norms, in a ring")                                                  \
    S(sorted, global, zero, nonnegative, "the same in ascending order")                                                \
    S(seen, global, zero, nonnegative, "norms so far")
TN_DECLARE_RULE(clip_percentile, HYPER, SLOTS)
SLOTS(TN_SLOT_RECORD)

typedef struct {
    double scale;
} clip_percentile_constants;

static int32_t clip_percentile_plan(const tn_parameter *parameter, const void *hyper, const tn_slot_planner *planner,
                                    tn_error *err)
{
    tn_slot recent = slot_recent, sorted = slot_sorted;
    (void)parameter;
    (void)err;
    recent.count = sorted.count = (int32_t)((const clip_percentile *)hyper)->window;
    int32_t status = planner->slot(planner->host, &recent);
    if (!status)
        status = planner->slot(planner->host, &sorted);
    return status ? status : planner->slot(planner->host, &slot_seen);
}

TN_CLONES static double clip_percentile_squares(const tn_real *__restrict x, int64_t n, double scale)
{
    return tn_squares(x, n, scale);
}

static void clip_percentile_partial(const tn_piece *piece, const tn_partial *out)
{
    out->scalars[0] = clip_percentile_squares((const tn_real *)piece->g, piece->n, piece->scale);
}

/* Puts `norm` in the place that `old` has among n sorted values, and in order; an `old` above all takes the end. */
static void clip_percentile_replace(double *sorted, int64_t n, double old, double norm)
{
    int64_t at = 0;
    while (at < n - 1 && sorted[at] < old)
        at++;
    for (; at > 0 && sorted[at - 1] > norm; at--)
        sorted[at] = sorted[at - 1];
    for (; at < n - 1 && sorted[at + 1] < norm; at++)
        sorted[at] = sorted[at + 1];
    sorted[at] = norm;
}

static double clip_percentile_at(const double *sorted, int64_t n, double percentile)
{
    double place = percentile / 100 * (double)(n - 1), part = place - floor(place);
    int64_t below = (int64_t)place;
    return part > 0 ? sorted[below] + part * (sorted[below + 1] - sorted[below]) : sorted[below];
}

static void clip_percentile_fold(const tn_fold *fold)
{
    const clip_percentile *h = (const clip_percentile *)fold->hyper;
    const clip_percentile_slots *slots = (const clip_percentile_slots *)fold->slot;
    double *recent = (double *)slots->recent, *sorted = (double *)slots->sorted, *seen = (double *)slots->seen;
    double norm = sqrt(fold->sums[0]);
    int64_t before = (int64_t)*seen, at = before % h->window, n = before < h->window ? before + 1 : h->window;
    clip_percentile_replace(sorted, n, n > before ? INFINITY : recent[at], norm);
    recent[at] = norm;
    *seen += 1;
    double threshold = clip_percentile_at(sorted, n, h->percentile);
    double scale = before >= h->warmup && norm > threshold ? threshold / (norm + 1e-6) : 1;
    ((clip_percentile_constants *)fold->k)->scale = scale;
    fold->report[0] = norm;
    fold->report[1] = threshold;
    fold->report[2] = scale;
}

static double clip_percentile_scale(const void *k) { return ((const clip_percentile_constants *)k)->scale; }

static const tn_optimizer clip_percentile_table = {.struct_size = sizeof(tn_optimizer),
                                                   .constants_bytes = (uint32_t)sizeof(clip_percentile_constants),
                                                   .plan = clip_percentile_plan,
                                                   .partial = clip_percentile_partial,
                                                   .fold = clip_percentile_fold,
                                                   .scale = clip_percentile_scale};
TN_LINK(clip_percentile, "transform", HYPER, SLOTS, "Clip the gradient at a percentile of its past norms",
        TN_STAGE("gradient") TN_GRAIN("element") TN_ROUND("model", 1) TN_REPORTS("norm", "threshold", "scale")
            TN_PAPER("arXiv:2007.14469") TN_FORMULA("g = g min(1, percentile(norms) / (norm + 1e-6))"),
        clip_percentile_table)
TN_PLUGIN("org.tenon.clip-percentile", "0.1.0", "Apache-2.0", clip_percentile)
