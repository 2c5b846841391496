/* SPDX-License-Identifier: Apache-2.0
 *
 * rules_update_link.c: numbers that links and minimizers must bear: what is not finite, nothing at all, late clocks.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "host/check/motion_link.h"
#include "host/check/rules_update.h"

#define STEPS 3

static bool is_minimizer(const tn_motion *m) { return m->kind == &tn_motion_minimizer; }

/* ---- not finite ---- */

/* Does another number there make another result? What a link does not read it can not show. */
static bool reads(const tn_check_subject *subject, const tn_motion_options *options)
{
    tn_motion_options high = *options, low = *options;
    tn_check_finding unused = {0};
    tn_motion *a, *b;
    bool differ = false;
    high.mix = TN_MIX_HIGH;
    low.mix = TN_MIX_LOW;
    if (!tn_motion_begin(subject, &high, &a, &unused))
        return false;
    if (tn_motion_begin(subject, &low, &b, &unused)) {
        tn_motion_step(a, 2);
        tn_motion_step(b, 2);
        differ = !tn_motion_same(a, b, 0, "", &unused);
        tn_motion_close(b);
    }
    tn_motion_close(a);
    return differ;
}

static void lose(tn_motion *m, const tn_motion_options *options, tn_check_finding *finding)
{
    char words[160];
    tn_error err;
    bool may_lose = is_minimizer(m) || options->mix != TN_MIX_NAN || tn_failures_take(&m->failures, &err) != TN_OK;
    const char *lost = may_lose ? NULL : tn_motion_link_lost(m);
    if (lost && reads(m->subject, options))
        tn_motion_fail(options, finding,
                       "NaN in what it reads of a parameter %s is in no sum, no step and no slot: nobody would see it",
                       lost);
    if (!is_minimizer(m))
        return;
    if (*tn_motion_minimizer_fault(m))
        tn_motion_fail(options, finding, "where evaluations are not finite, %s", tn_motion_minimizer_fault(m));
    else if (options->mix <= TN_MIX_MINUS_INF && !m->skipped && tn_motion_not_finite(m, words, sizeof words))
        tn_motion_fail(options, finding, "it commits where evaluations are not finite, and %s; go back or reject",
                       words);
}

static void nonfinite_one(const tn_check_subject *subject, const tn_variant *variant, tn_check_finding *finding)
{
    static const tn_mix mixes[] = {TN_MIX_NAN, TN_MIX_INF, TN_MIX_MINUS_INF, TN_MIX_LARGEST, TN_MIX_SUBNORMAL};
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes && finding->verdict == TN_CHECK_PASSED; i++) {
        const tn_motion_options options = {.variant = variant, .mix = mixes[i]};
        tn_motion *m;
        if (!tn_motion_begin(subject, &options, &m, finding))
            return;
        tn_motion_step(m, 2); /* the second one is mixed */
        lose(m, &options, finding);
        tn_motion_step(m, 1);
        tn_motion_close(m);
    }
}

void tn_check_update_nonfinite(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_motion_variants(subject, finding, nonfinite_one);
}

/* ---- empty ---- */

static const tn_span *span_of(const tn_motion *m, const char *name)
{
    for (size_t i = 0; i < m->span_count; i++)
        if (strcmp(m->spans[i].name, name) == 0)
            return &m->spans[i];
    return NULL;
}

static void compare_others(const tn_motion *with, const tn_motion *without, tn_check_finding *finding)
{
    for (size_t i = 0; i < without->span_count; i++) {
        const tn_span *x = &without->spans[i], *y = span_of(with, x->name);
        if (y && (x->bytes != y->bytes || memcmp(x->data, y->data, x->bytes) != 0))
            tn_motion_fail(&with->options, finding, "%s is another where there are empty parameters too", x->name);
    }
}

static void empty_one(const tn_check_subject *subject, const tn_variant *variant, tn_check_finding *finding)
{
    const tn_motion_options with = {.variant = variant, .empty = 1}, without = {.variant = variant, .empty = 2};
    char words[160];
    tn_motion *a, *b;
    if (!tn_motion_begin(subject, &with, &a, finding))
        return;
    tn_motion_step(a, STEPS);
    if (tn_motion_not_finite(a, words, sizeof words))
        tn_motion_fail(&with, finding, "where there are parameters without elements, %s", words);
    if (tn_motion_begin(subject, &without, &b, finding)) {
        tn_motion_step(b, STEPS);
        compare_others(a, b, finding);
        tn_motion_close(b);
    }
    tn_motion_close(a);
}

void tn_check_update_empty(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_motion_variants(subject, finding, empty_one);
}

/* ---- late clocks ---- */

/* Late clocks and earlier ones on the other side of 2^31 and 2^32. What changes slowly with the clock is nearly the
 * same a few updates before; what is done every so many updates is the same a multiple of these before. */
static const int64_t backs[] = {5, 720720, 18018000};

#define BACKS ((int)(sizeof backs / sizeof *backs))

