/* SPDX-License-Identifier: Apache-2.0
 *
 * rules_update_small.c: what is required of codecs, loss scales and schedulers for themselves.
 */
#include <math.h>
#include <string.h>

#include "host/base/memory.h"
#include "host/check/motion_small.h"
#include "host/check/rules_update.h"

/* ---- codecs ---- */

/* What was decoded is a stored number already: storing it once more changes nothing. */
static void again(tn_motion *m, const tn_variant *variant, int64_t tensor, tn_check_finding *finding)
{
    const tn_motion_options options = {.variant = variant};
    tn_motion_codec_work *w = m->own;
    tn_codec_tensor *t = &w->tensor[tensor];
    size_t bytes = (size_t)t->n * (w->real / 8);
    char *first = tn_alloc(bytes, 1);
    const tn_codec_call call = tn_motion_codec_call(w, tensor, 0, t->n);
    if (!first)
        return;
    memcpy(first, t->real, bytes);
    m->steps++; /* other random numbers */
    tn_motion_encode(m, &call);
    tn_motion_decode(m, &call);
    for (int64_t i = 0; i < t->n && finding->verdict == TN_CHECK_PASSED; i++) {
        double a = tn_motion_get(w->real, first, i), b = tn_motion_get(w->real, t->real, i);
        if (a != b && !(isnan(a) && isnan(b)))
            tn_motion_fail(&options, finding,
                           "element %lld of %lld: %.9g came out of it, and put in once more comes out as %.9g",
                           (long long)i, (long long)t->n, a, b);
    }
    tn_free(first);
}

static void again_one(const tn_check_subject *subject, const tn_variant *variant, tn_check_finding *finding)
{
    const tn_motion_options options = {.variant = variant};
    tn_motion *m;
    if (!tn_motion_begin(subject, &options, &m, finding))
        return;
    tn_motion_step(m, 1);
    int64_t tensors = ((tn_motion_codec_work *)m->own)->tensors;
    for (int64_t i = 0; i < tensors && finding->verdict == TN_CHECK_PASSED; i++)
        again(m, variant, i, finding);
    tn_motion_close(m);
}

void tn_check_codec_again(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_motion_variants(subject, finding, again_one);
}

/* Through it: n numbers that are 1/2, or 0, but for one. */
static void pass(tn_motion *m, int64_t tensor, double usual, int64_t at, double value)
{
    tn_motion_codec_work *w = m->own;
    tn_codec_tensor *t = &w->tensor[tensor];
    const tn_codec_call call = tn_motion_codec_call(w, tensor, 0, t->n);
    for (int64_t i = 0; i < t->n; i++)
        tn_motion_set(w->real, t->real, i, i == at ? value : usual);
    tn_motion_encode(m, &call);
    tn_motion_decode(m, &call);
}

static double came_out(const tn_motion *m, int64_t tensor, int64_t i)
{
    const tn_motion_codec_work *w = m->own;
    return tn_motion_get(w->real, w->tensor[tensor].real, i);
}

static void special(tn_motion *m, const tn_motion_options *options, int64_t tensor, tn_check_finding *finding)
{
    int64_t n = ((tn_motion_codec_work *)m->own)->tensor[tensor].n, at = n / 2;
    pass(m, tensor, 0.5, at, NAN);
    if (!isnan(came_out(m, tensor, at)))
        tn_motion_fail(options, finding, "NaN comes out as %g: bad state must stay visible", came_out(m, tensor, at));
    pass(m, tensor, 0, at, 0);
    for (int64_t i = 0; i < n && finding->verdict == TN_CHECK_PASSED; i++)
        if (came_out(m, tensor, i) != 0)
            tn_motion_fail(options, finding, "0 among %lld zeros comes out as %g", (long long)n,
                           came_out(m, tensor, i));
}

static void nonnegative(const tn_motion *m, const tn_motion_options *options, int64_t tensor, tn_check_finding *finding)
{
    int64_t n = ((tn_motion_codec_work *)m->own)->tensor[tensor].n;
    for (int64_t i = 0; i < n && tensor % 2 && finding->verdict == TN_CHECK_PASSED; i++)
        if (came_out(m, tensor, i) < 0)
            tn_motion_fail(options, finding, "of numbers that are never below 0 element %lld comes out as %g",
                           (long long)i, came_out(m, tensor, i));
}

static void special_one(const tn_check_subject *subject, const tn_variant *variant, tn_check_finding *finding)
{
    const tn_motion_options options = {.variant = variant};
    tn_motion *m;
    if (!tn_motion_begin(subject, &options, &m, finding))
        return;
    tn_motion_step(m, 1);
    int64_t tensors = ((tn_motion_codec_work *)m->own)->tensors;
    for (int64_t i = 0; i < tensors && finding->verdict == TN_CHECK_PASSED; i++) {
        nonnegative(m, &options, i, finding);
        special(m, &options, i, finding);
    }
    tn_motion_close(m);
}

void tn_check_codec_special(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_motion_variants(subject, finding, special_one);
}

/* ---- loss scales ---- */

