/* SPDX-License-Identifier: Apache-2.0
 *
 * Exponential moving average of the parameters (Polyak and Juditsky, SIAM J. Control Optim. 30, 1992, with weights that
 * forget): average <- decay * average + (1 - decay) * p after each update. It starts as the first parameters.
 * `warmup` takes decay_t = min(decay, (1 + t) / (10 + t)) with t = 1 at the first update, as
 * tf.train.ExponentialMovingAverage(num_updates) does, so that early averages forget the start quickly.
 */
#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(real, decay, 0.999, "[0, 1]", "what the average keeps at an update")                                             \
    X(flag, warmup, false, "", "begin with a smaller decay: min(decay, (1 + t) / (10 + t))")
#define SLOTS(S) S(average, like, parameter, signed, "average of the parameter")
TN_DECLARE_RULE(ema, HYPER, SLOTS)

typedef struct {
    tn_real decay, weight;
} ema_constants;

static void ema_begin(const void *hyper, const tn_clock *clock, void *k)
{
    const ema *h = (const ema *)hyper;
    double t = (double)clock->t, decay = h->warmup ? fmin(h->decay, (1 + t) / (10 + t)) : h->decay;
    ((ema_constants *)k)->decay = (tn_real)decay;
    ((ema_constants *)k)->weight = (tn_real)(1 - decay);
}

/* From the nearer end: an average that equals p stays, decay 0 gives p and decay 1 the old average, bit for bit. */
TN_CLONES static void ema_loop(ema_constants k, int64_t n, const tn_real *__restrict p, tn_real *__restrict average)
{
    for (int64_t i = 0; i < n; i++) {
        tn_real gap = p[i] - average[i];
        average[i] = k.weight < (tn_real)0.5 ? average[i] + k.weight * gap : p[i] - k.decay * gap;
    }
}

static void ema_update(const tn_piece *piece)
{
    const ema_slots *slots = (const ema_slots *)piece->slot;
    ema_loop(*(const ema_constants *)piece->k, piece->n, (const tn_real *)piece->p, (tn_real *)slots->average);
}

static const tn_optimizer ema_table = {.struct_size = sizeof(tn_optimizer),
                                       .constants_bytes = (uint32_t)sizeof(ema_constants),
                                       .begin = ema_begin,
                                       .update = ema_update};
TN_LINK(ema, "average", HYPER, SLOTS, "Exponential moving average of the parameters",
        TN_STAGE("after") TN_GRAIN("element") TN_VIEW(average) TN_FORMULA("average = decay average + (1 - decay) p"),
        ema_table)
TN_PLUGIN("org.tenon.ema", "0.1.0", "Apache-2.0", ema)
