/* SPDX-License-Identifier: Apache-2.0
 *
 * Cyclic: triangles between start and peak. Smith, WACV 2017, arXiv:1506.01186, section 3; torch's CyclicLR. The height
 * over the start stays (triangular), is halved with each cycle (triangular2) or is multiplied by gamma at each update
 * (exp-range). For momentum turned round: {use: cyclic, start: 0.95, peak: 0.85}.
 */
#include <tenon/schedule.h>

#define HYPER(X)                                                                                                       \
    X(real, peak, nan, "(-inf, inf) or nan", "value at the top of the first cycle; nan: as the experiment gives it")   \
    X(real, start, nan, "(-inf, inf) or nan", "value between two cycles; nan: peak / div")                             \
    X(real, div, 4, "(0, inf)", "how far below the peak the start is")                                                 \
    X(real, up, 2000, "(0, inf)", "steps or epochs from start to peak")                                                \
    X(real, down, 0, "[0, inf)", "steps or epochs back; 0: as many")                                                   \
    X(choice, mode, triangular, "triangular | triangular2 | exp-range", "what becomes of the height")                  \
    X(real, gamma, 1, "(0, inf)", "exp-range: factor of the height at each step or epoch")                             \
    TN_UNIT_ROW(X)                                                                                                     \
    TN_STEPS_ROW(X)
TN_DECLARE(cyclic, HYPER)

static double cyclic_value(const cyclic *h, const tn_position *at)
{
    double peak = tn_or_base(h->peak, at), start = isnan(h->start) ? peak / h->div : h->start;
    double down = h->down > 0 ? h->down : h->up, length = h->up + down, t = tn_time(h->unit, at);
    double x = fmod(t, length), part = x <= h->up ? x / h->up : (length - x) / down;
    double height = h->mode == 1 ? exp2(-rint((t - x) / length)) : h->mode == 2 ? pow(h->gamma, t) : 1;
    return tn_between(start, height == 1 ? peak : start + height * (peak - start), part);
}

TN_SCHEDULE(cyclic, HYPER, "Triangles between start and peak",
            TN_PAPER("arXiv:1506.01186") TN_FORMULA("start + (peak - start) height triangle(t)"))
TN_PLUGIN("org.tenon.cyclic", "0.1.0", "Apache-2.0", cyclic)
