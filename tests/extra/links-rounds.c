/* SPDX-License-Identifier: Apache-2.0
 *
 * Links with rounds and slots that the bundled ones do not have: for the tests of the chain.
 */
#include <tenon/rule.h>

/* ---- counter: a global slot at scope "model" ---- */

#define COUNTER_SLOTS(S) S(seen, global, one, , "1 + folds, then 1 + the sums of all gradients")
TN_DECLARE_RULE(counter, TN_NO_HYPER, COUNTER_SLOTS)
static int32_t counter_plan(const tn_parameter *parameter, const void *hyper, const tn_slot_planner *planner,
                            tn_error *err)
{
    static const tn_slot seen = {sizeof(tn_slot), 2, "seen", "global", "one", "", NULL};
    (void)parameter, (void)hyper, (void)err;
    return planner->slot(planner->host, &seen);
}
static void counter_partial(const tn_piece *piece, const tn_partial *out)
{
    for (int64_t i = 0; i < piece->n; i++)
        out->scalars[0] += piece->scale * (double)((const tn_real *)piece->g)[i];
}
static void counter_fold(const tn_fold *fold)
{
    double *seen = (double *)fold->slot[0];
    seen[0] += 1;
    seen[1] += fold->sums[0];
    fold->report[0] = fold->parameter ? -1 : seen[0];
}
static const tn_optimizer counter_table = {
    .struct_size = sizeof(tn_optimizer), .plan = counter_plan, .partial = counter_partial, .fold = counter_fold};
TN_LINK(counter, "transform", TN_NO_HYPER, COUNTER_SLOTS, "Count folds",
        TN_STAGE("gradient") TN_ROUND("model", 1) TN_REPORTS("seen"), counter_table)

/* ---- lines: sums of rows and columns, and a round that sees what the one before wrote ---- */

#define LINES_SLOTS(S)                                                                                                 \
    S(row, rows, zero, , "sums of the gradient's rows")                                                                \
    S(column, columns, one, , "1 + sums of its columns")                                                               \
    S(count, scalar, zero, , "elements, steps, and the sum of row times column")
TN_DECLARE_RULE(lines, TN_NO_HYPER, LINES_SLOTS)
static int32_t lines_plan(const tn_parameter *parameter, const void *hyper, const tn_slot_planner *planner,
                          tn_error *err)
{
    static const tn_slot slots[] = {{sizeof(tn_slot), 0, "row", "rows", "zero", "", NULL},
                                    {sizeof(tn_slot), 0, "column", "columns", "one", "", NULL},
                                    {sizeof(tn_slot), 3, "count", "scalar", "zero", "", NULL}};
    int32_t status = TN_OK;
    (void)hyper, (void)err;
    for (int i = tn_is_matrix(parameter) ? 0 : 2; i < 3 && !status; i++)
        status = planner->slot(planner->host, &slots[i]);
    return status;
}
/* Rows: sum, then sum of squares. What a piece leaves is set, not added, where it can be. */
static void lines_partial(const tn_piece *piece, const tn_partial *out)
{
    int64_t columns = tn_is_matrix(piece->parameter) ? tn_view_columns(piece->parameter) : 1;
    if (piece->round == 0)
        out->scalars[0] = (double)piece->n;
    for (int64_t i = 0; i < piece->n; i++) {
        int64_t r = (piece->lo + i) / columns, c = (piece->lo + i) % columns;
        double g = piece->scale * (double)((const tn_real *)piece->g)[i];
        if (piece->round == 1 && tn_is_matrix(piece->parameter))
            out->scalars[0] +=
                (double)((const tn_real *)piece->slot[0])[r] * (double)((const tn_real *)piece->slot[1])[c];
        if (piece->round == 0 && out->rows) {
            out->rows[2 * (r - piece->lo / columns)] += g;
            out->rows[2 * (r - piece->lo / columns) + 1] += g * g;
        }
        if (piece->round == 0 && out->columns)
            out->columns[c] += g;
    }
}
static void lines_fold(const tn_fold *fold)
{
    int matrix = tn_is_matrix(fold->parameter);
    double *count = (double *)fold->slot[matrix ? 2 : 0];
    if (fold->round == 1) {
        count[2] = fold->sums[0];
        return;
    }
    count[0] = fold->sums[0];
    count[1] += 1;
    for (int64_t i = 0; matrix && i < fold->parameter->shape[0]; i++)
        ((tn_real *)fold->slot[0])[i] = (tn_real)(fold->rows[2 * i] + fold->rows[2 * i + 1]);
    for (int64_t i = 0; matrix && i < tn_view_columns(fold->parameter); i++)
        ((tn_real *)fold->slot[1])[i] += (tn_real)fold->columns[i];
}
static void lines_update(const tn_piece *piece)
{
    int64_t columns = tn_is_matrix(piece->parameter) ? tn_view_columns(piece->parameter) : 1;
    for (int64_t i = 0; i < piece->n && piece->lo + i < tn_elements(piece->parameter); i++)
        ((tn_real *)piece->d)[i] = tn_is_matrix(piece->parameter)
                                       ? ((const tn_real *)piece->slot[0])[(piece->lo + i) / columns]
                                       : (tn_real)((const double *)piece->slot[0])[1];
}
static const tn_optimizer lines_table = {.struct_size = sizeof(tn_optimizer),
                                         .plan = lines_plan,
                                         .partial = lines_partial,
                                         .fold = lines_fold,
                                         .update = lines_update};
