/* SPDX-License-Identifier: Apache-2.0
 *
 * rules_graph_slopes.c: derivatives of layers against central differences, at points where these tell them.
 *
 * Of four values around a point, f' = (8 (f(h) - f(-h)) - (f(2h) - f(-2h))) / 12h + O(h^4). In f64 h = 1e-4: the
 * truncation is some 1e-17, the rounding 1e-16 / h = 1e-12 of the largest term. In f32 h = 2^-5: 1e-7 and 6e-8 / h =
 * 2e-6. Where the same with h / 2 tells something else the function has a kink nearby, and the point is left out.
 */
#include <math.h>

#include "host/base/memory.h"
#include "host/check/lone.h"
#include "host/check/rules_graph.h"

#define BACK        (TN_WANT_DX | TN_WANT_DW)
#define POINTS_MOST 16 /* of a tensor */

typedef struct {
    double step, tolerance;
} method;

static method method_of(const tn_lone *lone)
{
    return lone->instance->info->real == 64 ? (method){1e-4, 1e-7} : (method){0x1p-5, 2e-3};
}

/* ---- of the sum of dy y ---- */

static double objective(tn_lone *lone, uint32_t flags)
{
    double sum = 0;
    tn_lone_forward(lone, flags, 0);
    for (int64_t i = 0; i < tn_lone_count(&lone->y); i++)
        sum += tn_lone_get(&lone->dy, i) * tn_lone_get(&lone->y, i);
    return sum;
}

static double combine(const double *value, double h)
{
    return (8 * (value[2] - value[1]) - (value[3] - value[0])) / (12 * h);
}

static double difference(tn_lone *lone, uint32_t flags, tn_lone_tensor *t, int64_t i, double h)
{
    static const double steps[] = {-2, -1, 1, 2};
    double at = tn_lone_get(t, i), value[4];
    for (int k = 0; k < 4; k++) {
        tn_lone_set(t, i, at + steps[k] * h);
        value[k] = objective(lone, flags);
    }
    tn_lone_set(t, i, at);
    return combine(value, h);
}

typedef struct {
    int64_t points, kinks;
} score;

static void check_tensor(tn_lone *lone, uint32_t flags, tn_lone_tensor *t, const double *slopes, const char *name,
                         score *seen)
{
    int64_t n = tn_lone_count(t), stride = n / POINTS_MOST + 1;
    method m = method_of(lone);
    double largest = 1;
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(slopes[i]));
    for (int64_t i = 0; i < n && !tn_lone_is_done(lone); i += stride) {
        double wide = difference(lone, flags, t, i, m.step), narrow = difference(lone, flags, t, i, m.step / 2);
        seen->points++;
        if (!(fabs(wide - narrow) <= m.tolerance * largest / 2)) {
            seen->kinks++;
            continue;
        }
        if (!(fabs(narrow - slopes[i]) <= m.tolerance * largest))
            tn_lone_fail(lone, "%s: by backward the derivative by %s[%lld] is %.9g, by central differences %.9g",
                         flags & TN_TRAIN ? "training" : "evaluation", name, (long long)i, slopes[i], narrow);
    }
}

static void check_mode(tn_lone *lone, uint32_t flags, score *seen)
{
    double *dx[TN_LONE_PORTS], *dw[TN_LONE_PORTS];
    tn_lone_forward(lone, flags, 0);
    tn_lone_backward(lone, flags | BACK, 0);
    for (int32_t i = 0; i < lone->inputs; i++)
        dx[i] = tn_lone_values(&lone->dx[i]);
    for (int32_t i = 0; i < lone->parameters; i++)
        dw[i] = tn_lone_values(&lone->gradient[i]);
    for (int32_t i = 0; i < lone->inputs; i++) {
        check_tensor(lone, flags, &lone->x[i], dx[i], "x", seen);
        tn_free(dx[i]);
    }
    for (int32_t i = 0; i < lone->parameters; i++) {
        check_tensor(lone, flags, &lone->parameter[i], dw[i], lone->parameter_name[i], seen);
        tn_free(dw[i]);
    }
}

static void visit_slopes(tn_lone *lone)
{
    score seen = {0, 0};
    for (int32_t i = 0; i < lone->buffers; i++)
        tn_lone_random(&lone->buffer[i], 60 + (uint64_t)i, 0.5, 1.5);
    if (tn_lone_may(lone, TN_TRAIN))
        check_mode(lone, TN_TRAIN | TN_FREEZE, &seen);
    if (!tn_lone_is_done(lone) && tn_lone_may(lone, 0))
        check_mode(lone, 0, &seen);
    if (!tn_lone_is_done(lone) && seen.points >= POINTS_MOST && seen.kinks * 2 > seen.points)
        tn_lone_fail(lone,
                     "at %lld of %lld points two steps of central differences disagree: forward is no smooth function "
                     "there, or not one of its arguments alone",
                     (long long)seen.kinks, (long long)seen.points);
}

void tn_check_layer_slopes(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_lone_each(subject, finding, &(tn_lone_use){.visit = visit_slopes, .all = true});
}

/* ---- along the direction: all elements at once ---- */

typedef struct {
    tn_lone *lone;
    double *x[TN_LONE_PORTS], *parameter[TN_LONE_PORTS], *dy; /* where they are */
} point;

static point take_point(tn_lone *lone)
{
    point p = {.lone = lone, .dy = tn_lone_values(&lone->dy)};
    for (int32_t i = 0; i < lone->inputs; i++)
        p.x[i] = tn_lone_values(&lone->x[i]);
    for (int32_t i = 0; i < lone->parameters; i++)
        p.parameter[i] = tn_lone_values(&lone->parameter[i]);
    return p;
}

