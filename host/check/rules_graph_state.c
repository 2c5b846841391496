/* SPDX-License-Identifier: Apache-2.0
 *
 * rules_graph_state.c: buffers of layers, random numbers, numbers that are none, and what normalizers owe besides.
 */
#include <math.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/check/lone.h"
#include "host/check/rules_graph.h"

#define BACK (TN_WANT_DX | TN_WANT_DW)

static void tour(const tn_check_subject *subject, tn_check_finding *finding, void (*visit)(tn_lone *))
{
    tn_lone_each(subject, finding, &(tn_lone_use){.visit = visit, .all = true});
}

/* ---- buffers are all the state ---- */

#define STEPS_BEFORE 3 /* a checkpoint follows */
#define STEPS_AFTER  2
#define RECORD_BYTES ((size_t)4 << 20)

/* In memory that processes share: buffers at the checkpoint, then what the steps after it gave, a shape behind the
 * other. */
typedef struct {
    int32_t is_second;
    size_t used;
    unsigned char bytes[RECORD_BYTES];
} record;

static record *shared;

static void step(tn_lone *lone, int64_t number)
{
    for (int32_t i = 0; i < lone->inputs; i++)
        tn_lone_random(&lone->x[i], 400 + 10 * (uint64_t)number + (uint64_t)i, -2, 3);
    lone->context.attempt = lone->context.update = number;
    tn_lone_forward(lone, TN_TRAIN, 0);
    tn_lone_backward(lone, TN_TRAIN | BACK, 0);
}

static void visit_first(tn_lone *lone)
{
    uint32_t all = TN_LONE_RESULTS | TN_LONE_BUFFER;
    size_t bytes = tn_lone_copy_bytes(lone, TN_LONE_BUFFER) + tn_lone_copy_bytes(lone, all);
    if (shared->used + bytes > RECORD_BYTES || !tn_lone_may(lone, TN_TRAIN))
        return;
    for (int64_t k = 0; k < STEPS_BEFORE; k++)
        step(lone, k);
    tn_lone_take(lone, TN_LONE_BUFFER, shared->bytes + shared->used);
    for (int64_t k = STEPS_BEFORE; k < STEPS_BEFORE + STEPS_AFTER; k++)
        step(lone, k);
    tn_lone_take(lone, all, shared->bytes + shared->used + tn_lone_copy_bytes(lone, TN_LONE_BUFFER));
    shared->used += bytes;
}

static void visit_second(tn_lone *lone)
{
    uint32_t all = TN_LONE_RESULTS | TN_LONE_BUFFER;
    size_t buffers = tn_lone_copy_bytes(lone, TN_LONE_BUFFER), bytes = buffers + tn_lone_copy_bytes(lone, all);
    if (shared->used + bytes > RECORD_BYTES || !tn_lone_may(lone, TN_TRAIN))
        return;
    const tn_lone_copy before = {TN_LONE_BUFFER, shared->bytes + shared->used},
                       after = {all, shared->bytes + shared->used + buffers};
    tn_lone_put(lone, &before);
    for (int64_t k = STEPS_BEFORE; k < STEPS_BEFORE + STEPS_AFTER; k++)
        step(lone, k);
    tn_lone_same(lone, &after,
                 "a run that goes on in a new process, from its buffers, gives something else; what "
                 "training changes goes into buffers");
    shared->used += bytes;
}

static void one_process(const tn_check_subject *subject, void *memory, tn_check_finding *finding)
{
    shared = memory;
    shared->used = 0;
    tour(subject, finding, shared->is_second++ ? visit_second : visit_first);
}

void tn_check_layer_state(const tn_check_subject *subject, tn_check_finding *finding)
{
    record *memory = tn_check_shared(sizeof *memory);
    if (!memory)
        tn_check_skip(finding, "no memory that processes share");
    else if (tn_check_apart(subject, one_process, memory, finding))
        tn_check_apart(subject, one_process, memory, finding);
}

/* ---- frozen calls, and evaluation, leave buffers alone ---- */

