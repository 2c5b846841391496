/* SPDX-License-Identifier: Apache-2.0
 *
 * L-BFGS. Nocedal and Wright, Numerical Optimization, 2006, algorithms 7.4 and 7.5, with the two loops over
 * coefficients instead of vectors: Chen, Wang and Zhou, "Large-scale L-BFGS using MapReduce", NIPS 2014. The direction
 * is a sum of the pairs s, y and g; only their dot products are needed, and those of older pairs are remembered.
 * Step lengths satisfy the strong Wolfe conditions: algorithms 3.5 and 3.6 there, with cubic interpolation (3.59). A
 * pair is kept if s . y > 1e-8 |s| |y|. Both gradients of a pair are of the same samples.
 */
#include <tenon/minimize.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1, "(0, inf)", "first step length that is tried; without pairs at most 1 / |g|")                       \
    X(integer, history, 10, "[1, 30]", "pairs that are remembered")                                                    \
    X(integer, iterations, 1, "[1, 1000]", "iterations an update, all on the same samples")                            \
    X(integer, searches, 25, "[1, 100]", "evaluations to choose a step length, at most")
TN_DECLARE(lbfgs, HYPER)
#define SHOWN(S)                                                                                                       \
    S(s, signed, "steps, numbered from 0; besides them three transient vectors")                                       \
    S(y, signed, "changes of the gradient over those steps")

enum { START = TN_VECTOR_FIRST, DIRECTION, CHANGE, PAIRS, MOST = 30 };
static int32_t s_of(int i) { return PAIRS + 2 * i; }
static int32_t y_of(int i) { return PAIRS + 2 * i + 1; }

/* A step length, the loss there and its slope along the direction. */
typedef struct {
    double t, loss, slope;
} point;

typedef struct {
    double place, part, trial;
    double count, next; /* pairs; which one comes next, the oldest if there are `history` */
    double iteration, evaluations, tries;
    double square; /* |g|^2 at the start of an iteration */
    point start, at, last, low, high;
    double step;                     /* taken in the last iteration; 0: none was good */
    double broken;                   /* 1 if the last loss was not finite */
    double gram[2 * MOST][2 * MOST]; /* dot products of the pairs: s of pair i is 2 i, y is 2 i + 1 */
} lbfgs_memory;

static int32_t lbfgs_plan(const void *hyper, const tn_minimizer_planner *planner, tn_error *err)
{
    static const tn_slot slots[] = {TN_SLOT("start", "transient"), TN_SLOT("direction", "transient"),
                                    TN_SLOT("change", "transient")};
    int32_t status = planner->memory(planner->host, TN_DOUBLES(lbfgs_memory));
    (void)err;
    for (int i = 0; i < 3 && !status; i++)
        status = planner->slot(planner->host, &slots[i]);
    for (int i = 0; i < 2 * ((const lbfgs *)hyper)->history && !status; i++) {
        char name[24];
        snprintf(name, sizeof name, "%c.%d", i % 2 ? 'y' : 's', i / 2);
        const tn_slot slot = TN_SLOT(name, "signed");
        status = planner->slot(planner->host, &slot);
    }
    return status;
}

/* ---- the direction ---- */

/* Which pair is the `age`th newest. */
static int pair_of(const lbfgs *h, const lbfgs_memory *m, int age)
{
    return ((int)m->next - 1 - age + 2 * (int)h->history) % (int)h->history;
}

/* The dot product of vector v of the pairs with the direction so far: the sum of factor times vectors, and
 * factor[2 * MOST] times g; g_dot[v] is v . g. */
static double along(const lbfgs_memory *m, const double *factor, const double *g_dot, int v)
{
    double sum = factor[2 * MOST] * g_dot[v];
    for (int i = 0; i < 2 * (int)m->count; i++)
        sum += factor[i] * m->gram[v][i];
    return sum;
}

/* Factors of the direction -H g; its slope is returned. */
static double two_loops(const lbfgs *h, const lbfgs_memory *m, const double *g_dot, double *factor)
{
    double alpha[MOST], slope;
    int n = (int)m->count;
    memset(factor, 0, (2 * MOST + 1) * sizeof *factor);
    factor[2 * MOST] = -1;
    for (int age = 0; age < n; age++) {
        int i = pair_of(h, m, age);
        alpha[age] = along(m, factor, g_dot, 2 * i) / m->gram[2 * i][2 * i + 1];
        factor[2 * i + 1] -= alpha[age];
    }
    if (n > 0) {
        int i = pair_of(h, m, 0);
        double gamma = m->gram[2 * i][2 * i + 1] / m->gram[2 * i + 1][2 * i + 1];
        for (int v = 0; v <= 2 * MOST; v++)
            factor[v] *= gamma;
    }
    for (int age = n - 1; age >= 0; age--) {
        int i = pair_of(h, m, age);
        double beta = along(m, factor, g_dot, 2 * i + 1) / m->gram[2 * i][2 * i + 1];
        factor[2 * i] += alpha[age] - beta;
    }
    slope = factor[2 * MOST] * m->square;
    for (int v = 0; v < 2 * n; v++)
        slope += factor[v] * g_dot[v];
    return slope;
}