static void drop_point(point *p)
{
    tn_free(p->dy);
    for (int32_t i = 0; i < TN_LONE_PORTS; i++) {
        tn_free(p->x[i]);
        tn_free(p->parameter[i]);
    }
}

static void step_tensor(tn_lone_tensor *t, const double *at, const tn_lone_tensor *direction, double h)
{
    for (int64_t i = 0; i < tn_lone_count(t); i++)
        tn_lone_set(t, i, at[i] + h * tn_lone_get(direction, i));
}

/* Moves all by h along the direction, and runs both ways. */
static void step_to(const point *p, uint32_t flags, double h)
{
    tn_lone *lone = p->lone;
    for (int32_t i = 0; i < lone->inputs; i++)
        step_tensor(&lone->x[i], p->x[i], &lone->along_x[i], h);
    for (int32_t i = 0; i < lone->parameters; i++)
        step_tensor(&lone->parameter[i], p->parameter[i], &lone->along_parameter[i], h);
    step_tensor(&lone->dy, p->dy, &lone->along_dy, h);
    tn_lone_forward(lone, flags, 0);
    tn_lone_backward(lone, flags | BACK, 0);
}

typedef struct {
    tn_lone_tensor *moved, *along;
    const char *name;
    double *value[8];
} pair;

static int32_t pairs_of(tn_lone *lone, pair ret[1 + 2 * TN_LONE_PORTS])
{
    int32_t count = 0;
    ret[count++] = (pair){.moved = &lone->y, .along = &lone->along_y, .name = "y~"};
    for (int32_t i = 0; i < lone->inputs; i++)
        ret[count++] = (pair){.moved = &lone->dx[i], .along = &lone->along_dx[i], .name = "dx~"};
    for (int32_t i = 0; i < lone->parameters; i++)
        ret[count++] = (pair){.moved = &lone->gradient[i], .along = &lone->along_gradient[i], .name = "gradient~"};
    return count;
}

static void check_pair(tn_lone *lone, const pair *p, double h, double tolerance)
{
    double largest = 1, *got = tn_lone_values(p->along);
    int64_t n = tn_lone_count(p->along);
    for (int64_t i = 0; i < n; i++)
        largest = fmax(largest, fabs(got[i]));
    for (int64_t i = 0; i < n && !tn_lone_is_done(lone); i++) {
        double four[2][4];
        for (int k = 0; k < 8; k++)
            four[k / 4][k % 4] = p->value[k][i];
        double wide = combine(four[0], h), narrow = combine(four[1], h / 2);
        if (fabs(wide - narrow) <= tolerance * largest / 2 && !(fabs(narrow - got[i]) <= tolerance * largest))
            tn_lone_fail(lone, "%s[%lld] is %.9g, by central differences along the direction %.9g", p->name,
                         (long long)i, got[i], narrow);
    }
    tn_free(got);
}

static void check_along(tn_lone *lone, uint32_t flags)
{
    static const double steps[] = {-2, -1, 1, 2, -1, -0.5, 0.5, 1};
    pair pairs[1 + 2 * TN_LONE_PORTS];
    method m = method_of(lone);
    int32_t count = pairs_of(lone, pairs);
    point p = take_point(lone);
    for (int k = 0; k < 8; k++) {
        step_to(&p, flags, steps[k] * m.step);
        for (int32_t i = 0; i < count; i++)
            pairs[i].value[k] = tn_lone_values(pairs[i].moved);
    }
    step_to(&p, flags, 0);
    tn_lone_tangent(lone, flags, 0, false);
    tn_lone_back_tangent(lone, flags | BACK, 0, false);
    for (int32_t i = 0; i < count; i++) {
        check_pair(lone, &pairs[i], m.step, 4 * m.tolerance);
        for (int k = 0; k < 8; k++)
            tn_free(pairs[i].value[k]);
    }
    drop_point(&p);
}

/* x~ lent as NULL is x~ of zeros. */
static void check_zero(tn_lone *lone, uint32_t flags)
{
    for (int32_t i = 0; i < lone->inputs; i++)
        for (int64_t j = 0; j < tn_lone_count(&lone->along_x[i]); j++)
            tn_lone_set(&lone->along_x[i], j, 0);
    tn_lone_tangent(lone, flags, 0, false);
    double *right = tn_lone_values(&lone->along_y);
    tn_lone_tangent(lone, flags, 0, true);
    for (int64_t i = 0; right && i < tn_lone_count(&lone->along_y) && !tn_lone_is_done(lone); i++)
        if (!(fabs(tn_lone_get(&lone->along_y, i) - right[i]) <= 1e-6))
            tn_lone_fail(lone, "with x~ lent as NULL y~[%lld] is %.9g, with x~ of zeros %.9g", (long long)i,
                         tn_lone_get(&lone->along_y, i), right[i]);
    tn_free(right);
}

static void visit_tangents(tn_lone *lone)
{
    if (!lone->table->tangents)
        return;
    if (!lone->tangents.forward || !lone->tangents.backward) {
        tn_lone_fail(lone, "its table of tangents lacks forward or backward");
        return;
    }
    if (!tn_lone_may(lone, TN_TRAIN))
        return;
    check_along(lone, TN_TRAIN | TN_FREEZE);
    if (!tn_lone_is_done(lone))
        check_zero(lone, TN_TRAIN | TN_FREEZE);
}

void tn_check_layer_tangents(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_lone_each(subject, finding, &(tn_lone_use){.visit = visit_tangents, .all = true});
}
