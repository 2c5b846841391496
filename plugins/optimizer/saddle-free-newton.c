/* SPDX-License-Identifier: Apache-2.0
 *
 * Saddle-free Newton. Dauphin et al. 2014, arXiv:1406.2572, algorithm 1: p -= t (|H| + damping)^-1 g within a Krylov
 * space, where |H| has the absolute values of H's eigenvalues, so that directions of negative curvature lead away from
 * a saddle point. The space is that of k Lanczos vectors from g / |g| on, each orthogonalised twice against all before
 * it: with T = V^T H V = U diag(e) U^T the step is -V U (|e| + damping)^-1 U^T V^T g. Its length t = lr, lr / 2, ... is
 * chosen by Armijo's condition; the paper tries several values of the damping instead.
 */
#include <tenon/minimize.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1, "(0, inf)", "first step length that is tried")                                                      \
    X(real, damping, 1e-3, "[0, inf)", "added to the absolute curvature")                                              \
    X(integer, vectors, 10, "[1, 32]", "dimensions of the Krylov space: Hessian products an update")                   \
    X(integer, searches, 20, "[0, 100]", "evaluations to choose the step length, at most; 0: it is lr")
TN_DECLARE(saddle_free_newton, HYPER)
#define SHOWN(S) S(basis, transient, "the Lanczos vectors, numbered from 0; besides them a start and a step")

enum { START = TN_VECTOR_FIRST, STEP, NEXT, BASIS, MOST = 32 };

typedef struct {
    double place, part;
    double norm;                       /* |g| */
    double count, pass;                /* Lanczos vectors so far; of the next one's orthogonalisation */
    double diagonal[MOST], side[MOST]; /* of T; side[j] between j and j + 1 */
    double negative;                   /* eigenvalues below 0 */
    tn_backtrack search;
} saddle_free_newton_memory;

static int32_t saddle_free_newton_plan(const void *hyper, const tn_minimizer_planner *planner, tn_error *err)
{
    static const tn_slot slots[] = {TN_SLOT("start", "transient"), TN_SLOT("step", "transient"),
                                    TN_SLOT("next", "transient")};
    int32_t status = planner->memory(planner->host, TN_DOUBLES(saddle_free_newton_memory));
    (void)err;
    for (int i = 0; i < 3 && !status; i++)
        status = planner->slot(planner->host, &slots[i]);
    for (int64_t i = 0; i < ((const saddle_free_newton *)hyper)->vectors && !status; i++) {
        char name[24];
        snprintf(name, sizeof name, "basis.%d", (int)i);
        const tn_slot slot = TN_SLOT(name, "transient");
        status = planner->slot(planner->host, &slot);
    }
    return status;
}

/* ---- the small eigenproblem ---- */

/* Rotates rows and columns i and j so that a[i][j] becomes 0: Jacobi 1846. u collects the rotations. */
static void rotate(int n, double a[MOST][MOST], double u[MOST][MOST], int i, int j)
{
    double theta = (a[j][j] - a[i][i]) / (2 * a[i][j]);
    double t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1)), c = 1 / sqrt(t * t + 1), s = t * c;
    for (int k = 0; k < n; k++) {
        double x = a[k][i], y = a[k][j];
        a[k][i] = c * x - s * y;
        a[k][j] = s * x + c * y;
    }
    for (int k = 0; k < n; k++) {
        double x = a[i][k], y = a[j][k];
        a[i][k] = c * x - s * y;
        a[j][k] = s * x + c * y;
    }
    for (int k = 0; k < n; k++) {
        double x = u[k][i], y = u[k][j];
        u[k][i] = c * x - s * y;
        u[k][j] = s * x + c * y;
    }
}

/* a becomes diagonal; column j of u is the eigenvector of a[j][j]. Sweeps until nothing off the diagonal counts. */
static void diagonalise(int n, double a[MOST][MOST], double u[MOST][MOST])
{
    double size = 0, off = 1;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            u[i][j] = i == j;
            size = fmax(size, fabs(a[i][j]));
        }
    for (int sweep = 0; sweep < 30 && off > 1e-15 * size; sweep++) {
        off = 0;
        for (int i = 0; i < n; i++)
            for (int j = i + 1; j < n; j++) {
                off = fmax(off, fabs(a[i][j]));
                if (fabs(a[i][j]) > 1e-300)
                    rotate(n, a, u, i, j);
            }
    }
}

