/* SPDX-License-Identifier: Apache-2.0
 *
 * SM3: Adagrad's accumulators kept as one number a row and one a column. Anil, Gupta, Koren and Singer, NeurIPS 2019,
 * arXiv:1901.11150, algorithm SM3-II: v_ij = min(r_i, c_j) + g_ij^2, the step g / sqrt(v), 0 where v is 0; then r_i is
 * the largest v of the row and c_j that of the column.
 * A parameter with two axes or more is covered as shape[0] times the rest; any other by its elements, which is Adagrad.
 *
 * Momentum, which the paper's experiments add, is a mean of the steps; beta 0 plans none. Before the round the
 * accumulators are the last step's: fold keeps these for `update` when it writes the new ones.
 */
#include <tenon/rule.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 0.1, "[0, inf)", "step size")                                                                          \
    X(real, beta, 0.9, "[0, 1)", "decay of the mean of the steps; 0: none")                                            \
    X(real, weight_decay, 0, "[0, inf)", "decoupled decay, multiplied by lr")
#define SLOTS(S)                                                                                                       \
    S(row, rows, zero, nonnegative, "largest accumulator of each row")                                                 \
    S(column, columns, zero, nonnegative, "the same of each column")                                                   \
    S(last_row, rows, zero, nonnegative transient, "row before this step")                                             \
    S(last_column, columns, zero, nonnegative transient, "column before this step")                                    \
    S(v, like, zero, nonnegative, "the accumulator of each element, where the parameter is no matrix")                 \
    S(m, like, zero, signed, "mean of the steps; only if beta is not 0")
TN_DECLARE_RULE(sm3, HYPER, SLOTS)
SLOTS(TN_SLOT_RECORD)

enum { ROW, COLUMN, LAST_ROW, LAST_COLUMN, MATRIX_M, V = 0, M = 1 };

typedef struct {
    tn_real lr, beta, rest;
    double keep;
} sm3_constants;

static int32_t sm3_plan(const tn_parameter *parameter, const void *hyper, const tn_slot_planner *planner, tn_error *err)
{
    const tn_slot *const of_matrix[] = {&slot_row, &slot_column, &slot_last_row, &slot_last_column};
    int matrix = tn_is_matrix(parameter);
    int32_t status = matrix ? TN_OK : planner->slot(planner->host, &slot_v);
    (void)err;
    for (int i = 0; i < 4 && matrix && !status; i++)
        status = planner->slot(planner->host, of_matrix[i]);
    if (!status && ((const sm3 *)hyper)->beta > 0)
        status = planner->slot(planner->host, &slot_m);
    return status;
}

static void sm3_begin(const void *hyper, const tn_clock *clock, void *constants)
{
    const sm3 *h = (const sm3 *)hyper;
    sm3_constants *k = (sm3_constants *)constants;
    (void)clock;
    k->lr = (tn_real)h->lr;
    k->beta = (tn_real)h->beta;
    k->rest = (tn_real)(1 - h->beta);
    k->keep = 1 - h->lr * h->weight_decay;
}

/* The accumulator of an element of a matrix. */
TN_BOTH tn_real sm3_cover(tn_real row, tn_real column, tn_real g) { return (row < column ? row : column) + g * g; }

TN_BOTH tn_real sm3_step(tn_real g, tn_real v) { return v > 0 ? g / tn_sqrt(v) : 0; }

/* ---- the round: the largest accumulators ---- */

#if TN_REAL == 64
typedef uint64_t sm3_bits;
#else
typedef uint32_t sm3_bits;
#endif

/* Accumulators are not below 0, so their bits are in their order, and NaN, which tn_larger keeps as infinity, is above
 * all: sums of whole numbers vectorize, those of reals do not. */
TN_CLONES static double sm3_largest(int64_t n, const tn_real *__restrict v)
{
    sm3_bits largest = 0, bits;
    tn_real value;
    for (int64_t i = 0; i < n; i++) {
        memcpy(&bits, &v[i], sizeof bits);
        bits = bits << 1 >> 1;
        largest = bits > largest ? bits : largest;
    }
    memcpy(&value, &largest, sizeof value);
    return tn_larger(0, (double)value);
}

enum { STRETCH = 256 }; /* elements whose accumulators stay in cache between the two loops */

TN_CLONES static void sm3_row_stretch(int64_t n, tn_real scale, tn_real row, const tn_real *__restrict g,
                                      const tn_real *__restrict column, double *__restrict columns,
                                      tn_real *__restrict v)
{
    for (int64_t j = 0; j < n; j++) {
        v[j] = sm3_cover(row, column[j], scale * g[j]);
        columns[j] = tn_larger(columns[j], (double)v[j]);
    }
}

TN_CLONES static void sm3_whole_stretch(int64_t n, tn_real scale, const tn_real *__restrict g,
                                        const tn_real *__restrict from, tn_real *__restrict v)
{
    for (int64_t j = 0; j < n; j++)
        v[j] = from[j] + scale * g[j] * (scale * g[j]);
}

static double sm3_row(int64_t n, tn_real scale, tn_real row, const tn_real *g, const tn_real *column, double *columns)
{
    tn_real v[STRETCH];
    double largest = 0;
    for (int64_t at = 0, of; at < n; at += of) {
        of = n - at < STRETCH ? n - at : STRETCH;
        sm3_row_stretch(of, scale, row, g + at, column + at, columns + at, v);
        largest = tn_larger(largest, sm3_largest(of, v));
    }
    return largest;
}