static void ask_direction(const tn_advance *call, tn_ask *ask, lbfgs_memory *m)
{
    double factor[2 * MOST + 1], g_dot[2 * MOST] = {0};
    int vectors = 2 * (int)m->count;
    m->square = call->answers[vectors];
    memcpy(g_dot, call->answers, (size_t)vectors * sizeof *g_dot);
    m->start.slope = two_loops((const lbfgs *)call->hyper, m, g_dot, factor);
    tn_ask_sum(ask, DIRECTION, factor[2 * MOST], TN_VECTOR_G);
    for (int v = 0; v < vectors; v++)
        tn_ask_sum(ask, DIRECTION, factor[v], PAIRS + v);
}

/* ---- the search ---- */

/* Where the cubic through both points and slopes has its minimum. NaN where it has none. */
static double cubic(point a, point b)
{
    double d = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t), root = sqrt(d * d - a.slope * b.slope);
    root = b.t > a.t ? root : -root;
    return b.t - (b.t - a.t) * (b.slope + root - d) / (b.slope - a.slope + 2 * root);
}

/* `t` if it lies in [lo, hi], else the middle. */
static double within(double t, double lo, double hi) { return t >= lo && t <= hi ? t : (lo + hi) / 2; }

static int sufficient(const lbfgs_memory *m) { return m->at.loss <= m->start.loss + 1e-4 * m->at.t * m->start.slope; }
static int flat(const lbfgs_memory *m) { return fabs(m->at.slope) <= -0.9 * m->start.slope; }

/* Evaluates m->at.t. A loss that is not finite stays so and has no slope. */
static int try_step(const tn_advance *call, tn_ask *ask, lbfgs_memory *m)
{
    TN_BEGIN(m->trial)
    tn_ask_sum(ask, TN_VECTOR_P, 1, START);
    tn_ask_sum(ask, TN_VECTOR_P, m->at.t, DIRECTION);
    TN_ASK(m->trial);
    tn_ask_evaluate(ask);
    TN_ASK(m->trial);
    m->tries++;
    m->evaluations++;
    m->at.loss = call->answers[0];
    m->broken = !isfinite(m->at.loss);
    tn_ask_dot(ask, TN_VECTOR_G, DIRECTION);
    TN_ASK(m->trial);
    m->at.slope = call->answers[0];
    TN_END(m->trial)
}

/* Widens from m->at.t until [low, high] holds good steps: 1; or the step at hand is good itself: 0. */
static int bracketed(lbfgs_memory *m)
{
    int first = m->last.t == 0;
    double least = m->at.t + 0.01 * (m->at.t - m->last.t), most = 10 * m->at.t, next;
    if (!sufficient(m) || (!first && m->at.loss >= m->last.loss) || !isfinite(m->at.slope)) {
        m->low = m->last;
        m->high = m->at;
        return 1;
    }
    if (!flat(m) && m->at.slope >= 0) {
        m->low = m->at;
        m->high = m->last;
        return 1;
    }
    m->step = flat(m) ? m->at.t : 0;
    next = cubic(m->last, m->at);
    m->last = m->low = m->at;
    m->at.t = m->step > 0 ? m->at.t : next >= least && next <= most ? next : most;
    return 0;
}

/* The next step inside, a tenth of the width away from both ends. */
static void choose_inside(lbfgs_memory *m)
{
    double lo = fmin(m->low.t, m->high.t), hi = fmax(m->low.t, m->high.t), edge = 0.1 * (hi - lo);
    m->at.t = within(cubic(m->low, m->high), lo + edge, hi - edge);
}

static void narrow(lbfgs_memory *m)
{
    if (!sufficient(m) || m->at.loss >= m->low.loss || !isfinite(m->at.slope)) {
        m->high = m->at;
        return;
    }
    m->step = flat(m) ? m->at.t : 0;
    if (m->at.slope * (m->high.t - m->low.t) >= 0)
        m->high = m->low;
    m->low = m->at;
}

/* From m->at.t on. Leaves p, g and m->at at the step taken, m->step; 0: none was better than the start. */
static int search(const tn_advance *call, tn_ask *ask, lbfgs_memory *m)
{
    double most = (double)((const lbfgs *)call->hyper)->searches;
    TN_BEGIN(m->part)
    m->tries = m->step = 0;
    m->last = m->low = m->start;
    do
        TN_AWAIT(m->part, try_step(call, ask, m));
    while (!bracketed(m) && m->step == 0 && m->tries < most);
    while (m->step == 0 && m->tries < most) {
        choose_inside(m);
        TN_AWAIT(m->part, try_step(call, ask, m));
        narrow(m);
    }
    if (m->step == 0 && m->low.t > 0) { /* lower than the start, though not flat */
        m->step = m->at.t = m->low.t;
        TN_AWAIT(m->part, try_step(call, ask, m));
    }
    TN_END(m->part)
}

