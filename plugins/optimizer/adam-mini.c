/* SPDX-License-Identifier: Apache-2.0
 *
 * Adam-mini: one second moment for each row of a matrix. Zhang et al., arXiv:2406.16793, Algorithm 1 with the blocks
 * that its section 2.3 finds for all matrices but queries and keys: the rows, which are output neurons, or tokens of an
 * embedding. A parameter that is no matrix is one block. v is the mean of a block's squares.
 */
#include <tenon/moments.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 1e-3, "[0, inf)", "step size")                                                                         \
    TN_MOMENT_ROWS(X, 0.9, 0.999, 1e-8)                                                                                \
    TN_DECAY_ROW(X, 0)
#define SLOTS(S)                                                                                                       \
    S(m, like, zero, signed, "mean of the gradient")                                                                   \
    S(row, rows, zero, nonnegative, "mean of the square of each row")                                                  \
    S(v, scalar, zero, nonnegative, "the same of a parameter that is no matrix")
TN_DECLARE_RULE(adam_mini, HYPER, SLOTS)
SLOTS(TN_SLOT_RECORD)

enum { M, V };

typedef struct {
    tn_moments at;
    tn_real step, whole; /* whole: lr over the root, where the parameter is one block */
    double keep;
} adam_mini_constants;

static int32_t adam_mini_plan(const tn_parameter *parameter, const void *hyper, const tn_slot_planner *planner,
                              tn_error *err)
{
    int32_t status = planner->slot(planner->host, &slot_m);
    (void)hyper;
    (void)err;
    return status ? status : planner->slot(planner->host, tn_is_matrix(parameter) ? &slot_row : &slot_v);
}

static void adam_mini_begin(const void *hyper, const tn_clock *clock, void *constants)
{
    const adam_mini *h = (const adam_mini *)hyper;
    adam_mini_constants *k = (adam_mini_constants *)constants;
    k->at = tn_moments_at(h->beta1, h->beta2, h->eps, (double)clock->t);
    k->step = (tn_real)(h->lr / tn_correction(h->beta1, (double)clock->t));
    k->keep = 1 - h->lr * h->weight_decay;
}

TN_CLONES static double adam_mini_squares(const tn_real *__restrict x, int64_t n, double scale)
{
    return tn_squares(x, n, scale);
}

static void adam_mini_partial(const tn_piece *piece, const tn_partial *out)
{
    const tn_real *g = (const tn_real *)piece->g;
    if (!out->rows) {
        out->scalars[0] = adam_mini_squares(g, piece->n, piece->scale);
        return;
    }
    for (tn_row_run r = tn_rows_of(piece); tn_next_row(&r);)
        out->rows[r.row - piece->lo / r.columns] = adam_mini_squares(g + r.at, r.n, piece->scale);
}

static void adam_mini_fold(const tn_fold *fold)
{
    const adam_mini *h = (const adam_mini *)fold->hyper;
    adam_mini_constants *k = (adam_mini_constants *)fold->k;
    int64_t columns = tn_view_columns(fold->parameter), n = tn_elements(fold->parameter);
    double rest = 1 - h->beta2;
    if (n == 0)
        return;
    if (!tn_is_matrix(fold->parameter)) {
        double *v = (double *)fold->slot[V];
        *v = h->beta2 * *v + rest * fold->sums[0] / (double)n;
        k->whole = k->step / tn_moments_root(k->at, (tn_real)*v);
        return;
    }
    for (int64_t i = 0; i < fold->parameter->shape[0]; i++) {
        tn_real *v = (tn_real *)fold->slot[V] + i;
        *v = (tn_real)(h->beta2 * (double)*v + rest * fold->rows[i] / (double)columns);
    }
}

TN_CLONES static void adam_mini_loop(adam_mini_constants k, int64_t n, tn_real scale, tn_real step,
                                     const tn_real *__restrict g, tn_real *__restrict m, tn_real *__restrict d)
{
    for (int64_t i = 0; i < n; i++) {
        m[i] = k.at.beta1 * m[i] + k.at.rest1 * (scale * g[i]);
        d[i] = -step * m[i];
    }
}

static void adam_mini_update(const tn_piece *piece)
{
    const adam_mini_constants *k = (const adam_mini_constants *)piece->k;
    const tn_real *g = (const tn_real *)piece->g, scale = (tn_real)piece->scale;
    tn_real *m = (tn_real *)piece->slot[M], *d = (tn_real *)piece->d;
    if (!tn_is_matrix(piece->parameter)) {
        adam_mini_loop(*k, piece->n, scale, k->whole, g, m, d);
        return;
    }
    for (tn_row_run r = tn_rows_of(piece); tn_next_row(&r);) {
        tn_real v = ((const tn_real *)piece->slot[V])[r.row];
        adam_mini_loop(*k, r.n, scale, k->step / tn_moments_root(k->at, v), g + r.at, m + r.at, d + r.at);
    }
}

static double adam_mini_keep(const void *k) { return ((const adam_mini_constants *)k)->keep; }

static const tn_optimizer adam_mini_table = {.struct_size = sizeof(tn_optimizer),
                                             .constants_bytes = (uint32_t)sizeof(adam_mini_constants),
                                             .plan = adam_mini_plan,
                                             .begin = adam_mini_begin,
                                             .partial = adam_mini_partial,
                                             .fold = adam_mini_fold,
                                             .update = adam_mini_update,
                                             .keep = adam_mini_keep};
TN_LINK(adam_mini, "optimizer", HYPER, SLOTS, "Adam with one second moment a row",
        TN_STAGE("rule") TN_GRAIN("tensor") TN_ROUNDS(TN_SUMS("tensor", 1, 1, 0)) TN_PAPER("arXiv:2406.16793")
            TN_FORMULA("v = beta2 v + (1 - beta2) mean of the row's g^2; p = (1 - lr wd) p - lr (m / (1 - beta1^t)) / "
                       "(sqrt(v / (1 - beta2^t)) + eps)"),
        adam_mini_table)
TN_PLUGIN("org.tenon.adam-mini", "0.1.0", "Apache-2.0", adam_mini)
