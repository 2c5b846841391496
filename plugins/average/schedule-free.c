/* SPDX-License-Identifier: Apache-2.0
 *
 * Schedule-free learning. Defazio et al. 2024, arXiv:2405.15682, equations 6 to 8: gradients are taken at y, between
 * the fast iterate z, which the rule moves, and its average x, which is evaluated: z <- z + d,  x <- (1 - c) x + c z,
 * y <- (1 - beta) z + beta x The parameter is y. The rule before it brings no momentum of its own (sgd, or adamw with
 * beta1 0) and no schedule but a warm-up. As in the authors' code a step weighs in c by the square of its rate: give
 * that warm-up's length here.
 */
#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(real, beta, 0.9, "[0, 1)", "how far y stands from z towards x")                                                  \
    X(integer, warmup, 0, "[0, inf) steps", "length of the linear warm-up of the rule's rate; its steps weigh less")
#define SLOTS(S)                                                                                                       \
    S(z, like, parameter, signed, "where the rule stands")                                                             \
    S(x, like, parameter, signed, "the average, to be evaluated")
TN_DECLARE_RULE(schedule_free, HYPER, SLOTS)

typedef struct {
    tn_real beta, one_minus_beta, c;
} schedule_free_constants;

/* The sum of the squares of min(1, i / warmup) over i = 1 .. t. */
static double schedule_free_weight(double t, double warmup)
{
    double ramp = t < warmup ? t : warmup;
    double squares = warmup > 0 ? ramp * (ramp + 1) * (2 * ramp + 1) / (6 * warmup * warmup) : 0;
    return squares + (t > warmup ? t - warmup : 0);
}

static void schedule_free_begin(const void *hyper, const tn_clock *clock, void *constants)
{
    const schedule_free *h = (const schedule_free *)hyper;
    schedule_free_constants *k = (schedule_free_constants *)constants;
    double t = (double)clock->t, warmup = (double)h->warmup, rate = t < warmup ? t / warmup : 1;
    k->beta = (tn_real)h->beta;
    k->one_minus_beta = (tn_real)(1 - h->beta);
    k->c = (tn_real)(rate * rate / schedule_free_weight(t, warmup));
}

/* `keep` p + d would be the next p, so the step that decay and rule ask for is d - (1 - keep) p. */
TN_CLONES static void schedule_free_loop(schedule_free_constants k, int64_t n, tn_real keep,
                                         const tn_real *__restrict p, tn_real *__restrict d, tn_real *__restrict z,
                                         tn_real *__restrict x)
{
    const tn_real lost = 1 - keep;
    for (int64_t i = 0; i < n; i++) {
        z[i] += d[i] - lost * p[i];
        x[i] += k.c * (z[i] - x[i]);
        d[i] = k.one_minus_beta * z[i] + k.beta * x[i];
    }
}

static void schedule_free_update(const tn_piece *piece)
{
    const schedule_free_slots *s = (const schedule_free_slots *)piece->slot;
    schedule_free_loop(*(const schedule_free_constants *)piece->k, piece->n, (tn_real)piece->scale,
                       (const tn_real *)piece->p, (tn_real *)piece->d, (tn_real *)s->z, (tn_real *)s->x);
}

static const tn_optimizer schedule_free_table = {.struct_size = sizeof(tn_optimizer),
                                                 .constants_bytes = (uint32_t)sizeof(schedule_free_constants),
                                                 .begin = schedule_free_begin,
                                                 .update = schedule_free_update};
TN_LINK(schedule_free, "average", HYPER, SLOTS, "Averaging instead of a schedule; evaluates the average",
        TN_STAGE("write") TN_VIEW(x) TN_PAPER("arXiv:2405.15682")
            TN_FORMULA("z = z + d; x = (1 - c) x + c z; p = (1 - beta) z + beta x"),
        schedule_free_table)
TN_PLUGIN("org.tenon.schedule-free", "0.1.0", "Apache-2.0", schedule_free)