static void visit_freeze(tn_lone *lone)
{
    if (!lone->buffers)
        return;
    for (int32_t i = 0; i < lone->buffers; i++)
        tn_lone_random(&lone->buffer[i], 60 + (uint64_t)i, 0.5, 1.5);
    tn_lone_copy buffers = tn_lone_take(lone, TN_LONE_BUFFER, NULL);
    if (tn_lone_may(lone, 0)) {
        tn_lone_forward(lone, 0, 0);
        tn_lone_same(lone, &buffers, "evaluation must leave it alone");
    }
    if (!tn_lone_is_done(lone) && tn_lone_may(lone, TN_TRAIN)) {
        tn_lone_forward(lone, TN_TRAIN | TN_FREEZE, 0);
        tn_lone_copy results = tn_lone_take(lone, TN_LONE_Y | TN_LONE_SAVED, NULL);
        if (tn_lone_same(lone, &buffers, "under TN_FREEZE forward must leave it alone")) {
            tn_lone_backward(lone, TN_TRAIN | BACK, 0);
            tn_lone_same(lone, &buffers, "backward must leave it alone");
        }
        if (!tn_lone_is_done(lone)) {
            tn_lone_forward(lone, TN_TRAIN, 0);
            tn_lone_same(lone, &results, "it depends on TN_FREEZE, which is about buffers only");
        }
        tn_lone_drop(&results);
    }
    tn_lone_drop(&buffers);
}

void tn_check_layer_freeze(const tn_check_subject *subject, tn_check_finding *finding)
{
    tour(subject, finding, visit_freeze);
}

/* ---- a refresh: the mean of what each batch alone would leave, whatever was there ---- */

static void refresh(tn_lone *lone, int64_t k, uint64_t key)
{
    lone->refresh = k;
    for (int32_t i = 0; i < lone->inputs; i++)
        tn_lone_random(&lone->x[i], key + (uint64_t)i, -2, 2);
    tn_lone_forward(lone, TN_TRAIN, 0);
}

static void compare_means(tn_lone *lone, double *alone[2][TN_LONE_PORTS])
{
    double unit = lone->instance->info->real == 64 ? 1e-12 : 2e-6;
    for (int32_t i = 0; i < lone->buffers; i++)
        for (int64_t j = 0; j < tn_lone_count(&lone->buffer[i]) && !tn_lone_is_done(lone); j++) {
            double wanted = (alone[0][i][j] + 2 * alone[1][i][j]) / 3, got = tn_lone_get(&lone->buffer[i], j);
            if (!(fabs(got - wanted) <= unit * fmax(1, fabs(wanted))))
                tn_lone_fail(lone,
                             "after a refresh over 3 batches %s[%lld] is %.9g, needed the mean of what each alone "
                             "leaves, %.9g; see `refresh` in tn_layer_call",
                             lone->buffer_name[i], (long long)j, got, wanted);
        }
}

static void visit_refresh(tn_lone *lone)
{
    double *alone[2][TN_LONE_PORTS] = {{0}};
    if (!lone->buffers || !tn_lone_may(lone, TN_TRAIN))
        return;
    for (uint64_t key = 0; key < 2; key++) {
        refresh(lone, 1, 70 + 10 * key);
        for (int32_t i = 0; i < lone->buffers; i++)
            alone[key][i] = tn_lone_values(&lone->buffer[i]);
    }
    for (int32_t i = 0; i < lone->buffers; i++)
        memset(lone->buffer[i].view.data, 0xFF, lone->buffer[i].bytes);
    for (int64_t k = 1; k <= 3; k++)
        refresh(lone, k, 70 + 10 * (uint64_t)(k % 2));
    compare_means(lone, alone);
    for (int k = 0; k < 2; k++)
        for (int32_t i = 0; i < lone->buffers; i++)
            tn_free(alone[k][i]);
}

void tn_check_layer_refresh(const tn_check_subject *subject, tn_check_finding *finding)
{
    tour(subject, finding, visit_refresh);
}

/* ---- what is not finite ---- */

static bool has_nonfinite(const tn_lone_tensor *list, int32_t count)
{
    for (int32_t i = 0; i < count; i++)
        for (int64_t j = 0; j < tn_lone_count(&list[i]); j++)
            if (!isfinite(tn_lone_get(&list[i], j)))
                return true;
    return false;
}

static void fill_tensor(tn_lone_tensor *t, double value)
{
    for (int64_t i = 0; i < tn_lone_count(t); i++)
        tn_lone_set(t, i, value);
}

static bool differs(const tn_lone *lone, const double *y)
{
    for (int64_t i = 0; i < tn_lone_count(&lone->y); i++)
        if (tn_lone_get(&lone->y, i) != y[i])
            return true;
    return false;
}

