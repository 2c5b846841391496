/* SPDX-License-Identifier: Apache-2.0
 *
 * Links that use what the bundled ones do not: for test_chain.
 */
#include <tenon/rule.h>

/* ---- fixed-scale: a pure scale ---- */

#define SCALE_HYPER(X) X(real, factor, 0.5, "(-inf, inf)", "on the gradient")
TN_DECLARE(fixed_scale, SCALE_HYPER)
static void fixed_scale_begin(const void *hyper, const tn_clock *clock, void *k)
{
    (void)clock;
    *(double *)k = ((const fixed_scale *)hyper)->factor;
}
static double fixed_scale_scale(const void *k) { return *(const double *)k; }
static const tn_optimizer fixed_scale_table = {.struct_size = sizeof(tn_optimizer),
                                               .constants_bytes = sizeof(double),
                                               .begin = fixed_scale_begin,
                                               .scale = fixed_scale_scale};
TN_LINK(fixed_scale, "transform", SCALE_HYPER, TN_NO_SLOTS, "A factor on the gradient", TN_STAGE("gradient"),
        fixed_scale_table)

/* ---- center: a sum for each tensor, then a new gradient ---- */

TN_DECLARE(center, TN_NO_HYPER)
static void center_partial(const tn_piece *piece, const tn_partial *out)
{
    for (int64_t i = 0; i < piece->n; i++)
        out->scalars[0] += piece->scale * (double)((const tn_real *)piece->g)[i];
    out->scalars[1] = (double)piece->n;
}
static void center_fold(const tn_fold *fold) { *(double *)fold->k = fold->sums[0] / fold->sums[1]; }
static void center_update(const tn_piece *piece)
{
    for (int64_t i = 0; i < piece->n; i++)
        ((tn_real *)piece->d)[i] =
            (tn_real)(piece->scale * (double)((const tn_real *)piece->g)[i] - *(const double *)piece->k);
}
static const tn_optimizer center_table = {.struct_size = sizeof(tn_optimizer),
                                          .constants_bytes = sizeof(double),
                                          .partial = center_partial,
                                          .fold = center_fold,
                                          .update = center_update};
TN_LINK(center, "transform", TN_NO_HYPER, TN_NO_SLOTS, "Subtract each tensor's mean gradient",
        TN_STAGE("gradient") TN_ROUND("tensor", 2), center_table)

/* ---- measure: two rounds over the model, the second with what the first found ---- */

typedef struct {
    double n, mean;
} measure_constants;
TN_DECLARE(measure, TN_NO_HYPER)
static void measure_partial(const tn_piece *piece, const tn_partial *out)
{
    const measure_constants *k = (const measure_constants *)piece->k;
    for (int64_t i = 0; i < piece->n; i++) {
        double x = piece->scale * (double)((const tn_real *)piece->g)[i];
        out->scalars[0] += piece->round == 0 ? x : (x - k->mean) * (x - k->mean);
    }
    if (piece->round == 0)
        out->scalars[1] = (double)piece->n;
}
static void measure_fold(const tn_fold *fold)
{
    measure_constants *k = (measure_constants *)fold->k;
    if (fold->round == 0) {
        k->n += fold->sums[1]; /* k is zeroed before each step */
        k->mean = fold->sums[0] / fold->sums[1];
    }
    fold->report[fold->round] = fold->round == 0 ? k->mean : fold->sums[0] / k->n;
}
static const tn_optimizer measure_table = {.struct_size = sizeof(tn_optimizer),
                                           .constants_bytes = sizeof(measure_constants),
                                           .partial = measure_partial,
                                           .fold = measure_fold};
TN_LINK(measure, "transform", TN_NO_HYPER, TN_NO_SLOTS, "Mean and variance of the gradient",
        TN_STAGE("gradient") TN_REPORTS("mean", "variance")
            TN_FACT("rounds", "[{\"scope\":\"model\",\"scalars\":2},{\"scope\":\"model\",\"scalars\":1}]"),
        measure_table)

/* ---- noise: random numbers by the element's place in the tensor ---- */

TN_DECLARE(noise, TN_NO_HYPER)
static void noise_update(const tn_piece *piece)
{
    for (int64_t i = 0; i < piece->n; i++) {
        tn_random4 r = tn_philox(piece->context->key, (uint64_t)(piece->lo + i), (uint64_t)piece->context->attempt);
        ((tn_real *)piece->d)[i] = (tn_real)piece->scale * ((const tn_real *)piece->g)[i] +
                                   (piece->d == piece->g ? (tn_real)NAN : (tn_real)tn_uniform(r.v[0]));
    }
}
static const tn_optimizer noise_table = {.struct_size = sizeof(tn_optimizer), .update = noise_update};
TN_LINK(noise, "transform", TN_NO_HYPER, TN_NO_SLOTS, "Add noise to the gradient", TN_STAGE("gradient"), noise_table)

