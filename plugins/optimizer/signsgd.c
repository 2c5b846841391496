/* SPDX-License-Identifier: Apache-2.0
 *
 * SignSGD, and with momentum Signum. Bernstein, Wang, Azizzadenesheli and Anandkumar, ICML 2018, arXiv:1802.04434,
 * Algorithms 1 and 2. `weight_decay` is decoupled.
 */
#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1e-4, "[0, inf)", "step size")                                                                         \
    X(real, momentum, 0.9, "[0, 1)", "decay of the mean of the gradient; 0: none")                                     \
    X(real, weight_decay, 0, "[0, inf)", "decoupled decay, multiplied by lr")
#define SLOTS(S) S(m, like, zero, signed, "mean of the gradient; only if momentum is not 0")
TN_DECLARE_RULE(signsgd, HYPER, SLOTS)
SLOTS(TN_SLOT_RECORD)

typedef struct {
    tn_real lr, momentum, rest;
    double keep;
} signsgd_constants;

static int32_t signsgd_plan(const tn_parameter *parameter, const void *hyper, const tn_slot_planner *planner,
                            tn_error *err)
{
    (void)parameter;
    (void)err;
    return ((const signsgd *)hyper)->momentum > 0 ? planner->slot(planner->host, &slot_m) : TN_OK;
}

static void signsgd_begin(const void *hyper, const tn_clock *clock, void *constants)
{
    const signsgd *h = (const signsgd *)hyper;
    signsgd_constants *k = (signsgd_constants *)constants;
    (void)clock;
    k->lr = (tn_real)h->lr;
    k->momentum = (tn_real)h->momentum;
    k->rest = (tn_real)(1 - h->momentum);
    k->keep = 1 - h->lr * h->weight_decay;
}

/* 0 times x: 0, but NaN where x is no number, which a sign would hide. */
TN_BOTH tn_real signsgd_step(signsgd_constants k, tn_real x) { return -k.lr * tn_sign(x) + 0 * x; }

TN_BOTH tn_real signsgd_plain_element(signsgd_constants k, tn_real p, tn_real g)
{
    (void)p;
    return signsgd_step(k, g);
}

TN_BOTH tn_real signsgd_mean_element(signsgd_constants k, tn_real p, tn_real g, tn_real *m)
{
    (void)p;
    *m = k.momentum * *m + k.rest * g;
    return signsgd_step(k, *m);
}

TN_ELEMENT_UPDATE(signsgd_plain, signsgd_plain_element, signsgd_constants, signsgd_slots, TN_NO_SLOTS)
TN_ELEMENT_UPDATE(signsgd_mean, signsgd_mean_element, signsgd_constants, signsgd_slots, SLOTS)

static void signsgd_update(const tn_piece *piece)
{
    if (piece->slot)
        signsgd_mean_update(piece);
    else
        signsgd_plain_update(piece);
}

static double signsgd_keep(const void *k) { return ((const signsgd_constants *)k)->keep; }

static const tn_optimizer signsgd_table = {.struct_size = sizeof(tn_optimizer),
                                           .constants_bytes = (uint32_t)sizeof(signsgd_constants),
                                           .plan = signsgd_plan,
                                           .begin = signsgd_begin,
                                           .update = signsgd_update,
                                           .keep = signsgd_keep};
TN_LINK(signsgd, "optimizer", HYPER, SLOTS, "Steps by the sign alone",
        TN_STAGE("rule") TN_GRAIN("element") TN_PAPER("arXiv:1802.04434")
            TN_FORMULA("m = momentum m + (1 - momentum) g; p = (1 - lr wd) p - lr sign(m)"),
        signsgd_table)
TN_PLUGIN("org.tenon.signsgd", "0.1.0", "Apache-2.0", signsgd)