/* Evaluation with x[i] set so. */
static void evaluate_at(tn_lone *lone, int64_t i, double value)
{
    tn_lone_set(&lone->x[0], i, value);
    tn_lone_forward(lone, 0, 0);
}

/* One NaN at a time, in evaluation, where y depends on it. */
static void check_single(tn_lone *lone)
{
    int64_t n = tn_lone_count(&lone->x[0]), stride = n / 5 + 1;
    lone->fill = TN_LONE_LARGE;
    tn_lone_forward(lone, 0, 0);
    double *y = tn_lone_values(&lone->y);
    for (int64_t i = 0; y && i < n && !tn_lone_is_done(lone); i += stride) {
        double at = tn_lone_get(&lone->x[0], i);
        evaluate_at(lone, i, at + 1);
        bool matters = differs(lone, y);
        evaluate_at(lone, i, NAN);
        if (matters && !has_nonfinite(&lone->y, 1))
            tn_lone_fail(lone,
                         "x[%lld] is NaN, and all of y is finite: a NaN that is swallowed hides a run that went "
                         "wrong; fmin, fmax and comparisons lose it",
                         (long long)i);
        tn_lone_set(&lone->x[0], i, at);
    }
    tn_free(y);
}

static void check_infinite(tn_lone *lone, uint32_t flags)
{
    static const double values[] = {INFINITY, -INFINITY, NAN, 1e300, -1e300, 5e-324};
    for (size_t k = 0; k < sizeof values / sizeof *values; k++)
        for (int32_t i = 0; i < lone->inputs; i++) {
            fill_tensor(&lone->x[i], values[k]);
            tn_lone_forward(lone, flags, 0);
            tn_lone_backward(lone, flags | BACK, 0);
        }
}

static bool has_gradient(const tn_lone *lone)
{
    for (int64_t i = 0; i < tn_lone_count(&lone->dx[0]); i++)
        if (tn_lone_get(&lone->dx[0], i) != 0)
            return true;
    return false;
}

static void check_gradient(tn_lone *lone)
{
    tn_lone_forward(lone, 0, 0);
    tn_lone_backward(lone, BACK, 0);
    bool matters = has_gradient(lone);
    fill_tensor(&lone->dy, NAN);
    tn_lone_backward(lone, BACK, 0);
    if (matters && !has_nonfinite(lone->dx, lone->inputs))
        tn_lone_fail(lone, "all of dy is NaN, and all of dx is finite; what is no number must stay so");
}

static void visit_nonfinite(tn_lone *lone)
{
    if (tn_lone_may(lone, 0)) {
        check_single(lone);
        if (!tn_lone_is_done(lone))
            check_gradient(lone);
        check_infinite(lone, TN_FREEZE);
    }
    if (tn_lone_may(lone, TN_TRAIN))
        check_infinite(lone, TN_TRAIN | TN_FREEZE);
}

void tn_check_layer_nonfinite(const tn_check_subject *subject, tn_check_finding *finding)
{
    tour(subject, finding, visit_nonfinite);
}

/* ---- random numbers ---- */

#define DRAWS 300 /* even where one element in a hundred is random, some differ */

/* The same key and attempt draw the same; of other attempts and keys some do not. */
static void check_draws(tn_lone *lone, const tn_lone_copy *first, const double *y)
{
    int32_t attempts = 0, keys = 0;
    for (int k = 0; k < DRAWS; k++) {
        lone->context.attempt += 1 + k;
        tn_lone_forward(lone, TN_TRAIN | TN_FREEZE, 0);
        attempts += differs(lone, y);
        lone->context.attempt -= 1 + k;
        lone->context.key ^= (uint64_t)(k + 1) * 0x9E3779B97F4A7C15u;
        tn_lone_forward(lone, TN_TRAIN | TN_FREEZE, 0);
        keys += differs(lone, y);
        lone->context.key ^= (uint64_t)(k + 1) * 0x9E3779B97F4A7C15u;
    }
    lone->context.update++;
    tn_lone_forward(lone, TN_TRAIN | TN_FREEZE, 0);
    if (!tn_lone_same(lone, first,
                      "the same key and attempt must draw the same numbers, or a replay computes another "
                      "batch"))
        return;
    if ((attempts == 0) != (keys == 0))
        tn_lone_fail(lone,
                     "of %d other %s none draws other numbers; a draw for element i depends on the key, the attempt "
                     "and i",
                     DRAWS, attempts ? "keys" : "attempts");
}