/* ---- double-step: stage update, with decay, scratch and a slot that is not saved ---- */

#define DOUBLE_SLOTS(S) S(calls, like, one, transient, "1 + how often an element was updated")
TN_DECLARE_RULE(double_step, TN_NO_HYPER, DOUBLE_SLOTS)
static int32_t double_step_plan(const tn_parameter *parameter, const void *hyper, const tn_slot_planner *planner,
                                tn_error *err)
{
    static const tn_slot calls = {sizeof(tn_slot), 0, "calls", "like", "one", "transient", NULL};
    (void)parameter;
    (void)hyper;
    (void)err;
    int32_t status = planner->slot(planner->host, &calls);
    return status ? status : planner->scratch(planner->host, 8192 * (int64_t)sizeof(tn_real));
}
static void double_step_update(const tn_piece *piece)
{
    tn_real *d = (tn_real *)piece->d, *calls = (tn_real *)piece->slot[0], *scratch = (tn_real *)piece->scratch;
    memcpy(scratch, d, (size_t)piece->n * sizeof *d);
    for (int64_t i = 0; i < piece->n; i++) {
        d[i] += scratch[i];
        calls[i] += 1;
    }
}
static double double_step_keep(const void *k)
{
    (void)k;
    return 0.5;
}
static const tn_optimizer double_step_table = {.struct_size = sizeof(tn_optimizer),
                                               .plan = double_step_plan,
                                               .update = double_step_update,
                                               .keep = double_step_keep};
TN_LINK(double_step, "transform", TN_NO_HYPER, DOUBLE_SLOTS, "Twice the step, half the parameter", TN_STAGE("update"),
        double_step_table)

/* ---- copy-after: what an after-stage link sees ---- */

#define COPY_SLOTS(S)                                                                                                  \
    S(copy, like, zero, , "p as it was handed over") S(wrong, like, zero, , "1 where a promise was broken")
TN_DECLARE_RULE(copy_after, TN_NO_HYPER, COPY_SLOTS)
static void copy_after_update(const tn_piece *piece)
{
    const copy_after_slots *slots = (const copy_after_slots *)piece->slot;
    int wrong = piece->g || piece->d || piece->n % 16 || ((size_t)piece->p | (size_t)slots->copy) % 64 ||
                piece->struct_size < sizeof(tn_piece) || !piece->context->services || !piece->parameter->name;
    memcpy(slots->copy, piece->p, (size_t)piece->n * sizeof(tn_real));
    for (int64_t i = 0; i < piece->n && wrong; i++)
        ((tn_real *)slots->wrong)[i] = 1;
}
static const tn_optimizer copy_after_table = {.struct_size = sizeof(tn_optimizer), .update = copy_after_update};
TN_LINK(copy_after, "average", TN_NO_HYPER, COPY_SLOTS, "Copy the parameter", TN_STAGE("after"), copy_after_table)

/* ---- picky: a plan that differs by parameter ---- */

TN_DECLARE(picky, TN_NO_HYPER)
static int32_t picky_plan(const tn_parameter *parameter, const void *hyper, const tn_slot_planner *planner,
                          tn_error *err)
{
    static const tn_slot matrix = {sizeof(tn_slot), 0, "matrix", "like", "zero", "", NULL};
    static const tn_slot all = {sizeof(tn_slot), 0, "all", "like", "parameter", "", NULL};
    (void)hyper;
    if (parameter->ndim > 2)
        return tn_fail(err, TN_E_UNSUPPORTED, "picky: %d axes, needed at most 2", (int)parameter->ndim);
    int32_t status = parameter->ndim == 2 ? planner->slot(planner->host, &matrix) : TN_OK;
    return status ? status : planner->slot(planner->host, &all);
}
static void picky_update(const tn_piece *piece)
{
    tn_real *last = (tn_real *)piece->slot[piece->parameter->ndim == 2 ? 1 : 0];
    for (int64_t i = 0; i < piece->n; i++) {
        if (piece->parameter->ndim == 2)
            ((tn_real *)piece->slot[0])[i] += 1;
        last[i] += 1;
        ((tn_real *)piece->d)[i] = -(tn_real)piece->scale * ((const tn_real *)piece->g)[i];
    }
}
static const tn_optimizer picky_table = {
    .struct_size = sizeof(tn_optimizer), .plan = picky_plan, .update = picky_update};
TN_LINK(picky, "optimizer", TN_NO_HYPER, TN_NO_SLOTS, "Other slots for matrices", TN_STAGE("rule"), picky_table)

TN_PLUGIN("org.tenon.test.links", "1.0.0", "Apache-2.0", fixed_scale, center, measure, noise, double_step, copy_after,
          picky)
