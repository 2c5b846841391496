/* SPDX-License-Identifier: Apache-2.0
 *
 * Adafactor: Adam's second moment kept as one mean a row and one a column. Shazeer and Stern, ICML 2018,
 * arXiv:1804.04235, Algorithms 4 and 5: V = r c^T / mean(r), the step g / sqrt(V) divided by max(1, RMS / clip).
 * A parameter with two axes or more is factored as shape[0] times the rest; any other keeps its second moment whole.
 *
 * Here lr is the step size as in other rules. `relative_step` makes it the paper's min(lr, 1 / sqrt(t)) with lr 1e-2,
 * `scale_parameter` multiplies it by max(eps2, RMS(p)). Momentum, which the paper leaves open, is a mean of the steps;
 * beta1 0 plans none. The decay is lr * weight_decay, without the parameter's scale, as in PyTorch.
 */
#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1e-3, "[0, inf)", "step size")                                                                         \
    X(flag, relative_step, false, "", "take min(lr, 1 / sqrt(t)) for lr")                                              \
    X(flag, scale_parameter, false, "", "multiply the step by max(eps2, root mean square of the parameter)")           \
    X(real, decay, 0.8, "(0, 1]", "the second moment's decay at update t is 1 - t^-decay")                             \
    X(real, clip, 1, "(0, inf]", "root mean square of the step, before lr, from which it is scaled down")              \
    X(real, beta1, 0, "[0, 1)", "decay of the mean of the steps; 0: none")                                             \
    X(real, eps1, 1e-30, "(0, inf)", "added to the squares of the gradient")                                           \
    X(real, eps2, 1e-3, "[0, inf)", "least scale of a parameter")                                                      \
    X(real, weight_decay, 0, "[0, inf)", "decoupled decay, multiplied by lr")
#define SLOTS(S)                                                                                                       \
    S(row, rows, zero, nonnegative, "mean of the squared gradient over each row")                                      \
    S(column, columns, zero, nonnegative, "the same over each column")                                                 \
    S(inverse, columns, zero, transient, "1 over the root of the column's mean, in this step")                         \
    S(v, like, zero, nonnegative, "the same of each element, where the parameter is not factored")                     \
    S(m, like, zero, signed, "mean of the steps; only if beta1 is not 0")
TN_DECLARE_RULE(adafactor, HYPER, SLOTS)
SLOTS(TN_SLOT_RECORD)

typedef struct {
    double lr, beta2, step, mean_row, keep;
    tn_real real_beta2, one_minus_beta2, eps1, beta1, one_minus_beta1;
} adafactor_constants;

/* Slots in the order of the plan: of a matrix row, column, inverse, then m; else v, then m. */
static int32_t adafactor_plan(const tn_parameter *parameter, const void *hyper, const tn_slot_planner *planner,
                              tn_error *err)
{
    int matrix = tn_is_matrix(parameter);
    (void)err;
    int32_t status = planner->slot(planner->host, matrix ? &slot_row : &slot_v);
    if (!status && matrix)
        status = planner->slot(planner->host, &slot_column);
    if (!status && matrix)
        status = planner->slot(planner->host, &slot_inverse);
    if (!status && ((const adafactor *)hyper)->beta1 > 0)
        status = planner->slot(planner->host, &slot_m);
    return status;
}

static void adafactor_begin(const void *hyper, const tn_clock *clock, void *constants)
{
    const adafactor *h = (const adafactor *)hyper;
    adafactor_constants *k = (adafactor_constants *)constants;
    double t = (double)clock->t;
    k->lr = h->relative_step ? fmin(h->lr, 1 / sqrt(t)) : h->lr;
    k->beta2 = 1 - pow(t, -h->decay);
    k->real_beta2 = (tn_real)k->beta2;
    k->one_minus_beta2 = (tn_real)(1 - k->beta2);
    k->eps1 = (tn_real)h->eps1;
    k->beta1 = (tn_real)h->beta1;
    k->one_minus_beta1 = (tn_real)(1 - h->beta1);
    k->keep = 1 - k->lr * h->weight_decay;
}

/* The step before lr, where the second moment is factored; `row` is sqrt(mean(r) / r), `column` 1 / sqrt(c). */
TN_BOTH tn_real adafactor_factored(tn_real g, tn_real row, tn_real column) { return g * row * column; }

/* The same where it is whole; v is the new one afterwards. */
TN_BOTH tn_real adafactor_whole(adafactor_constants k, tn_real g, tn_real *v)
{
    *v = k.real_beta2 * *v + k.one_minus_beta2 * (g * g + k.eps1);
    return g / tn_sqrt(*v);
}