static double sm3_whole(int64_t n, tn_real scale, const tn_real *g, const tn_real *from)
{
    tn_real v[STRETCH];
    double largest = 0;
    for (int64_t at = 0, of; at < n; at += of) {
        of = n - at < STRETCH ? n - at : STRETCH;
        sm3_whole_stretch(of, scale, g + at, from + at, v);
        largest = tn_larger(largest, sm3_largest(of, v));
    }
    return largest;
}

/* No one needs the scalar, of parameters that are no matrix; it is there to find what is not finite. */
static void sm3_partial(const tn_piece *piece, const tn_partial *out)
{
    const tn_real *g = (const tn_real *)piece->g, *first = (const tn_real *)piece->slot[0];
    tn_real scale = (tn_real)piece->scale;
    if (!tn_is_matrix(piece->parameter)) {
        out->scalars[0] = sm3_whole(piece->n, scale, g, first);
        return;
    }
    for (tn_row_run r = tn_rows_of(piece); tn_next_row(&r);)
        out->rows[r.row - piece->lo / r.columns] =
            sm3_row(r.n, scale, first[r.row], g + r.at, (const tn_real *)piece->slot[COLUMN] + r.column,
                    out->columns + r.column);
}

static void sm3_keep_last(int64_t n, const double *largest, tn_real *now, tn_real *last)
{
    for (int64_t i = 0; i < n; i++) {
        last[i] = now[i];
        now[i] = (tn_real)largest[i];
    }
}

static void sm3_fold(const tn_fold *fold)
{
    tn_real *const *slot = (tn_real *const *)fold->slot;
    if (!tn_is_matrix(fold->parameter))
        return;
    sm3_keep_last(fold->parameter->shape[0], fold->rows, slot[ROW], slot[LAST_ROW]);
    sm3_keep_last(tn_view_columns(fold->parameter), fold->columns, slot[COLUMN], slot[LAST_COLUMN]);
}

/* ---- the step ---- */

TN_CLONES static void sm3_row_loop(int64_t n, tn_real scale, tn_real row, const tn_real *__restrict g,
                                   const tn_real *__restrict column, tn_real *__restrict d)
{
    for (int64_t i = 0; i < n; i++)
        d[i] = sm3_step(scale * g[i], sm3_cover(row, column[i], scale * g[i]));
}

TN_CLONES static void sm3_whole_loop(int64_t n, tn_real scale, const tn_real *__restrict g, tn_real *__restrict v,
                                     tn_real *__restrict d)
{
    for (int64_t i = 0; i < n; i++) {
        v[i] += scale * g[i] * (scale * g[i]);
        d[i] = sm3_step(scale * g[i], v[i]);
    }
}

TN_CLONES static void sm3_mean_loop(sm3_constants k, int64_t n, tn_real *__restrict m, tn_real *__restrict d)
{
    for (int64_t i = 0; i < n; i++)
        d[i] = -k.lr * (m[i] = k.beta * m[i] + k.rest * d[i]);
}

static void sm3_update(const tn_piece *piece)
{
    const sm3_constants *k = (const sm3_constants *)piece->k;
    const tn_real *g = (const tn_real *)piece->g, scale = (tn_real)piece->scale;
    tn_real *d = (tn_real *)piece->d;
    int matrix = tn_is_matrix(piece->parameter);
    int64_t n = tn_piece_elements(piece);
    if (!matrix)
        sm3_whole_loop(n, scale, g, (tn_real *)piece->slot[V], d);
    else
        for (tn_row_run r = tn_rows_of(piece); tn_next_row(&r);)
            sm3_row_loop(r.n, scale, ((const tn_real *)piece->slot[LAST_ROW])[r.row], g + r.at,
                         (const tn_real *)piece->slot[LAST_COLUMN] + r.column, d + r.at);
    if (((const sm3 *)piece->hyper)->beta > 0) {
        sm3_mean_loop(*k, n, (tn_real *)piece->slot[matrix ? MATRIX_M : M], d);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        d[i] *= -k->lr;
}

static double sm3_keep(const void *k) { return ((const sm3_constants *)k)->keep; }

static const tn_optimizer sm3_table = {.struct_size = sizeof(tn_optimizer),
                                       .constants_bytes = (uint32_t)sizeof(sm3_constants),
                                       .plan = sm3_plan,
                                       .begin = sm3_begin,
                                       .partial = sm3_partial,
                                       .fold = sm3_fold,
                                       .update = sm3_update,
                                       .keep = sm3_keep};
TN_LINK(sm3, "optimizer", HYPER, SLOTS, "Adagrad's accumulators as one maximum a row and one a column",
        TN_STAGE("rule") TN_GRAIN("tensor") TN_ROUNDS(TN_MAXIMA("tensor", 1, 1, 1)) TN_PAPER("arXiv:1901.11150")
            TN_FORMULA("v = min(r_i, c_j) + g^2; m = beta m + (1 - beta) g / sqrt(v); p = (1 - lr wd) p - lr m; "
                       "r_i, c_j = max v"),
        sm3_table)
TN_PLUGIN("org.tenon.sm3", "0.1.0", "Apache-2.0", sm3)