/* The coefficients of the step in the basis. Directions without curvature get none. */
static void coefficients(const saddle_free_newton *h, saddle_free_newton_memory *m, double *ret)
{
    double a[MOST][MOST] = {{0}}, u[MOST][MOST], size = 0;
    int n = (int)m->count;
    for (int i = 0; i < n; i++) {
        a[i][i] = m->diagonal[i];
        if (i + 1 < n)
            a[i][i + 1] = a[i + 1][i] = m->side[i];
        ret[i] = 0;
    }
    diagonalise(n, a, u);
    m->negative = 0;
    for (int j = 0; j < n; j++)
        size = fmax(size, fabs(a[j][j]) + h->damping);
    for (int j = 0; j < n; j++) {
        double curvature = fabs(a[j][j]) + h->damping;
        m->negative += a[j][j] < 0;
        for (int i = 0; !(curvature <= 1e-12 * size) && i < n; i++)
            ret[i] -= u[i][j] * u[0][j] * m->norm / curvature;
    }
}

/* ---- the coroutine ---- */

/* NEXT = H v_j, made orthogonal to the basis twice. The last entries of T and |NEXT| are noted. */
static int lanczos(const tn_advance *call, tn_ask *ask, saddle_free_newton_memory *m)
{
    int j = (int)m->count;
    TN_BEGIN(m->part)
    tn_ask_product(ask, BASIS + j, NEXT);
    TN_ASK(m->part);
    m->diagonal[j] = 0;
    for (m->pass = 0; m->pass < 2; m->pass++) {
        for (int i = 0; i <= j; i++)
            tn_ask_dot(ask, NEXT, BASIS + i);
        TN_ASK(m->part);
        m->diagonal[j] += call->answers[j];
        tn_ask_sum(ask, NEXT, 1, NEXT);
        for (int i = 0; i <= j; i++)
            tn_ask_sum(ask, NEXT, -call->answers[i], BASIS + i);
        TN_ASK(m->part);
    }
    tn_ask_dot(ask, NEXT, NEXT);
    TN_ASK(m->part);
    m->side[j] = sqrt(call->answers[0]);
    m->count++;
    TN_END(m->part)
}

/* 1 if the space is as large as it gets: full, invariant under H, or not finite. */
static int complete(const saddle_free_newton *h, const saddle_free_newton_memory *m)
{
    int n = (int)m->count;
    double size = 0;
    for (int i = 0; i < n; i++)
        size = fmax(size, fmax(fabs(m->diagonal[i]), m->side[i]));
    return n == h->vectors || !(m->side[n - 1] > 1e-8 * size);
}

static void ask_step(const saddle_free_newton *h, saddle_free_newton_memory *m, tn_ask *ask)
{
    double factor[MOST];
    coefficients(h, m, factor);
    for (int i = 0; i < (int)m->count; i++)
        tn_ask_sum(ask, STEP, factor[i], BASIS + i);
    m->search.slope = m->norm * factor[0]; /* the basis begins with g / |g| */
}

static int saddle_free_newton_advance(const tn_advance *call, tn_ask *ask)
{
    const saddle_free_newton *h = (const saddle_free_newton *)call->hyper;
    saddle_free_newton_memory *m = (saddle_free_newton_memory *)call->memory;
    TN_BEGIN(m->place)
    m->search = (tn_backtrack){.loss = call->answers[0], .step = h->lr};
    m->count = m->negative = 0;
    tn_ask_dot(ask, TN_VECTOR_G, TN_VECTOR_G);
    TN_ASK(m->place);
    m->norm = sqrt(call->answers[0]);
    if (m->norm > 0) {
        tn_ask_sum(ask, BASIS, 1 / m->norm, TN_VECTOR_G);
        TN_ASK(m->place);
        TN_AWAIT(m->place, lanczos(call, ask, m));
        while (!complete(h, m)) {
            tn_ask_sum(ask, BASIS + (int)m->count, 1 / m->side[(int)m->count - 1], NEXT);
            TN_ASK(m->place);
            TN_AWAIT(m->place, lanczos(call, ask, m));
        }
        tn_ask_sum(ask, START, 1, TN_VECTOR_P);
        TN_ASK(m->place);
        ask_step(h, m, ask);
        TN_ASK(m->place);
        if (h->searches > 0 && isfinite(m->search.slope))
            TN_AWAIT(m->place, tn_backtrack_search(call, ask, &m->search, START, STEP, h->searches));
        else {
            tn_ask_sum(ask, TN_VECTOR_P, 1, START);
            tn_ask_sum(ask, TN_VECTOR_P, h->lr, STEP);
            TN_ASK(m->place);
        }
    }
    call->report[0] = m->search.step;
    call->report[1] = m->negative;
    tn_ask_end(ask, !m->search.broken && isfinite(m->search.slope));
    TN_END(m->place)
}

TN_MINIMIZER_RULE(saddle_free_newton, HYPER, SHOWN, saddle_free_newton_plan, 1,
                  "Newton's method with absolute curvature, in a Krylov space",
                  TN_REPORTS("step", "negative") TN_PAPER("arXiv:1406.2572")
                      TN_FORMULA("p -= t V (|V^T H V| + damping)^-1 V^T g"))
TN_PLUGIN("org.tenon.saddle-free-newton", "0.1.0", "Apache-2.0", saddle_free_newton)