static tn_real adafactor_row(const adafactor_constants *k, const tn_piece *piece, int64_t row)
{
    return (tn_real)sqrt(k->mean_row / (double)((const tn_real *)piece->slot[0])[row]);
}

/* ---- round 0: squares of the gradient by row and column, and of p ---- */

TN_CLONES static double adafactor_sum_squares(const tn_real *__restrict x, int64_t n, double scale)
{
    return tn_squares(x, n, scale);
}

/* Adds the squares of a part of a row to its columns, and returns their sum. */
TN_CLONES static double adafactor_row_squares(const tn_real *__restrict g, int64_t n, double scale,
                                              double *__restrict columns)
{
    double lane[TN_LANES] = {0};
    int64_t i = 0;
    for (; i + TN_LANES <= n; i += TN_LANES)
        for (int j = 0; j < TN_LANES; j++) {
            double x = scale * (double)g[i + j];
            lane[j] += x * x;
            columns[i + j] += x * x;
        }
    for (int j = 0; i + j < n; j++) {
        double x = scale * (double)g[i + j];
        lane[j] += x * x;
        columns[i + j] += x * x;
    }
    return tn_add_lanes(lane);
}

static void adafactor_squares(const tn_piece *piece, const tn_partial *out)
{
    const tn_real *g = (const tn_real *)piece->g;
    if (((const adafactor *)piece->hyper)->scale_parameter)
        out->scalars[0] = adafactor_sum_squares((const tn_real *)piece->p, piece->n, 1);
    if (!out->rows)
        return;
    for (tn_row_run r = tn_rows_of(piece); tn_next_row(&r);)
        out->rows[r.row - piece->lo / r.columns] =
            adafactor_row_squares(g + r.at, r.n, piece->scale, out->columns + r.column);
}

static void adafactor_means(const adafactor_constants *k, double eps1, const double *sums, double count, int64_t n,
                            tn_real *mean)
{
    for (int64_t i = 0; i < n && count > 0; i++)
        mean[i] = (tn_real)(k->beta2 * (double)mean[i] + (1 - k->beta2) * (sums[i] / count + eps1));
}

static void adafactor_fold_squares(const tn_fold *fold)
{
    const adafactor *h = (const adafactor *)fold->hyper;
    adafactor_constants *k = (adafactor_constants *)fold->k;
    double n = (double)tn_elements(fold->parameter), sum = 0;
    k->step = k->lr * (h->scale_parameter && n > 0 ? fmax(h->eps2, sqrt(fold->sums[0] / n)) : 1);
    if (!tn_is_matrix(fold->parameter))
        return;
    int64_t rows = fold->parameter->shape[0], columns = tn_view_columns(fold->parameter);
    const tn_real *row = (const tn_real *)fold->slot[0], *column = (const tn_real *)fold->slot[1];
    adafactor_means(k, h->eps1, fold->rows, (double)columns, rows, (tn_real *)fold->slot[0]);
    adafactor_means(k, h->eps1, fold->columns, (double)rows, columns, (tn_real *)fold->slot[1]);
    for (int64_t j = 0; j < columns; j++)
        ((tn_real *)fold->slot[2])[j] = (tn_real)(1 / sqrt((double)column[j]));
    for (int64_t i = 0; i < rows; i++)
        sum += (double)row[i];
    k->mean_row = rows > 0 ? sum / (double)rows : 0;
}

/* ---- round 1: squares of the step ---- */

#define PART 256 /* elements whose steps are there before their squares are added; a multiple of TN_LANES */

TN_CLONES static double adafactor_factored_squares(int64_t n, tn_real scale, tn_real row, const tn_real *__restrict g,
                                                   const tn_real *__restrict column)
{
    double lane[TN_LANES] = {0};
    tn_real u[PART];
    for (int64_t at = 0, part; at < n; at += part) {
        part = n - at < PART ? n - at : PART;
        for (int64_t i = 0; i < part; i++)
            u[i] = adafactor_factored(scale * g[at + i], row, column[at + i]);
        tn_add_squares(lane, u, part, 1);
    }
    return tn_add_lanes(lane);
}

TN_CLONES static double adafactor_whole_squares(adafactor_constants k, int64_t n, tn_real scale,
                                                const tn_real *__restrict g, const tn_real *__restrict v)
{
    double lane[TN_LANES] = {0};
    tn_real u[PART];
    for (int64_t at = 0, part; at < n; at += part) {
        part = n - at < PART ? n - at : PART;
        for (int64_t i = 0; i < part; i++) {
            tn_real copy = v[at + i];
            u[i] = adafactor_whole(k, scale * g[at + i], &copy);
        }
        tn_add_squares(lane, u, part, 1);
    }
    return tn_add_lanes(lane);
}

