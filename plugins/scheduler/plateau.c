/* SPDX-License-Identifier: Apache-2.0
 *
 * Reduce on plateau: the value is multiplied by `factor` each time that more than `patience` evaluations in a row
 * brought no better metric; the way of PyTorch's ReduceLROnPlateau, but that the relative threshold is taken of |best|,
 * so that a negative metric works, that a reduction may be of any size, and that a metric of inf or NaN is never the
 * best.
 */
#include <tenon/schedule.h>

#define HYPER(X)                                                                                                       \
    X(real, factor, 0.1, "(0, 1)", "what a reduction multiplies by")                                                   \
    X(integer, patience, 10, "[0, inf) evaluations", "evaluations without improvement that are put up with")           \
    X(integer, cooldown, 0, "[0, inf) evaluations", "evaluations after a reduction that do not count")                 \
    X(real, minimum, 0, "[0, inf)", "the value goes no lower")                                                         \
    X(real, threshold, 1e-4, "[0, inf)", "how much better is an improvement")                                          \
    X(choice, threshold_mode, relative, "relative | absolute", "of what the threshold is a part")                      \
    X(choice, mode, min, "min | max", "which way is better")                                                           \
    X(text, metric, "loss", "", "which of the evaluation's values is watched")                                         \
    X(integer, steps, 0, "[0, inf) steps", "updates it takes; 0: the rest of the run")
TN_DECLARE(plateau, HYPER)

#define SCALARS(S)                                                                                                     \
    S(seen, "finite evaluations")                                                                                      \
    S(best, "best metric")                                                                                             \
    S(waited, "evaluations without improvement")                                                                       \
    S(rest, "evaluations of cooldown left")                                                                            \
    S(reductions, "reductions so far")
TN_DECLARE_SCALARS(plateau_state, SCALARS)

static double plateau_value(const void *hyper, const tn_position *at, const double *slots)
{
    const plateau *h = (const plateau *)hyper;
    double value = at->base * pow(h->factor, ((const plateau_state *)slots)->reductions);
    return value > h->minimum ? value : at->base < h->minimum ? at->base : h->minimum;
}

static int plateau_better(const plateau *h, double metric, double best)
{
    double needed = h->threshold * (h->threshold_mode == 0 ? fabs(best) : 1);
    return h->mode == 0 ? metric < best - needed : metric > best + needed;
}

static void plateau_observe(const void *hyper, const tn_position *at, double metric, double *slots)
{
    const plateau *h = (const plateau *)hyper;
    plateau_state *s = (plateau_state *)slots;
    /* inf and NaN are never better, nor do they set the mark. */
    int better = isfinite(metric) && (s->seen == 0 || plateau_better(h, metric, s->best));
    (void)at;
    s->seen += isfinite(metric) != 0;
    if (better)
        s->best = metric;
    s->waited = better || s->rest > 0 ? 0 : s->waited + 1;
    s->rest = s->rest > 0 ? s->rest - 1 : 0;
    if (s->waited > (double)h->patience) {
        s->reductions++;
        s->waited = 0;
        s->rest = (double)h->cooldown;
    }
}

static const tn_scheduler plateau_table = {sizeof(tn_scheduler), 0, plateau_value, plateau_observe};
TN_COMPONENT(plateau, "scheduler", TN_SCHEDULER, 0u, HYPER, "Reduce when a metric no longer improves",
             TN_SCALARS_FACT(SCALARS) TN_FORMULA("max(minimum, base factor^reductions)"), plateau_table);
TN_PLUGIN("org.tenon.plateau", "0.1.0", "Apache-2.0", plateau)
