/* SPDX-License-Identifier: Apache-2.0
 *
 * K-FAC: natural gradient with a Kronecker-factored Fisher matrix. Martens and Grosse, ICML 2015, arXiv:1503.05671.
 * A linear layer's weight and bias are one matrix W; with x the inputs, 1 appended for the bias, and g the gradients of
 * each sample's loss by the outputs, A = E[x x^T] and G = E[g g^T] (section 3). Their running means have the weight
 * min(1 - 1/k, ema) for the past at the k-th look (section 5). Damped for themselves (section 6.3), with gamma =
 * sqrt(damping) and pi^2 the ratio of the mean eigenvalues of A and G, the step is
 *
 *   -lr (G + gamma / pi I)^-1 m (A + pi gamma I)^-1
 *
 * m the gradient or, with momentum, m <- momentum m + g: while the inverses stay, this is heavy ball behind them. Left
 * out: the rescaling by the exact Fisher matrix (section 6.4), whose place transform/kl-clip takes, the adaptation of
 * damping, and the tridiagonal form.
 *
 * Inverses are taken in f64 by way of Cholesky's factors. Where that fails (damping 0 and too few samples), the ones
 * before stay, or while there are none that of the mean eigenvalue times I stands in, and the log says so.
 */
#include <tenon/matrix_rule.h>

#define HYPER(X)                                                                                                       \
    X(real, lr, 0.03, "[0, inf)", "step size")                                                                         \
    X(real, damping, 1e-3, "[0, inf)", "added to the Fisher matrix, spread over its two factors")                      \
    X(real, momentum, 0, "[0, 1)", "decay of the sum of gradients; 0: none")                                           \
    X(real, weight_decay, 0, "[0, inf)", "decoupled decay, multiplied by lr")                                          \
    X(real, ema, 0.95, "[0, 1)", "the most that the past counts in A and G")                                           \
    X(choice, fisher, sampled, "sampled | empirical", "targets drawn from the model's distribution, or the data's")    \
    X(integer, factor_every, 10, "[1, inf)", "updates from look to look at A and G")                                   \
    X(integer, inverse_every, 100, "[1, inf)", "updates from inverse to inverse; a multiple of factor_every")
#define SLOTS(S)                                                                                                       \
    S(a, right, zero, signed, "running mean of x x^T")                                                                 \
    S(g, left, zero, signed, "running mean of g g^T")                                                                  \
    S(a_inverse, right, zero, signed, "of the damped a")                                                               \
    S(g_inverse, left, zero, signed, "of the damped g")                                                                \
    S(a_sum, right, zero, tapped transient, "sum of x x^T over a window")                                              \
    S(g_sum, left, zero, tapped transient, "sum of g g^T over a window")                                               \
    S(m, like, zero, signed, "decayed sum of gradients; only if momentum is not 0")
TN_DECLARE_RULE(kfac, HYPER, SLOTS)

typedef struct {
    tn_real momentum;
    double keep;
} kfac_constants;

static int32_t kfac_plan(const tn_parameter *parameter, const void *hyper, const tn_slot_planner *planner,
                         tn_error *err)
{
    static const tn_slot slots[] = {SLOTS(TN_SLOT_PLANNED)};
    const kfac *h = (const kfac *)hyper;
    int32_t count = (int32_t)(sizeof slots / sizeof *slots) - !(h->momentum > 0), status = TN_OK;
    (void)parameter;
    if (h->inverse_every % h->factor_every)
        return tn_fail(err, TN_E_INVALID, "kfac: inverse_every is %lld, needed a multiple of factor_every, %lld",
                       (long long)h->inverse_every, (long long)h->factor_every);
    for (int32_t i = 0; i < count && status == TN_OK; i++)
        status = planner->slot(planner->host, &slots[i]);
    return status;
}

static void kfac_begin(const void *hyper, const tn_clock *clock, void *constants)
{
    const kfac *h = (const kfac *)hyper;
    kfac_constants *k = (kfac_constants *)constants;
    (void)clock;
    k->momentum = (tn_real)h->momentum;
    k->keep = 1 - h->lr * h->weight_decay;
}

static double kfac_keep(const void *k) { return ((const kfac_constants *)k)->keep; }

TN_CLONES static void kfac_sum(tn_real momentum, const tn_real *__restrict g, tn_real scale, tn_real *__restrict m,
                               tn_real *__restrict d, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        d[i] = m[i] = momentum * m[i] + scale * g[i];
}

TN_CLONES static void kfac_copy(const tn_real *__restrict g, tn_real scale, tn_real *__restrict d, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        d[i] = scale * g[i];
}

