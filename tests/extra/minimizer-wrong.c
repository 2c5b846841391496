/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of minimizers: plain descent with one fault at choice, in what it plans or asks for.
 */
#include <tenon/minimize.h>

#define HYPER(X)                                                                                                       \
    X(choice, fault, none,                                                                                             \
      "none | endless | kind | vector_a | vector_b | to_g | to_far | count | unannounced | twins | shape | init | "    \
      "flag | memory | careless | silent | null | name",                                                               \
      "what is wrong")                                                                                                 \
    X(real, lr, 0.125, "[0, inf)", "step size; from 1 on it plans a slot more")
TN_DECLARE(minimizer_wrong, HYPER)

enum {
    NONE,
    ENDLESS,
    KIND,
    VECTOR_A,
    VECTOR_B,
    TO_G,
    TO_FAR,
    COUNT,
    UNANNOUNCED,
    TWINS,
    SHAPE,
    INIT,
    FLAG,
    MEMORY,
    CARELESS,
    SILENT,
    NULL_SLOT,
    NAME
};
enum { TRACE = TN_VECTOR_FIRST, OTHER };

static int32_t minimizer_wrong_plan(const void *hyper, const tn_minimizer_planner *planner, tn_error *err)
{
    const minimizer_wrong *h = (const minimizer_wrong *)hyper;
    tn_slot slot = TN_SLOT("trace", "signed");
    int64_t fault = h->fault;
    (void)err;
    if (fault == SILENT)
        return TN_E_INVALID;
    planner->memory(planner->host, fault == MEMORY ? -1 : 2);
    planner->slot(planner->host, &slot);
    slot.name = fault == TWINS ? "trace" : fault == NAME ? "an other" : "other";
    slot.shape = fault == SHAPE ? "rows" : "like";
    slot.init = fault == INIT ? "identity" : "parameter";
    slot.flags = fault == FLAG || fault == CARELESS ? "unheard-of" : "transient";
    int32_t status = planner->slot(planner->host, fault == NULL_SLOT ? NULL : &slot);
    slot.name = "more";
    if (h->lr >= 1 && !status)
        status = planner->slot(planner->host, &slot);
    return fault == CARELESS ? TN_OK : status; /* goes on as if nothing had been refused */
}

static void ask_wrongly(int64_t fault, tn_ask *ask)
{
    tn_ask_sum(ask, fault == TO_G ? TN_VECTOR_G : fault == TO_FAR ? OTHER + 1 : TRACE, 1, TN_VECTOR_P);
    if (fault == KIND)
        ask->what = 99;
    if (fault == VECTOR_A)
        ask->a[0] = OTHER + 1;
    if (fault == COUNT)
        ask->count = TN_ASK_MAX + 1;
    if (fault == UNANNOUNCED)
        tn_ask_product(ask, TRACE, OTHER);
    if (fault == VECTOR_B)
        tn_ask_dot(ask, TN_VECTOR_P, -1);
}

static int minimizer_wrong_advance(const tn_advance *call, tn_ask *ask)
{
    const minimizer_wrong *h = (const minimizer_wrong *)call->hyper;
    double *place = &call->memory[0], *steps = &call->memory[1];
    TN_BEGIN(*place)
    ++*steps;
    tn_ask_sum(ask, TN_VECTOR_P, 1, TN_VECTOR_P);
    tn_ask_sum(ask, TN_VECTOR_P, -h->lr, TN_VECTOR_G);
    TN_ASK(*place);
    while (h->fault == ENDLESS) {
        tn_ask_dot(ask, TRACE, TRACE);
        TN_ASK(*place);
    }
    if (h->fault != NONE) {
        ask_wrongly(h->fault, ask);
        TN_ASK(*place);
    }
    tn_ask_end(ask, 1);
    TN_END(*place)
}

#define SHOWN(S) S(trace, signed, "nothing")
TN_MINIMIZER_RULE(minimizer_wrong, HYPER, SHOWN, minimizer_wrong_plan, 0, "Descent with a fault", "")
TN_PLUGIN("org.tenon.test.minimizer-wrong", "0.1.0", "Apache-2.0", minimizer_wrong)
