/* SPDX-License-Identifier: Apache-2.0
 *
 * series.c: a ramp's rates and losses: smoothing, the end, the suggestions.
 */
#include <math.h>

#include "host/base/memory.h"
#include "host/range/ramp.h"

static int32_t check(const tn_ramp_settings *s, tn_error *err)
{
    if (!isfinite(s->from) || !isfinite(s->to) || !(s->from < s->to))
        return tn_error_set(err, TN_E_INVALID, "from %g to %g: needed two finite rates, the first below the second",
                            s->from, s->to);
    if (!s->linear && !(s->from > 0))
        return tn_error_set(err, TN_E_INVALID,
                            "from %g: rates in equal ratios begin above 0; a ramp that is linear may "
                            "begin anywhere",
                            s->from);
    if (s->steps < 2 || s->steps > TN_RAMP_STEPS_MAX)
        return tn_error_set(err, TN_E_INVALID, "steps %lld: needed 2 to %d updates", (long long)s->steps,
                            TN_RAMP_STEPS_MAX);
    if (!(s->smooth >= 0 && s->smooth < 1))
        return tn_error_set(err, TN_E_INVALID, "smooth %g: needed a weight in [0, 1), such as 0.98; 0: none",
                            s->smooth);
    if (!(s->stop > 1))
        return tn_error_set(err, TN_E_INVALID, "stop %g: needed more than 1 times the least loss, such as 4", s->stop);
    return TN_OK;
}

int32_t tn_ramp_open(const tn_ramp_settings *settings, tn_ramp *ret, tn_error *err)
{
    int32_t status = check(settings, err);
    if (status != TN_OK)
        return status;
    tn_ramp ramp = {.settings = *settings, .least = HUGE_VAL};
    ramp.points = tn_alloc((size_t)settings->steps, sizeof *ramp.points);
    if (!ramp.points)
        return tn_error_set(err, TN_E_MEMORY, "no memory for a ramp of %lld updates", (long long)settings->steps);
    *ret = ramp;
    return TN_OK;
}

void tn_ramp_close(tn_ramp *ramp)
{
    tn_free(ramp->points);
    ramp->points = NULL;
}

double tn_ramp_rate(const tn_ramp_settings *s, int64_t step)
{
    double part = (double)step / (double)(s->steps - 1);
    if (step == s->steps - 1)
        return s->to;
    return s->linear ? s->from + (s->to - s->from) * part : s->from * pow(s->to / s->from, part);
}

/* So many times the least, where that is above 0; the same distance above it where it is not. */
static double limit(const tn_ramp *ramp) { return ramp->least + (ramp->settings.stop - 1) * fabs(ramp->least); }

int32_t tn_ramp_add(tn_ramp *ramp, double loss)
{
    const tn_ramp_settings *s = &ramp->settings;
    if (!isfinite(loss))
        return ramp->ended = TN_RAMP_DIVERGED;
    ramp->mean = s->smooth * ramp->mean + (1 - s->smooth) * loss;
    double smoothed = s->smooth > 0 ? ramp->mean / -expm1((double)(ramp->count + 1) * log(s->smooth)) : loss;
    ramp->points[ramp->count] = (tn_ramp_point){tn_ramp_rate(s, ramp->count), loss, smoothed};
    ramp->count++;
    if (smoothed > limit(ramp))
        return ramp->ended = TN_RAMP_ABOVE;
    ramp->least = fmin(ramp->least, smoothed);
    return ramp->ended = ramp->count == s->steps ? TN_RAMP_DONE : TN_RAMP_GOES_ON;
}

/* The difference of neighbours, over both sides where there are two. */
static double slope(const tn_ramp *ramp, int64_t i)
{
    int64_t before = i > 0 ? i - 1 : i, after = i + 1 < ramp->count ? i + 1 : i;
    return (ramp->points[after].smoothed - ramp->points[before].smoothed) / (double)(after - before);
}

tn_ramp_findings tn_ramp_find(const tn_ramp *ramp)
{
    tn_ramp_findings found = {-1, -1, NAN, 0};
    int64_t first = ramp->settings.steps / 10;
    for (int64_t i = first; i < ramp->count; i++)
        if (found.minimum < 0 || ramp->points[i].smoothed < ramp->points[found.minimum].smoothed)
            found.minimum = i;
    if (found.minimum <= first) { /* it only rose */
        found.minimum = -1;
        return found;
    }
    for (int64_t i = first; i <= found.minimum; i++)
        if (slope(ramp, i) < (found.steepest < 0 ? 0 : slope(ramp, found.steepest)))
            found.steepest = i;
    found.tenth = ramp->points[found.minimum].rate / 10;
    found.open = ramp->ended == TN_RAMP_DONE && found.minimum == ramp->count - 1;
    return found;
}