static void kfac_update(const tn_piece *piece)
{
    const kfac_constants *k = (const kfac_constants *)piece->k;
    const tn_real *g = (const tn_real *)piece->g;
    tn_real scale = (tn_real)piece->scale;
    if (((const kfac *)piece->hyper)->momentum > 0)
        kfac_sum(k->momentum, g, scale, (tn_real *)((kfac_slots *)piece->slot)->m, (tn_real *)piece->d, piece->n);
    else
        kfac_copy(g, scale, (tn_real *)piece->d, piece->n);
}

/* ---- taps ---- */

static int32_t kfac_tapping(const void *hyper, const tn_clock *clock)
{
    const kfac *h = (const kfac *)hyper;
    return (clock->t - 1) % h->factor_every ? TN_TAP_NONE : h->fisher ? TN_TAP_TARGETS : TN_TAP_SAMPLED;
}

/* What the 1 behind each x adds: a last row and column of the sums of x, and n. `sums`: columns doubles. */
static void kfac_tap_bias(const tn_tap_call *call, tn_real *a, int64_t columns, double *sums)
{
    const tn_real *x = (const tn_real *)call->x->data;
    int64_t last = columns - 1;
    memset(sums, 0, (size_t)columns * sizeof *sums);
    for (int64_t i = 0; i < call->n; i++)
        for (int64_t j = 0; j < last; j++)
            sums[j] += (double)x[i * last + j];
    sums[last] = (double)call->n;
    for (int64_t j = 0; j < columns; j++)
        a[last * columns + j] += (tn_real)sums[j];
    for (int64_t j = 0; j < last; j++)
        a[j * columns + last] += (tn_real)sums[j];
}

static void kfac_tap(const tn_tap_call *call)
{
    const kfac_slots *slots = (const kfac_slots *)call->slot;
    int64_t inputs = call->x->shape[1], columns = inputs + call->bias, rows = call->dy->shape[1];
    tn_dense x = tn_dense_real(call->x->data, call->n, inputs), g = tn_dense_real(call->dy->data, call->n, rows);
    tn_dense a = tn_dense_real(slots->a_sum, columns, columns);
    tn_dense_multiply(call->compute, 1, 1, tn_dense_t(x), x, 1, tn_dense_part(a, 0, inputs, 0, inputs));
    tn_dense_multiply(call->compute, 1, 1 / (call->seed * call->seed), tn_dense_t(g), g, 1,
                      tn_dense_real(slots->g_sum, rows, rows));
    if (call->bias)
        kfac_tap_bias(call, (tn_real *)slots->a_sum, columns, (double *)call->workspace);
}

/* ---- the step ---- */

static int64_t kfac_line(int64_t bytes) { return (bytes + 63) / 64 * 64; }

static int64_t kfac_workspace(const void *hyper, int64_t rows, int64_t columns)
{
    int64_t n = rows > columns ? rows : columns;
    (void)hyper;
    return kfac_line(rows * columns * (int64_t)sizeof(tn_real)) + n * n * (int64_t)sizeof(double) +
           tn_dense_inverse_bytes(n);
}

static void kfac_average(tn_real *mean, const tn_real *sum, int64_t n, double past, double samples)
{
    for (int64_t i = 0; i < n; i++)
        mean[i] = (tn_real)(past * (double)mean[i] + (1 - past) * (double)sum[i] / samples);
}

static double kfac_mean_eigenvalue(const tn_real *x, int64_t n)
{
    double trace = 0;
    for (int64_t i = 0; i < n; i++)
        trace += (double)x[i * n + i];
    return trace / (double)n;
}

/* inverse = (x + damping I)^-1; `work`: n * n doubles and tn_dense_inverse_bytes(n). Not touched on failure. */
static int kfac_invert(const tn_compute *compute, const tn_real *x, double damping, int64_t n, double *work,
                       tn_real *inverse)
{
    for (int64_t i = 0; i < n * n; i++)
        work[i] = (double)x[i];
    for (int64_t i = 0; i < n; i++)
        work[i * n + i] += damping;
    if (!tn_dense_inverse(compute, work, n, work + n * n))
        return 0;
    for (int64_t i = 0; i < n * n; i++)
        inverse[i] = (tn_real)work[i];
    return 1;
}

static void kfac_warn(const tn_matrix_call *call, const char *factor, const char *instead)
{
    char text[256];
    const tn_services *services = call->context ? call->context->services : NULL;
    snprintf(text, sizeof text, "kfac: %s of '%.80s' is not positive definite at update %lld: %s; raise damping",
             factor, call->parameter->name, (long long)call->clock->t, instead);
    if (services && services->log)
        services->log(services->host, 2, text);
}

