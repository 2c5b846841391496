/* SPDX-License-Identifier: Apache-2.0
 *
 * Adaptive gradient clipping: each row of a matrix, an output's weights, is clipped to a part of the parameter's norm.
 * Brock, De, Smith and Simonyan, ICML 2021, arXiv:2102.06171, equation 3, with the 1e-6 of its program: a norm of the
 * gradient is no less than that. Other parameters are one row. The paper leaves the last layer out: give it `on`.
 */
#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(real, clip, 0.01, "(0, inf)", "largest norm, of the parameter's")                                                \
    X(real, eps, 1e-3, "(0, inf)", "a parameter's norm counts as no less")
#define SLOTS(S)                                                                                                       \
    S(row, rows, one, nonnegative transient, "factor of each row")                                                     \
    S(whole, scalar, one, nonnegative transient, "factor of a parameter that is no matrix")
TN_DECLARE_RULE(agc, HYPER, SLOTS)
SLOTS(TN_SLOT_RECORD)

static int32_t agc_plan(const tn_parameter *parameter, const void *hyper, const tn_slot_planner *planner, tn_error *err)
{
    (void)hyper;
    (void)err;
    return planner->slot(planner->host, tn_is_matrix(parameter) ? &slot_row : &slot_whole);
}

TN_CLONES static double agc_squares(const tn_real *__restrict x, int64_t n, double scale)
{
    return tn_squares(x, n, scale);
}

static void agc_partial(const tn_piece *piece, const tn_partial *out)
{
    const tn_real *g = (const tn_real *)piece->g, *p = (const tn_real *)piece->p;
    if (!out->rows) {
        out->scalars[0] = agc_squares(g, piece->n, piece->scale);
        out->scalars[1] = agc_squares(p, piece->n, 1);
        return;
    }
    for (tn_row_run r = tn_rows_of(piece); tn_next_row(&r);) {
        double *row = out->rows + 2 * (r.row - piece->lo / r.columns);
        row[0] = agc_squares(g + r.at, r.n, piece->scale);
        row[1] = agc_squares(p + r.at, r.n, 1);
    }
}

static double agc_factor(const agc *h, const double *squares)
{
    double of_g = sqrt(squares[0]), of_p = sqrt(squares[1]), most = h->clip * (of_p > h->eps ? of_p : h->eps);
    return of_g > most ? most / (of_g > 1e-6 ? of_g : 1e-6) : 1;
}

static void agc_fold(const tn_fold *fold)
{
    const agc *h = (const agc *)fold->hyper;
    if (!tn_is_matrix(fold->parameter))
        *(double *)fold->slot[0] = agc_factor(h, fold->sums);
    else if (fold->rows)
        for (int64_t i = 0; i < fold->parameter->shape[0]; i++)
            ((tn_real *)fold->slot[0])[i] = (tn_real)agc_factor(h, fold->rows + 2 * i);
}

TN_CLONES static void agc_loop(int64_t n, tn_real factor, const tn_real *__restrict g, tn_real *__restrict d)
{
    for (int64_t i = 0; i < n; i++)
        d[i] = factor * g[i];
}

static void agc_update(const tn_piece *piece)
{
    const tn_real *g = (const tn_real *)piece->g;
    tn_real *d = (tn_real *)piece->d;
    if (!tn_is_matrix(piece->parameter)) {
        agc_loop(piece->n, (tn_real)(piece->scale * *(const double *)piece->slot[0]), g, d);
        return;
    }
    for (tn_row_run r = tn_rows_of(piece); tn_next_row(&r);)
        agc_loop(r.n, (tn_real)(piece->scale * (double)((const tn_real *)piece->slot[0])[r.row]), g + r.at, d + r.at);
}

static const tn_optimizer agc_table = {.struct_size = sizeof(tn_optimizer),
                                       .plan = agc_plan,
                                       .partial = agc_partial,
                                       .fold = agc_fold,
                                       .update = agc_update};
TN_LINK(agc, "transform", HYPER, SLOTS, "Clip each row of the gradient to a part of the parameter's norm",
        TN_STAGE("gradient") TN_GRAIN("tensor") TN_ROUNDS(TN_SUMS("tensor", 2, 2, 0)) TN_PAPER("arXiv:2102.06171")
            TN_FORMULA("g_i = g_i min(1, clip max(|p_i|, eps) / |g_i|)"),
        agc_table)
TN_PLUGIN("org.tenon.agc", "0.1.0", "Apache-2.0", agc)