static void visit_random(tn_lone *lone)
{
    if (!tn_lone_may(lone, TN_TRAIN) || tn_lone_count(&lone->y) < 16)
        return;
    tn_lone_forward(lone, TN_TRAIN | TN_FREEZE, 0);
    tn_lone_copy first = tn_lone_take(lone, TN_LONE_Y | TN_LONE_SAVED, NULL);
    double *y = tn_lone_values(&lone->y);
    check_draws(lone, &first, y);
    tn_free(y);
    tn_lone_drop(&first);
    if (tn_lone_is_done(lone) || !tn_lone_may(lone, 0))
        return;
    tn_lone_forward(lone, 0, 0);
    first = tn_lone_take(lone, TN_LONE_Y, NULL);
    lone->context.attempt++;
    tn_lone_forward(lone, 0, 0);
    tn_lone_same(lone, &first, "evaluation draws random numbers: it depends on the attempt");
    lone->context.attempt--;
    tn_lone_drop(&first);
}

void tn_check_layer_random(const tn_check_subject *subject, tn_check_finding *finding)
{
    tour(subject, finding, visit_random);
}

#define ATTEMPTS 800

/* x with mean 0 and variance 1 over all elements: is y so too, in the mean? As alpha dropout promises (Klambauer et al.
 * 2017, arXiv:1706.02515), which moves single elements. */
static bool keeps_moments(tn_lone *lone)
{
    int64_t n = tn_lone_count(&lone->y);
    double mean = 0, squares = 0, unit = (double)n * ATTEMPTS, got_mean = 0, got_squares = 0;
    tn_lone_random(&lone->x[0], 9, -1, 1);
    for (int64_t i = 0; i < n; i++) {
        mean += tn_lone_get(&lone->x[0], i) / (double)n;
        squares += pow(tn_lone_get(&lone->x[0], i), 2) / (double)n;
    }
    for (int64_t i = 0; i < n; i++)
        tn_lone_set(&lone->x[0], i, (tn_lone_get(&lone->x[0], i) - mean) / sqrt(squares - mean * mean));
    for (int k = 0; k < ATTEMPTS; k++) {
        lone->context.attempt = 100 + k;
        tn_lone_forward(lone, TN_TRAIN | TN_FREEZE, 0);
        for (int64_t i = 0; i < n; i++) {
            got_mean += tn_lone_get(&lone->y, i) / unit;
            got_squares += pow(tn_lone_get(&lone->y, i), 2) / unit;
        }
    }
    return fabs(got_mean) <= 6 / sqrt(unit) && fabs(got_squares - 1) <= 20 / sqrt(unit);
}

/* The mean over attempts of the sum of y, in standard errors from the sum in evaluation. */
static void visit_mean(tn_lone *lone)
{
    double sum = 0, squares = 0, wanted = 0;
    int64_t n = tn_lone_count(&lone->y);
    if (!tn_lone_may(lone, TN_TRAIN) || n < 16)
        return;
    tn_lone_random(&lone->x[0], 9, 0.5, 1.5);
    tn_lone_forward(lone, 0, 0);
    for (int64_t i = 0; i < n; i++)
        wanted += tn_lone_get(&lone->y, i);
    for (int k = 0; k < ATTEMPTS; k++) {
        double y = 0;
        lone->context.attempt = 100 + k;
        tn_lone_forward(lone, TN_TRAIN | TN_FREEZE, 0);
        for (int64_t i = 0; i < n; i++)
            y += tn_lone_get(&lone->y, i);
        sum += y - wanted;
        squares += (y - wanted) * (y - wanted);
    }
    double mean = sum / ATTEMPTS, error = sqrt(fmax(0, squares / ATTEMPTS - mean * mean) / ATTEMPTS);
    if (!(fabs(mean) <= 6 * error + 1e-4 * fabs(wanted)) && !keeps_moments(lone))
        tn_lone_fail(lone,
                     "over %d attempts the sum of y is %.6g in the mean, in evaluation %.6g, which is %.1f standard "
                     "errors off; training must keep the expectation",
                     ATTEMPTS, mean + wanted, wanted, error > 0 ? fabs(mean) / error : INFINITY);
}

void tn_check_regularizer_mean(const tn_check_subject *subject, tn_check_finding *finding)
{
    tour(subject, finding, visit_mean);
}

/* ---- normalizers ---- */