/* The diagonal of an inverse is above 0. */
static int kfac_has_inverse(const tn_real *inverse) { return inverse[0] > 0; }

/* inverse = (mean + damping)^-1 I, or I where that is no number to divide by. */
static void kfac_stand_in(double mean, double damping, int64_t n, tn_real *inverse)
{
    double value = 1 / (mean + damping);
    for (int64_t i = 0; i < n * n; i++)
        inverse[i] = 0;
    for (int64_t i = 0; i < n; i++)
        inverse[i * n + i] = (tn_real)(value > 0 && isfinite((tn_real)value) ? value : 1);
}

/* The inverse of the factor x of mean eigenvalue `mean`, damped, or what there is instead. */
static void kfac_renew(const tn_matrix_call *call, const char *factor, const tn_real *x, double mean, double damping,
                       int64_t n, double *work, tn_real *inverse)
{
    if (kfac_invert(call->compute, x, damping, n, work, inverse))
        return;
    if (kfac_has_inverse(inverse)) {
        kfac_warn(call, factor, "the inverse before it stays");
        return;
    }
    kfac_stand_in(mean, damping, n, inverse);
    kfac_warn(call, factor, "there is no inverse yet, a multiple of the identity stands in for it");
}

static void kfac_refresh(const tn_matrix_call *call, int64_t item, double *work)
{
    const kfac *h = (const kfac *)call->hyper;
    const kfac_slots *slots = (const kfac_slots *)call->slot;
    int64_t rows = call->rows, columns = call->columns, left = item * rows * rows, right = item * columns * columns;
    const tn_real *a = (const tn_real *)slots->a + right, *g = (const tn_real *)slots->g + left;
    double of_a = kfac_mean_eigenvalue(a, columns), of_g = kfac_mean_eigenvalue(g, rows);
    double pi = of_a > 0 && of_g > 0 ? sqrt(of_a / of_g) : 1, gamma = sqrt(h->damping);
    kfac_renew(call, "A", a, of_a, gamma * pi, columns, work, (tn_real *)slots->a_inverse + right);
    kfac_renew(call, "G", g, of_g, gamma / pi, rows, work, (tn_real *)slots->g_inverse + left);
}

static void kfac_apply(const tn_matrix_call *call)
{
    const kfac *h = (const kfac *)call->hyper;
    const kfac_slots *slots = (const kfac_slots *)call->slot;
    int64_t rows = call->rows, columns = call->columns, count = call->count, t = call->clock->t - 1;
    int64_t half = kfac_line(count * rows * columns * (int64_t)sizeof(tn_real));
    double past = fmin(1 - 1 / (double)(t / h->factor_every + 1), h->ema);
    tn_dense a = tn_dense_real(slots->a_inverse, columns, columns), g = tn_dense_real(slots->g_inverse, rows, rows);
    tn_dense d = tn_dense_real(call->d, rows, columns), between = tn_dense_real(call->workspace, rows, columns);
    if (call->tapped > 0) {
        kfac_average((tn_real *)slots->a, (const tn_real *)slots->a_sum, count * columns * columns, past, call->tapped);
        kfac_average((tn_real *)slots->g, (const tn_real *)slots->g_sum, count * rows * rows, past, call->tapped);
    }
    for (int64_t i = 0; i < count && t % h->inverse_every == 0; i++)
        kfac_refresh(call, i, (double *)((char *)call->workspace + half));
    tn_dense_multiply(call->compute, count, 1, g, d, 0, between);
    tn_dense_multiply(call->compute, count, -h->lr, between, a, 0, d);
}

static const tn_matrix kfac_matrix = {sizeof(tn_matrix), 0, kfac_workspace, kfac_apply, kfac_tapping, kfac_tap};
static const tn_optimizer kfac_table = {.struct_size = sizeof(tn_optimizer),
                                        .constants_bytes = (uint32_t)sizeof(kfac_constants),
                                        .plan = kfac_plan,
                                        .begin = kfac_begin,
                                        .update = kfac_update,
                                        .keep = kfac_keep,
                                        .matrix = &kfac_matrix};
TN_LINK(kfac, "optimizer", HYPER, SLOTS, "Natural gradient with a Kronecker-factored Fisher matrix",
        TN_STAGE("rule") TN_GRAIN("layer") TN_FACT("signals", "[\"taps\"]") TN_PAPER("arXiv:1503.05671")
            TN_FORMULA("p = p - lr (G + gamma / pi I)^-1 m (A + pi gamma I)^-1"),
        kfac_table)
TN_PLUGIN("org.tenon.kfac", "0.1.0", "Apache-2.0", kfac)
