/* SPDX-License-Identifier: Apache-2.0
 *
 * minimizer.h: a minimizer, optimizer/bad, for plugins that are wrong in one way: gradient descent, the step halved
 * until the loss falls. A file has `bad_advance`.
 */
#ifndef TENON_TESTS_BAD_MINIMIZER_H
#define TENON_TESTS_BAD_MINIMIZER_H

#include <tenon/minimize.h>

#define HYPER(X) X(real, lr, 0.5, "(0, inf)", "first step size that is tried")
#define SHOWN(S) S(start, transient, "p before the step")
TN_DECLARE(bad, HYPER)

enum { START = TN_VECTOR_FIRST, SLOPE };

typedef struct {
    double place, loss, step, tries;
} bad_memory;

static int32_t bad_plan(const void *hyper, const tn_minimizer_planner *planner, tn_error *err)
{
    static const tn_slot slots[] = {TN_SLOT("start", "transient"), TN_SLOT("slope", "transient")};
    int32_t status = planner->memory(planner->host, TN_DOUBLES(bad_memory));
    (void)hyper, (void)err;
    for (int i = 0; i < 2 && !status; i++)
        status = planner->slot(planner->host, &slots[i]);
    return status;
}

/* `most`: tries before it gives up. */
static int descend(const tn_advance *call, tn_ask *ask, double lr, double most)
{
    bad_memory *m = (bad_memory *)call->memory;
    TN_BEGIN(m->place)
    m->loss = call->answers[0];
    m->step = lr;
    tn_ask_sum(ask, START, 1, TN_VECTOR_P);
    TN_ASK(m->place);
    tn_ask_sum(ask, SLOPE, 1, TN_VECTOR_G);
    TN_ASK(m->place);
    for (m->tries = 0; m->tries < most; m->tries++, m->step /= 2) {
        tn_ask_sum(ask, TN_VECTOR_P, 1, START);
        tn_ask_sum(ask, TN_VECTOR_P, -m->step, SLOPE);
        TN_ASK(m->place);
        tn_ask_evaluate(ask);
        TN_ASK(m->place);
        if (call->answers[0] <= m->loss)
            break;
    }
    tn_ask_end(ask, m->tries < most && isfinite(call->answers[0]));
    TN_END(m->place)
}

#define BAD_MINIMIZER(id)                                                                                              \
    TN_MINIMIZER_RULE(bad, HYPER, SHOWN, bad_plan, 0, "a test", "")                                                    \
    TN_PLUGIN("org.tenon.test." id, "0.1.0", "Apache-2.0", bad)

#endif
