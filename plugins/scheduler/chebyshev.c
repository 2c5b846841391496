/* SPDX-License-Identifier: Apache-2.0
 *
 * Fractal Chebyshev steps: of `nodes` values the reciprocals of the Chebyshev nodes on [least, 1], times the base, in
 * an order in which large ones are followed by small ones that make good for them; then again. Agarwal, Goel and Zhang,
 * ICML 2021, arXiv:2103.01338. Values go up to almost base/least; the smallest is almost the base.
 */
#include <tenon/schedule.h>

#define HYPER(X)                                                                                                       \
    X(integer, nodes, 8, "[1, 1073741824]", "values before they come again; rounded up to a power of 2")               \
    X(real, least, 0.05, "(0, 1]", "smallest curvature as a part of the largest")                                      \
    X(real, every, 1, "(0, inf)", "steps or epochs that each value stays")                                             \
    TN_UNIT_ROW(X)                                                                                                     \
    TN_STEPS_ROW(X)
TN_DECLARE(chebyshev, HYPER)

/* Place j of the order of n (a power of 2): 0 of 1; that of 2n has for each i of that of n the pair i, 2n - 1 - i. */
static int64_t chebyshev_order(int64_t j, int64_t n)
{
    int64_t i = 0;
    for (int64_t size = 2; size <= n; size *= 2)
        i = j & (n / size) ? size - 1 - i : i;
    return i;
}

static double chebyshev_value(const chebyshev *h, const tn_position *at)
{
    int64_t n = 1, j, i;
    while (n < h->nodes)
        n *= 2;
    j = (int64_t)fmod(floor(tn_time(h->unit, at) / h->every), (double)n);
    i = chebyshev_order(j, n);
    return at->base * 2 / (1 + h->least - (1 - h->least) * cos(M_PI * ((double)i + 0.5) / (double)n));
}

TN_SCHEDULE(chebyshev, HYPER, "Large and small values in fractal order",
            TN_PAPER("arXiv:2103.01338")
                TN_FORMULA("base / ((1 + least)/2 - (1 - least)/2 cos(pi (i + 1/2)/nodes)), i in fractal order"))
TN_PLUGIN("org.tenon.chebyshev", "0.1.0", "Apache-2.0", chebyshev)