static void look_at_scale(tn_motion *m, const tn_motion_options *options, const char *after, tn_check_finding *finding)
{
    int exponent;
    double scale = tn_motion_scale(m);
    if (!isfinite(scale) || scale <= 0 || frexp(scale, &exponent) != 0.5)
        tn_motion_fail(options, finding, "its scale is %.17g after %s, needed a power of two", scale, after);
}

static void values_one(const tn_check_subject *subject, const tn_variant *variant, tn_check_finding *finding)
{
    static const char *const after[] = {"attempts without overflow", "overflows", "overflows now and then"};
    const tn_motion_options options = {.variant = variant};
    for (int how = 0; how < 3 && finding->verdict == TN_CHECK_PASSED; how++) {
        tn_motion *m;
        if (!tn_motion_begin(subject, &options, &m, finding))
            return;
        look_at_scale(m, &options, "begin", finding);
        for (int i = 0; i < 20000 && finding->verdict == TN_CHECK_PASSED; i++) {
            tn_motion_observe_overflow(m, how == 1 || (how == 2 && tn_motion_noise(0, i, 0) > 0.9));
            look_at_scale(m, &options, after[how], finding);
        }
        tn_motion_close(m);
    }
}

void tn_check_loss_scale_values(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_motion_variants(subject, finding, values_one);
}

static void overflow_one(const tn_check_subject *subject, const tn_variant *variant, tn_check_finding *finding)
{
    const tn_motion_options options = {.variant = variant};
    tn_motion *m;
    if (!tn_motion_begin(subject, &options, &m, finding))
        return;
    double first = tn_motion_scale(m), before = first;
    for (int i = 0; i < 1000; i++) {
        tn_motion_observe_overflow(m, 1);
        double now = tn_motion_scale(m);
        if (now > before)
            tn_motion_fail(&options, finding, "an overflow raises the scale from %g to %g", before, now);
        before = now;
    }
    if (((tn_motion_scalars *)m->own)->slot_count > 0 && !(before < first))
        tn_motion_fail(&options, finding, "it keeps state, but 1,000 overflows leave the scale at %g", before);
    tn_motion_close(m);
}

void tn_check_loss_scale_overflow(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_motion_variants(subject, finding, overflow_one);
}

/* ---- schedulers ---- */

static const int64_t horizons[] = {0, 1, 2, 3, 10, 1000};

static double value_at(tn_motion *m, int64_t step, int64_t horizon)
{
    const tn_position position = tn_motion_position(step, horizon);
    return tn_motion_value(m, &position);
}

static void walk(tn_motion *m, const tn_motion_options *options, int64_t horizon, tn_check_finding *finding)
{
    for (int64_t step = 0; step < horizon + 20 && finding->verdict == TN_CHECK_PASSED; step++) {
        double value = value_at(m, step, horizon);
        if (!isfinite(value))
            tn_motion_fail(options, finding, "the value at step %lld of %lld is %g", (long long)step,
                           (long long)horizon, value);
        const tn_position position = tn_motion_position(step, horizon);
        tn_motion_observe_metric(m, &position,
                                 step % 3 == 1   ? NAN
                                 : step % 3 == 2 ? INFINITY
                                                 : -1.0 / (double)(step + 1));
    }
}

static void finite_one(const tn_check_subject *subject, const tn_variant *variant, tn_check_finding *finding)
{
    const tn_motion_options options = {.variant = variant};
    for (size_t i = 0; i < sizeof horizons / sizeof *horizons && finding->verdict == TN_CHECK_PASSED; i++) {
        tn_motion *m;
        if (!tn_motion_begin(subject, &options, &m, finding))
            return;
        walk(m, &options, horizons[i], finding);
        tn_motion_close(m);
    }
}

void tn_check_scheduler_values(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_motion_variants(subject, finding, finite_one);
}

/* What changes slowly is nearly the same a few steps before, on the other side of 2^31 and 2^32; what comes again every
 * so many steps is the same a multiple of these before. */
static bool is_near_before(tn_motion *m, int64_t step, int64_t horizon, double value)
{
    static const int64_t backs[] = {5, 16, 1000, 4000, 720720, 18018000};
    bool near = false;
    for (size_t i = 0; i < sizeof backs / sizeof *backs && !near; i++) {
        double before = value_at(m, step - backs[i], horizon);
        near = fabs(value - before) <= 0.02 * (0.25 + fabs(before));
    }
    return near;
}

static void far_one(const tn_check_subject *subject, const tn_variant *variant, tn_check_finding *finding)
{
    const tn_motion_options options = {.variant = variant};
    const int64_t far = INT64_C(1) << 33;
    tn_motion *m;
    if (!tn_motion_begin(subject, &options, &m, finding))
        return;
    for (int bits = 31; bits <= 32 && finding->verdict == TN_CHECK_PASSED; bits++) {
        int64_t step = (INT64_C(1) << bits) + 2;
        double value = value_at(m, step, far);
        if (!is_near_before(m, step, far, value))
            tn_motion_fail(&options, finding,
                           "the value at step %lld of %lld is %g, and %g five steps before; is a step cut to 32 bits?",
                           (long long)step, (long long)far, value, value_at(m, step - 5, far));
    }
    tn_motion_close(m);
}

void tn_check_scheduler_far(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_motion_variants(subject, finding, far_one);
}