static void adafactor_partial(const tn_piece *piece, const tn_partial *out)
{
    const adafactor_constants *k = (const adafactor_constants *)piece->k;
    const tn_real *g = (const tn_real *)piece->g, *first = (const tn_real *)piece->slot[0];
    tn_real scale = (tn_real)piece->scale;
    if (piece->round == 0)
        adafactor_squares(piece, out);
    else if (!tn_is_matrix(piece->parameter))
        out->scalars[0] = adafactor_whole_squares(*k, piece->n, scale, g, first);
    else
        for (tn_row_run r = tn_rows_of(piece); tn_next_row(&r);)
            out->scalars[0] += adafactor_factored_squares(r.n, scale, adafactor_row(k, piece, r.row), g + r.at,
                                                          (const tn_real *)piece->slot[2] + r.column);
}

static void adafactor_fold(const tn_fold *fold)
{
    adafactor_constants *k = (adafactor_constants *)fold->k;
    double n = (double)tn_elements(fold->parameter);
    if (fold->round == 0)
        adafactor_fold_squares(fold);
    else if (n > 0)
        k->step /= fmax(1, sqrt(fold->sums[0] / n) / ((const adafactor *)fold->hyper)->clip);
}

/* ---- the step ---- */

TN_CLONES static void adafactor_factored_loop(int64_t n, tn_real scale, tn_real row, const tn_real *__restrict g,
                                              const tn_real *__restrict column, tn_real *__restrict d)
{
    for (int64_t i = 0; i < n; i++)
        d[i] = adafactor_factored(scale * g[i], row, column[i]);
}

TN_CLONES static void adafactor_whole_loop(adafactor_constants k, int64_t n, tn_real scale, const tn_real *__restrict g,
                                           tn_real *__restrict v, tn_real *__restrict d)
{
    for (int64_t i = 0; i < n; i++)
        d[i] = adafactor_whole(k, scale * g[i], &v[i]);
}

TN_CLONES static void adafactor_mean_loop(adafactor_constants k, int64_t n, tn_real *__restrict m,
                                          tn_real *__restrict d)
{
    for (int64_t i = 0; i < n; i++)
        d[i] = -(m[i] = k.beta1 * m[i] + k.one_minus_beta1 * (tn_real)k.step * d[i]);
}

TN_CLONES static void adafactor_scale_loop(int64_t n, tn_real step, tn_real *__restrict d)
{
    for (int64_t i = 0; i < n; i++)
        d[i] *= step;
}

static void adafactor_update(const tn_piece *piece)
{
    const adafactor_constants *k = (const adafactor_constants *)piece->k;
    const tn_real *g = (const tn_real *)piece->g, scale = (tn_real)piece->scale;
    tn_real *d = (tn_real *)piece->d, *first = (tn_real *)piece->slot[0];
    int matrix = tn_is_matrix(piece->parameter);
    int64_t n = matrix ? tn_piece_elements(piece) : piece->n;
    if (matrix)
        for (tn_row_run r = tn_rows_of(piece); tn_next_row(&r);)
            adafactor_factored_loop(r.n, scale, adafactor_row(k, piece, r.row), g + r.at,
                                    (const tn_real *)piece->slot[2] + r.column, d + r.at);
    else
        adafactor_whole_loop(*k, n, scale, g, first, d);
    if (((const adafactor *)piece->hyper)->beta1 > 0) {
        adafactor_mean_loop(*k, n, (tn_real *)piece->slot[matrix ? 3 : 1], d);
        return;
    }
    adafactor_scale_loop(n, -(tn_real)k->step, d);
}

static double adafactor_keep(const void *k) { return ((const adafactor_constants *)k)->keep; }

static const tn_optimizer adafactor_table = {.struct_size = sizeof(tn_optimizer),
                                             .constants_bytes = (uint32_t)sizeof(adafactor_constants),
                                             .plan = adafactor_plan,
                                             .begin = adafactor_begin,
                                             .partial = adafactor_partial,
                                             .fold = adafactor_fold,
                                             .update = adafactor_update,
                                             .keep = adafactor_keep};
TN_LINK(adafactor, "optimizer", HYPER, SLOTS, "Adam's second moment as one mean a row and one a column",
        TN_STAGE("rule") TN_GRAIN("tensor") TN_ROUNDS(TN_SUMS("tensor", 1, 1, 1) TN_SUMS("tensor", 1, 0, 0))
            TN_PAPER("arXiv:1804.04235")
                TN_FORMULA("V = r c^T / mean(r); u = g / sqrt(V); p = (1 - lr wd) p - lr u / max(1, RMS(u) / clip)"),
        adafactor_table)
TN_PLUGIN("org.tenon.adafactor", "0.1.0", "Apache-2.0", adafactor)
