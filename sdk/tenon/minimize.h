/* SPDX-License-Identifier: Apache-2.0
 *
 * tenon/minimize.h: minimizers written from top to bottom, though the host calls `advance` once a request.
 *
 *   typedef struct { double place, loss; } halver_memory;                what must survive a request: doubles only
 *   static int halver_advance(const tn_advance *call, tn_ask *ask)
 *   {
 *       halver_memory *m = (halver_memory *)call->memory;
 *       TN_BEGIN(m->place)
 *       m->loss = call->answers[0];
 *       tn_ask_sum(ask, TN_VECTOR_P, 0.5, TN_VECTOR_P);
 *       TN_ASK(m->place);
 *       tn_ask_evaluate(ask);
 *       TN_ASK(m->place);                                                the answers are there behind it
 *       tn_ask_end(ask, call->answers[0] < m->loss);
 *       TN_END(m->place)
 *   }
 *   TN_MINIMIZER_RULE(halver, HYPER, halver_plan, 0, "summary", TN_FORMULA("..."))
 *
 * Local variables do not survive a request. Between TN_BEGIN and TN_END there may be loops and conditions, but no
 * switch and no two requests on one line. A step is over when TN_END is reached after tn_ask_end. A part that asks too
 * is a function of its own, with a place of its own, run by TN_AWAIT.
 */
#ifndef TENON_MINIMIZE_H
#define TENON_MINIMIZE_H

#include <tenon/minimizer.h>
#include <tenon/rule.h>

/* ---- coroutines ---- */

#define TN_BEGIN(place)                                                                                                \
    switch ((int)(place)) {                                                                                            \
    default:
#define TN_END(place)                                                                                                  \
    }                                                                                                                  \
    (place) = 0;                                                                                                       \
    return 0;
#define TN_ASK(place)                                                                                                  \
    do {                                                                                                               \
        (place) = __LINE__;                                                                                            \
        return 1;                                                                                                      \
    case __LINE__:;                                                                                                    \
    } while (0)
/* Runs a part until it returns 0. */
#define TN_AWAIT(place, part)                                                                                          \
    do {                                                                                                               \
        (place) = __LINE__;                                                                                            \
        __attribute__((fallthrough));                                                                                  \
    case __LINE__:                                                                                                     \
        if (part)                                                                                                      \
            return 1;                                                                                                  \
    } while (0)

/* ---- requests ---- */

/* One dot product more; its answer is answers[the value returned]. */
static inline TN_UNUSED int32_t tn_ask_dot(tn_ask *ask, int32_t a, int32_t b)
{
    ask->what = TN_ASK_DOTS;
    ask->a[ask->count] = a;
    ask->b[ask->count] = b;
    return ask->count++;
}

/* vector `to` = factor * a, or one term more of that sum. */
static inline TN_UNUSED void tn_ask_sum(tn_ask *ask, int32_t to, double factor, int32_t a)
{
    ask->what = TN_ASK_COMBINE;
    ask->to = to;
    ask->a[ask->count] = a;
    ask->factor[ask->count++] = factor;
}

static inline TN_UNUSED void tn_ask_evaluate(tn_ask *ask) { ask->what = TN_ASK_EVALUATE; }

static inline TN_UNUSED void tn_ask_product(tn_ask *ask, int32_t a, int32_t to)
{
    ask->what = TN_ASK_PRODUCT;
    ask->a[0] = a;
    ask->to = to;
}

static inline TN_UNUSED void tn_ask_end(tn_ask *ask, int commit) { ask->what = commit ? TN_ASK_COMMIT : TN_ASK_REJECT; }

/* ---- a backtracking search: Armijo's condition, Nocedal and Wright 2006, algorithm 3.1 ---- */

typedef struct tn_backtrack {
    double place;
    double loss, slope; /* at `from`, and along the direction: set before */
    double step;        /* the first one, set before; then the one taken, or 0: then p is `from` again */
    double evaluations;
    double broken; /* 1 if the last loss was not finite */
} tn_backtrack;

/* p = from + step * direction, the step halved until the loss falls by 1e-4 of what the slope promises; `most`
 * evaluations. A part. */
static inline TN_UNUSED int tn_backtrack_search(const tn_advance *call, tn_ask *ask, tn_backtrack *s, int32_t from,
                                                int32_t direction, int64_t most)
{
    TN_BEGIN(s->place)
    for (s->evaluations = 0; s->evaluations < (double)most; s->step /= 2) {
        tn_ask_sum(ask, TN_VECTOR_P, 1, from);
        tn_ask_sum(ask, TN_VECTOR_P, s->step, direction);
        TN_ASK(s->place);
        tn_ask_evaluate(ask);
        TN_ASK(s->place);
        s->evaluations++;
        s->broken = !isfinite(call->answers[0]);
        if (!s->broken && call->answers[0] <= s->loss + 1e-4 * s->step * fmin(s->slope, 0))
            break;
        s->step = s->evaluations == (double)most ? 0 : s->step;
    }
    if (s->step == 0) {
        tn_ask_sum(ask, TN_VECTOR_P, 1, from);
        TN_ASK(s->place);
    }
    TN_END(s->place)
}

/* ---- the component ---- */

#define TN_SLOT(name, flags)                                                                                           \
    {                                                                                                                  \
        sizeof(tn_slot), 0, name, "like", "zero", flags, NULL                                                          \
    }
#define TN_DOUBLES(type)                ((int64_t)(sizeof(type) / sizeof(double)))
#define TN_SHOWN_SLOT(name, flags, doc) TN_SLOT_TEXT(name, like, zero, flags, doc)

/* SHOWN(S): rows S(name, flags, doc) that tell people of the slots, with bare words for name and flags,
 * S(start, transient, "..."); what counts is what plan_ asks for. products_: 1 if it asks for Hessian products. */
#define TN_MINIMIZER_RULE(name, HYPER, SHOWN, plan_, products_, summary, facts)                                        \
    static void name##_call_(const tn_advance *call, tn_ask *ask) { name##_advance(call, ask); }                       \
    static const tn_minimizer name##_table = {sizeof(tn_minimizer), products_, TN_CALL(plan_), TN_CALL(name##_call_)}; \
    TN_COMPONENT(name, "optimizer", TN_MINIMIZER, TN_REAL, HYPER, summary,                                             \
                 TN_STAGE("rule") TN_GRAIN("model") ",\"slots\":[" SHOWN(TN_SHOWN_SLOT) "null]" facts, name##_table);

#endif