TN_LINK(lines, "optimizer", TN_NO_HYPER, LINES_SLOTS, "Sums of rows and columns",
        TN_STAGE("rule") TN_GRAIN("tensor") TN_ROUNDS(TN_SUMS("tensor", 1, 2, 1) TN_SUMS("tensor", 1, 0, 0)),
        lines_table)

/* ---- heavy-ball: a gradient with memory ---- */

#define BALL_SLOTS(S) S(ball, like, zero, , "half the last one and the gradient")
TN_DECLARE_RULE(heavy_ball, TN_NO_HYPER, BALL_SLOTS)
static void heavy_ball_update(const tn_piece *piece)
{
    tn_real *ball = (tn_real *)piece->slot[0];
    for (int64_t i = 0; i < piece->n; i++)
        ((tn_real *)piece->d)[i] = ball[i] =
            (tn_real)0.5 * ball[i] + (tn_real)piece->scale * ((const tn_real *)piece->g)[i];
}
static const tn_optimizer heavy_ball_table = {.struct_size = sizeof(tn_optimizer), .update = heavy_ball_update};
TN_LINK(heavy_ball, "transform", TN_NO_HYPER, BALL_SLOTS, "A gradient with memory", TN_STAGE("gradient"),
        heavy_ball_table)

/* ---- unit-step: a round behind the rule ---- */

TN_DECLARE(unit_step, TN_NO_HYPER)
static void unit_step_partial(const tn_piece *piece, const tn_partial *out)
{
    for (int64_t i = 0; i < piece->n; i++) {
        double d = (double)((const tn_real *)piece->d)[i];
        out->scalars[0] += d * d;
    }
}
static void unit_step_fold(const tn_fold *fold)
{
    fold->report[0] = sqrt(fold->sums[0]);
    *(double *)fold->k = fold->sums[0] > 0 ? 1 / sqrt(fold->sums[0]) : 1;
}
static void unit_step_update(const tn_piece *piece)
{
    for (int64_t i = 0; i < piece->n; i++)
        ((tn_real *)piece->d)[i] *= (tn_real) * (const double *)piece->k;
}
static const tn_optimizer unit_step_table = {.struct_size = sizeof(tn_optimizer),
                                             .constants_bytes = sizeof(double),
                                             .partial = unit_step_partial,
                                             .fold = unit_step_fold,
                                             .update = unit_step_update};
TN_LINK(unit_step, "transform", TN_NO_HYPER, TN_NO_SLOTS, "A step of length 1",
        TN_STAGE("update") TN_ROUND("model", 1) TN_REPORTS("length"), unit_step_table)

/* ---- peaks: the largest of a tensor, its rows and columns; peak: of the model ---- */

#define PEAKS_SLOTS(S)                                                                                                 \
    S(row, rows, zero, , "largest of the gradient's rows, and of its negative's, less")                                \
    S(column, columns, zero, , "largest of its columns")                                                               \
    S(all, scalar, zero, , "largest of all, and of the negative")