/* ---- the pair of an iteration ---- */

static void note_gram(const tn_advance *call, lbfgs_memory *m, int i)
{
    for (int v = 0; v < 2 * (int)m->count; v++) {
        m->gram[2 * i][v] = m->gram[v][2 * i] = call->answers[2 * v];
        m->gram[2 * i + 1][v] = m->gram[v][2 * i + 1] = call->answers[2 * v + 1];
    }
}

static int add_pair(const tn_advance *call, tn_ask *ask, lbfgs_memory *m)
{
    int64_t history = ((const lbfgs *)call->hyper)->history;
    TN_BEGIN(m->part)
    tn_ask_sum(ask, CHANGE, 1, TN_VECTOR_G);
    tn_ask_sum(ask, CHANGE, -1, CHANGE);
    TN_ASK(m->part);
    tn_ask_dot(ask, DIRECTION, CHANGE);
    tn_ask_dot(ask, DIRECTION, DIRECTION);
    tn_ask_dot(ask, CHANGE, CHANGE);
    TN_ASK(m->part);
    if (call->answers[0] > 1e-8 * sqrt(call->answers[1]) * sqrt(call->answers[2])) {
        tn_ask_sum(ask, s_of((int)m->next), m->step, DIRECTION);
        TN_ASK(m->part);
        tn_ask_sum(ask, y_of((int)m->next), 1, CHANGE);
        TN_ASK(m->part);
        m->count = fmin(m->count + 1, (double)history);
        for (int v = 0; v < 2 * (int)m->count; v++) {
            tn_ask_dot(ask, s_of((int)m->next), PAIRS + v);
            tn_ask_dot(ask, y_of((int)m->next), PAIRS + v);
        }
        TN_ASK(m->part);
        note_gram(call, m, (int)m->next);
        m->next = (double)(((int64_t)m->next + 1) % history);
    }
    TN_END(m->part)
}

/* ---- the coroutine ---- */

/* The direction from here, and where and from what it starts. */
static int aim(const tn_advance *call, tn_ask *ask, lbfgs_memory *m)
{
    TN_BEGIN(m->part)
    for (int v = 0; v < 2 * (int)m->count; v++)
        tn_ask_dot(ask, TN_VECTOR_G, PAIRS + v);
    tn_ask_dot(ask, TN_VECTOR_G, TN_VECTOR_G);
    TN_ASK(m->part);
    ask_direction(call, ask, m);
    TN_ASK(m->part);
    tn_ask_sum(ask, START, 1, TN_VECTOR_P);
    TN_ASK(m->part);
    tn_ask_sum(ask, CHANGE, 1, TN_VECTOR_G);
    TN_ASK(m->part);
    m->at.t = ((const lbfgs *)call->hyper)->lr * (m->count > 0 ? 1 : fmin(1, 1 / sqrt(m->square)));
    TN_END(m->part)
}

static int lbfgs_advance(const tn_advance *call, tn_ask *ask)
{
    lbfgs_memory *m = (lbfgs_memory *)call->memory;
    TN_BEGIN(m->place)
    m->evaluations = m->iteration = m->step = m->broken = 0;
    m->start = (point){.loss = call->answers[0]};
    while (m->iteration < (double)((const lbfgs *)call->hyper)->iterations) {
        TN_AWAIT(m->place, aim(call, ask, m));
        if (m->square == 0)
            break;
        m->step = 0;
        if (m->start.slope < 0)
            TN_AWAIT(m->place, search(call, ask, m));
        if (m->step > 0) {
            TN_AWAIT(m->place, add_pair(call, ask, m));
            m->start.loss = m->at.loss;
            m->iteration++;
            continue;
        }
        tn_ask_sum(ask, TN_VECTOR_P, 1, START);
        TN_ASK(m->place);
        if (m->count == 0)
            break;
        m->count = m->next = 0; /* once more, from the gradient alone */
        tn_ask_evaluate(ask);
        TN_ASK(m->place);
    }
    call->report[0] = m->step;
    call->report[1] = m->evaluations;
    tn_ask_end(ask, m->iteration > 0 || !m->broken); /* no better step: this is as low as numbers tell */
    TN_END(m->place)
}

TN_MINIMIZER_RULE(lbfgs, HYPER, SHOWN, lbfgs_plan, 0, "Limited-memory BFGS with a strong Wolfe search",
                  TN_REPORTS("step", "evaluations") TN_FORMULA("p -= t H g, H from the last pairs of steps and changes "
                                                               "of the gradient"))
TN_PLUGIN("org.tenon.lbfgs", "0.1.0", "Apache-2.0", lbfgs)