static int32_t find(char names[][64], int32_t count, const char *name)
{
    for (int32_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

static void check_affine(tn_lone *lone, const char *name, double start)
{
    int32_t i = find(lone->parameter_name, lone->parameters, name);
    if (i < 0)
        return;
    if (lone->weight[i].init != TN_INIT_CONSTANT || lone->weight[i].a != start)
        tn_lone_fail(lone, "parameter %s begins by rule %d with %g, needed the constant %g", name, lone->weight[i].init,
                     lone->weight[i].a, start);
    if (lone->weight[i].role != TN_ROLE_NORM)
        tn_lone_fail(lone, "parameter %s has role %d, needed TN_ROLE_NORM, by which experiments leave it out of decay",
                     name, lone->weight[i].role);
}

static void visit_names(tn_lone *lone)
{
    const tn_row *affine = tn_instance_row(lone->instance, "affine");
    bool is_on = affine && tn_instance_integer(lone->instance, affine);
    if (tn_instance_row(lone->instance, "epsilon"))
        tn_lone_fail(lone, "the row `epsilon` is called `eps` in all normalizers");
    if (is_on && find(lone->parameter_name, lone->parameters, "weight") < 0)
        tn_lone_fail(lone, "with `affine` it plans no parameter \"weight\"; the learned gain is called so");
    if (affine && !is_on && lone->parameters)
        tn_lone_fail(lone, "without `affine` it plans parameter %s", lone->parameter_name[0]);
    check_affine(lone, "weight", 1);
    check_affine(lone, "bias", 0);
    for (int32_t i = 0; i < lone->buffers; i++)
        if (strcmp(lone->buffer_name[i], "running_mean") != 0 && strcmp(lone->buffer_name[i], "running_var") != 0)
            tn_lone_fail(lone, "it plans buffer %s; statistics of evaluation are running_mean and running_var",
                         lone->buffer_name[i]);
}

void tn_check_normalizer_names(const tn_check_subject *subject, tn_check_finding *finding)
{
    tour(subject, finding, visit_names);
}

/* Evaluation with the statistics of this batch is training's result but for the unbiased variance: n / (n - 1). */
static void check_agreement(tn_lone *lone)
{
    int64_t n = tn_lone_count(&lone->y);
    double rows = (double)lone->planned, bound = 0.02 + 1.5 * (sqrt(rows / (rows - 1)) - 1);
    lone->refresh = 1;
    tn_lone_forward(lone, TN_TRAIN, 0);
    lone->refresh = 0;
    double *trained = tn_lone_values(&lone->y), largest = 0;
    tn_lone_forward(lone, 0, 0);
    for (int64_t i = 0; trained && i < n; i++)
        largest = fmax(largest, fabs(trained[i]));
    for (int64_t i = 0; trained && i < n && !tn_lone_is_done(lone); i++)
        if (!(fabs(tn_lone_get(&lone->y, i) - trained[i]) <= bound * largest))
            tn_lone_fail(lone,
                         "with the statistics of the same batch y[%lld] is %.6g in evaluation and %.6g in training",
                         (long long)i, tn_lone_get(&lone->y, i), trained[i]);
    tn_free(trained);
}

/* In evaluation a row does not depend on the others. */
static void check_rows(tn_lone *lone)
{
    int64_t rows = lone->y.shape[0], row = tn_lone_count(&lone->y) / rows;
    tn_lone_forward(lone, 0, 0);
    double *before = tn_lone_values(&lone->y);
    for (int64_t i = tn_lone_count(&lone->x[0]) / rows; i < tn_lone_count(&lone->x[0]); i++)
        tn_lone_set(&lone->x[0], i, 5);
    tn_lone_forward(lone, 0, 0);
    for (int64_t i = 0; before && i < row && !tn_lone_is_done(lone); i++)
        if (tn_lone_get(&lone->y, i) != before[i])
            tn_lone_fail(lone,
                         "in evaluation y[%lld], of the first row, is %.9g, and %.9g if the other rows change; "
                         "evaluation takes its statistics from buffers",
                         (long long)i, before[i], tn_lone_get(&lone->y, i));
    tn_free(before);
}

static void visit_evaluation(tn_lone *lone)
{
    if (lone->planned < 5 || !tn_lone_may(lone, TN_TRAIN) || !tn_lone_may(lone, 0))
        return;
    check_agreement(lone);
    if (!tn_lone_is_done(lone))
        check_rows(lone);
}

void tn_check_normalizer_evaluation(const tn_check_subject *subject, tn_check_finding *finding)
{
    tour(subject, finding, visit_evaluation);
}
