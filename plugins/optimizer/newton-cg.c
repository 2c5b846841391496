/* SPDX-License-Identifier: Apache-2.0
 *
 * Newton's method by conjugate gradients. Nocedal and Wright, Numerical Optimization, 2006, algorithm 7.1:
 *   (H + damping) z = -g by conjugate gradients from z = 0, until |r| <= min(forcing, sqrt |g|) |g| or until a
 *   direction d has d . (H + damping) d <= 0; then p += t z, t = lr, lr / 2, ... by Armijo's condition.
 * Where already the first direction, -g, has no positive curvature, it is the step. With negative_curvature `ignore` it
 * goes on through such directions and solves the system as it is: Newton's step, which saddle points attract.
 */
#include <tenon/minimize.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1, "(0, inf)", "first step length that is tried")                                                      \
    X(real, damping, 0, "[0, inf)", "added to the Hessian's diagonal")                                                 \
    X(real, forcing, 0.5, "[0, 1)", "largest relative residual at which the inner solution is good enough")            \
    X(integer, iterations, 50, "[1, 4000]", "Hessian products an update, at most")                                     \
    X(integer, searches, 20, "[0, 100]", "evaluations to choose the step length, at most; 0: it is lr")                \
    X(choice, negative_curvature, stop, "stop | ignore",                                                               \
      "what to do where the Hessian is not positive along a "                                                          \
      "direction")
TN_DECLARE(newton_cg, HYPER)
#define SHOWN(S) S(step, transient, "of the inner solution, with its residual, direction and product")

enum { START = TN_VECTOR_FIRST, STEP, RESIDUAL, DIRECTION, PRODUCT };

typedef struct {
    double place, part;
    double norm;     /* |g| */
    double square;   /* |r|^2 */
    double factor;   /* of the last step along the direction; then the last direction's share of the next */
    double products; /* so far */
    tn_backtrack search;
} newton_cg_memory;

static int32_t newton_cg_plan(const void *hyper, const tn_minimizer_planner *planner, tn_error *err)
{
    static const tn_slot slots[] = {TN_SLOT("start", "transient"), TN_SLOT("step", "transient"),
                                    TN_SLOT("residual", "transient"), TN_SLOT("direction", "transient"),
                                    TN_SLOT("product", "transient")};
    int32_t status = planner->memory(planner->host, TN_DOUBLES(newton_cg_memory));
    (void)hyper;
    (void)err;
    for (int i = 0; i < 5 && !status; i++)
        status = planner->slot(planner->host, &slots[i]);
    return status;
}

/* One inner iteration. Leaves factor 0 where the direction has no curvature to go by. */
static int newton_cg_iterate(const tn_advance *call, tn_ask *ask, newton_cg_memory *m)
{
    const newton_cg *h = (const newton_cg *)call->hyper;
    double curvature, before = m->square;
    TN_BEGIN(m->part)
    tn_ask_product(ask, DIRECTION, PRODUCT);
    TN_ASK(m->part);
    tn_ask_dot(ask, DIRECTION, PRODUCT);
    tn_ask_dot(ask, DIRECTION, DIRECTION);
    TN_ASK(m->part);
    m->products++;
    curvature = call->answers[0] + h->damping * call->answers[1];
    m->factor = curvature > 0 || (h->negative_curvature && curvature < 0) ? m->square / curvature : 0;
    if (m->factor != 0) {
        tn_ask_sum(ask, STEP, 1, STEP);
        tn_ask_sum(ask, STEP, m->factor, DIRECTION);
        TN_ASK(m->part);
        tn_ask_sum(ask, RESIDUAL, 1, RESIDUAL);
        tn_ask_sum(ask, RESIDUAL, m->factor, PRODUCT);
        tn_ask_sum(ask, RESIDUAL, m->factor * h->damping, DIRECTION);
        TN_ASK(m->part);
        tn_ask_dot(ask, RESIDUAL, RESIDUAL);
        TN_ASK(m->part);
        m->factor = call->answers[0] / before;
        m->square = call->answers[0];
        tn_ask_sum(ask, DIRECTION, m->factor, DIRECTION);
        tn_ask_sum(ask, DIRECTION, -1, RESIDUAL);
        TN_ASK(m->part);
    } else if (m->products == 1) {
        tn_ask_sum(ask, STEP, 1, DIRECTION); /* -g */
        TN_ASK(m->part);
    }
    TN_END(m->part)
}

static int newton_cg_advance(const tn_advance *call, tn_ask *ask)
{
    const newton_cg *h = (const newton_cg *)call->hyper;
    newton_cg_memory *m = (newton_cg_memory *)call->memory;
    TN_BEGIN(m->place)
    m->search = (tn_backtrack){.loss = call->answers[0], .step = h->lr};
    tn_ask_dot(ask, TN_VECTOR_G, TN_VECTOR_G);
    TN_ASK(m->place);
    m->square = call->answers[0];
    m->norm = sqrt(m->square);
    tn_ask_sum(ask, START, 1, TN_VECTOR_P);
    TN_ASK(m->place);
    tn_ask_sum(ask, STEP, 0, TN_VECTOR_G);
    TN_ASK(m->place);
    tn_ask_sum(ask, RESIDUAL, 1, TN_VECTOR_G);
    TN_ASK(m->place);
    tn_ask_sum(ask, DIRECTION, -1, TN_VECTOR_G);
    TN_ASK(m->place);
    m->factor = 1;
    for (m->products = 0; m->factor != 0 && m->products < (double)h->iterations &&
                          sqrt(m->square) > fmin(h->forcing, sqrt(m->norm)) * m->norm;)
        TN_AWAIT(m->place, newton_cg_iterate(call, ask, m));
    tn_ask_dot(ask, TN_VECTOR_G, STEP);
    TN_ASK(m->place);
    m->search.slope = call->answers[0];
    if (h->searches > 0 && isfinite(m->search.slope))
        TN_AWAIT(m->place, tn_backtrack_search(call, ask, &m->search, START, STEP, h->searches));
    else {
        tn_ask_sum(ask, TN_VECTOR_P, 1, START);
        tn_ask_sum(ask, TN_VECTOR_P, h->lr, STEP);
        TN_ASK(m->place);
    }
    call->report[0] = m->search.step;
    call->report[1] = m->products;
    tn_ask_end(ask, !m->search.broken && isfinite(m->search.slope));
    TN_END(m->place)
}

TN_MINIMIZER_RULE(newton_cg, HYPER, SHOWN, newton_cg_plan, 1, "Newton's method by conjugate gradients",
                  TN_REPORTS("step", "products")
                      TN_FORMULA("p -= t (H + damping)^-1 g, solved until |r| <= min(forcing, sqrt |g|) |g|"))
TN_PLUGIN("org.tenon.newton-cg", "0.1.0", "Apache-2.0", newton_cg)