static double largest(const tn_span *span)
{
    double most = 0;
    for (int64_t i = 0; i < tn_span_count(span); i++)
        most = fmax(most, fabs(tn_motion_get((uint32_t)span->real, span->data, i)));
    return most;
}

static bool is_near(double a, double b, double most) { return fabs(a - b) <= 0.05 * most + 1e-30; }

/* The first number of what is saved that is another; false: all are near. */
static bool find_far(const tn_motion *a, const tn_motion *b, char *ret, size_t size)
{
    for (size_t s = 0; s < a->span_count; s++) {
        const tn_span *x = &a->spans[s], *y = &b->spans[s];
        double most = x->is_kept ? largest(y) : 0;
        for (int64_t i = 0; x->is_kept && i < tn_span_count(x); i++) {
            double u = tn_motion_get((uint32_t)x->real, x->data, i), v = tn_motion_get((uint32_t)x->real, y->data, i);
            if (is_near(u, v, most))
                continue;
            snprintf(ret, size, "%s: element %lld is %g, and a little before %g", x->name, (long long)i, u, v);
            return true;
        }
    }
    return false;
}

/* Both start as usual; then the clock jumps. */
static bool jump(const tn_check_subject *subject, const tn_motion_options *options, int64_t t, tn_motion **ret,
                 tn_check_finding *finding)
{
    if (!tn_motion_begin(subject, options, ret, finding))
        return false;
    tn_motion_step(*ret, STEPS);
    (*ret)->options.t = t;
    tn_motion_step(*ret, 2);
    return true;
}

static void late(const tn_check_subject *subject, const tn_variant *variant, int64_t t, tn_check_finding *finding)
{
    const tn_motion_options options = {.variant = variant};
    char words[200];
    bool far = true;
    tn_motion *a, *b;
    if (!jump(subject, &options, t, &a, finding))
        return;
    for (int i = BACKS - 1; i >= 0 && far; i--) {
        if (!jump(subject, &options, t - backs[i], &b, finding))
            break;
        far = find_far(a, b, words, sizeof words);
        tn_motion_close(b);
    }
    if (far)
        tn_motion_fail(&options, finding, "after %lld updates %s; is a clock cut to 32 bits?", (long long)t, words);
    tn_motion_close(a);
}

static void clock_one(const tn_check_subject *subject, const tn_variant *variant, tn_check_finding *finding)
{
    for (int bits = 31; bits <= 33 && finding->verdict == TN_CHECK_PASSED; bits++)
        late(subject, variant, (INT64_C(1) << bits) - 2, finding);
}

void tn_check_update_clock(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_motion_variants(subject, finding, clock_one);
}

/* ---- late attempts ---- */

static bool differs(const tn_check_subject *subject, const tn_variant *variant, int64_t a, int64_t b, bool *ret_same)
{
    const tn_motion_options one = {.variant = variant, .attempt = a}, other = {.variant = variant, .attempt = b};
    tn_check_finding unused = {0};
    tn_motion *x, *y;
    if (!tn_motion_begin(subject, &one, &x, &unused) || !tn_motion_begin(subject, &other, &y, &unused))
        return false;
    tn_motion_step(x, 2);
    tn_motion_step(y, 2);
    *ret_same = tn_motion_same(x, y, 0, "", &unused);
    tn_motion_close(x);
    tn_motion_close(y);
    return true;
}

/* What draws random numbers differs between attempts; then it must between those that are 2^32 apart. */
static void attempt_one(const tn_check_subject *subject, const tn_variant *variant, tn_check_finding *finding)
{
    const tn_motion_options options = {.variant = variant};
    bool near_same = true, far_same = false;
    if (!differs(subject, variant, 5, 6, &near_same) || near_same)
        return;
    if (differs(subject, variant, 5, 5 + (INT64_C(1) << 32), &far_same) && far_same)
        tn_motion_fail(&options, finding,
                       "attempts 5 and 5 + 2^32 draw the same random numbers; is the attempt cut to "
                       "32 bits?");
}

void tn_check_update_attempt(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_motion_variants(subject, finding, attempt_one);
}

/* ---- what is said of slots ---- */

static void nonnegative_one(const tn_check_subject *subject, const tn_variant *variant, tn_check_finding *finding)
{
    const tn_motion_options options = {.variant = variant};
    tn_motion *m;
    if (!tn_motion_begin(subject, &options, &m, finding))
        return;
    tn_motion_step(m, STEPS);
    for (size_t s = 0; s < m->span_count; s++) {
        const tn_span *span = &m->spans[s];
        for (int64_t i = 0; span->nonnegative && i < tn_span_count(span); i++)
            if (tn_motion_get((uint32_t)span->real, span->data, i) < 0)
                tn_motion_fail(&options, finding,
                               "%s is said to be nonnegative: element %lld is %g; a codec would make 0 of it",
                               span->name, (long long)i, tn_motion_get((uint32_t)span->real, span->data, i));
    }
    tn_motion_close(m);
}

void tn_check_update_nonnegative(const tn_check_subject *subject, tn_check_finding *finding)
{
    tn_motion_variants(subject, finding, nonnegative_one);
}
