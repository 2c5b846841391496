/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradient centralization: from each row of the gradient its mean is subtracted, so that it is 0 over what feeds one
 * output. Yong et al., ECCV 2020, arXiv:2004.01461, equation 1. Rows are shape[0], the outputs of a linear or
 * convolution weight; a parameter with fewer than two axes is left alone.
 */
#include <tenon/rule.h>

#define SLOTS(S) S(mean, rows, zero, transient, "mean of each row of this step's gradient")
TN_DECLARE_RULE(centralize, TN_NO_HYPER, SLOTS)
SLOTS(TN_SLOT_RECORD)

static int32_t centralize_plan(const tn_parameter *parameter, const void *hyper, const tn_slot_planner *planner,
                               tn_error *err)
{
    (void)hyper;
    (void)err;
    return tn_is_matrix(parameter) ? planner->slot(planner->host, &slot_mean) : TN_OK;
}

TN_CLONES static double centralize_sum(int64_t n, double scale, const tn_real *__restrict g)
{
    double lane[TN_LANES] = {0};
    int64_t i = 0;
    for (; i + TN_LANES <= n; i += TN_LANES)
        for (int j = 0; j < TN_LANES; j++)
            lane[j] += scale * (double)g[i + j];
    for (int j = 0; i + j < n; j++)
        lane[j] += scale * (double)g[i + j];
    return tn_add_lanes(lane);
}

static void centralize_partial(const tn_piece *piece, const tn_partial *out)
{
    const tn_real *g = (const tn_real *)piece->g;
    if (!out->rows)
        return;
    for (tn_row_run r = tn_rows_of(piece); tn_next_row(&r);)
        out->rows[r.row - piece->lo / r.columns] = centralize_sum(r.n, piece->scale, g + r.at);
}

static void centralize_fold(const tn_fold *fold)
{
    int64_t columns = tn_view_columns(fold->parameter);
    if (!tn_is_matrix(fold->parameter) || columns == 0)
        return;
    for (int64_t i = 0; i < fold->parameter->shape[0]; i++)
        ((tn_real *)fold->slot[0])[i] = (tn_real)(fold->rows[i] / (double)columns);
}

TN_CLONES static void centralize_loop(int64_t n, tn_real scale, tn_real mean, const tn_real *__restrict g,
                                      tn_real *__restrict d)
{
    for (int64_t i = 0; i < n; i++)
        d[i] = scale * g[i] - mean;
}

static void centralize_update(const tn_piece *piece)
{
    const tn_real *g = (const tn_real *)piece->g, scale = (tn_real)piece->scale;
    tn_real *d = (tn_real *)piece->d;
    if (!tn_is_matrix(piece->parameter)) {
        centralize_loop(piece->n, scale, 0, g, d);
        return;
    }
    for (tn_row_run r = tn_rows_of(piece); tn_next_row(&r);)
        centralize_loop(r.n, scale, ((const tn_real *)piece->slot[0])[r.row], g + r.at, d + r.at);
}

static const tn_optimizer centralize_table = {.struct_size = sizeof(tn_optimizer),
                                              .plan = centralize_plan,
                                              .partial = centralize_partial,
                                              .fold = centralize_fold,
                                              .update = centralize_update};
TN_LINK(centralize, "transform", TN_NO_HYPER, SLOTS, "Subtract from each row of the gradient its mean",
        TN_STAGE("gradient") TN_GRAIN("tensor") TN_ROUNDS(TN_SUMS("tensor", 0, 1, 0)) TN_PAPER("arXiv:2004.01461")
            TN_FORMULA("g = g - mean of its row"),
        centralize_table)
TN_PLUGIN("org.tenon.centralize", "0.1.0", "Apache-2.0", centralize)