TN_DECLARE_RULE(peaks, TN_NO_HYPER, PEAKS_SLOTS)
static int32_t peaks_plan(const tn_parameter *parameter, const void *hyper, const tn_slot_planner *planner,
                          tn_error *err)
{
    static const tn_slot slots[] = {{sizeof(tn_slot), 2, "all", "scalar", "zero", "", NULL},
                                    {sizeof(tn_slot), 0, "row", "rows", "zero", "", NULL},
                                    {sizeof(tn_slot), 0, "column", "columns", "zero", "", NULL}};
    int32_t status = TN_OK;
    (void)hyper, (void)err;
    for (int i = 0; i < (tn_is_matrix(parameter) ? 3 : 1) && !status; i++)
        status = planner->slot(planner->host, &slots[i]);
    return status;
}
/* What is below 0 and NaN stay as they are: the host counts them as 0 and infinity. */
static double peaks_larger(double a, double b) { return isnan(a) ? a : isnan(b) || b > a ? b : a; }
static void peaks_partial(const tn_piece *piece, const tn_partial *out)
{
    for (int64_t i = 0; i < piece->n; i++) {
        double g = piece->scale * (double)((const tn_real *)piece->g)[i];
        out->scalars[0] = i ? peaks_larger(out->scalars[0], g) : g;
        out->scalars[1] = i ? peaks_larger(out->scalars[1], -g) : -g;
    }
    if (!out->rows)
        return;
    for (tn_row_run r = tn_rows_of(piece); tn_next_row(&r);)
        for (int64_t j = 0; j < r.n; j++) {
            double g = piece->scale * (double)((const tn_real *)piece->g)[r.at + j];
            double *row = &out->rows[2 * (r.row - piece->lo / r.columns)];
            row[0] = peaks_larger(row[0], g);
            row[1] = peaks_larger(row[1], -g);
            out->columns[r.column + j] = peaks_larger(out->columns[r.column + j], g);
        }
}
static void peaks_fold(const tn_fold *fold)
{
    int64_t rows = fold->rows ? fold->parameter->shape[0] : 0;
    memcpy(fold->slot[0], fold->sums, 2 * sizeof(double));
    for (int64_t i = 0; i < rows; i++)
        ((tn_real *)fold->slot[1])[i] = (tn_real)(fold->rows[2 * i] - fold->rows[2 * i + 1]);
    for (int64_t i = 0; fold->columns && i < tn_view_columns(fold->parameter); i++)
        ((tn_real *)fold->slot[2])[i] = (tn_real)fold->columns[i];
}
static const tn_optimizer peaks_table = {
    .struct_size = sizeof(tn_optimizer), .plan = peaks_plan, .partial = peaks_partial, .fold = peaks_fold};
TN_LINK(peaks, "transform", TN_NO_HYPER, PEAKS_SLOTS, "Largest gradients",
        TN_STAGE("gradient") TN_ROUNDS(TN_MAXIMA("tensor", 2, 2, 1)), peaks_table)

TN_DECLARE(peak, TN_NO_HYPER)
static void peak_partial(const tn_piece *piece, const tn_partial *out)
{
    for (int64_t i = 0; i < piece->n; i++)
        out->scalars[0] = tn_larger(out->scalars[0], fabs(piece->scale * (double)((const tn_real *)piece->g)[i]));
    out->scalars[1] = -1;
}
static void peak_fold(const tn_fold *fold)
{
    fold->report[0] = fold->sums[0];
    fold->report[1] = fold->sums[1];
    *(double *)fold->k = 1 / (1 + fold->sums[0]);
}
static double peak_scale(const void *k) { return *(const double *)k; }
static const tn_optimizer peak_table = {.struct_size = sizeof(tn_optimizer),
                                        .constants_bytes = sizeof(double),
                                        .partial = peak_partial,
                                        .fold = peak_fold,
                                        .scale = peak_scale};
TN_LINK(peak, "transform", TN_NO_HYPER, TN_NO_SLOTS, "Largest gradient",
        TN_STAGE("gradient") TN_ROUNDS(TN_MAXIMA("model", 2, 0, 0)) TN_REPORTS("largest", "below"), peak_table)

/* crest: a tensor's gradient over its largest number */
TN_DECLARE(crest, TN_NO_HYPER)
static void crest_partial(const tn_piece *piece, const tn_partial *out)
{
    for (int64_t i = 0; i < piece->n; i++)
        out->scalars[0] = tn_larger(out->scalars[0], fabs(piece->scale * (double)((const tn_real *)piece->g)[i]));
}
static void crest_fold(const tn_fold *fold) { *(double *)fold->k = fold->sums[0] > 0 ? 1 / fold->sums[0] : 1; }
static const tn_optimizer crest_table = {.struct_size = sizeof(tn_optimizer),
                                         .constants_bytes = sizeof(double),
                                         .partial = crest_partial,
                                         .fold = crest_fold,
                                         .scale = peak_scale};
TN_LINK(crest, "transform", TN_NO_HYPER, TN_NO_SLOTS, "Largest gradient of each tensor",
        TN_STAGE("gradient") TN_ROUNDS(TN_MAXIMA("tensor", 1, 0, 0)), crest_table)

TN_PLUGIN("org.tenon.test.links-rounds", "1.0.0", "Apache-2.0", counter, lines, heavy_ball, unit_step, peaks, peak,
          crest)
