/* SPDX-License-Identifier: Apache-2.0
 *
 * Noam: warm-up and decay with the inverse root of the update's number n = 1, 2, ... Vaswani et al. 2017,
 * arXiv:1706.03762, equation 3. The value is absolute and does not depend on what the experiment gives: its peak is
 * factor (width warmup)^-1/2 at update n = warmup. The same curve with a peak of one's own is `inverse-sqrt`.
 */
#include <tenon/schedule.h>

#define HYPER(X)                                                                                                       \
    X(integer, width, 512, "[1, inf)", "of the model, d_model")                                                        \
    X(integer, warmup, 4000, "[1, inf) steps", "updates until the peak")                                               \
    X(real, factor, 1, "(-inf, inf) or nan", "multiplies all; nan: as the experiment gives lr")                        \
    TN_STEPS_ROW(X)
TN_DECLARE(noam, HYPER)

static double noam_value(const noam *h, const tn_position *at)
{
    double n = (double)at->step + 1, warmup = (double)h->warmup;
    return tn_or_base(h->factor, at) * fmin(1 / sqrt(n), n / (warmup * sqrt(warmup))) / sqrt((double)h->width);
}

TN_SCHEDULE(noam, HYPER, "The transformer's warm-up and decay",
            TN_PAPER("arXiv:1706.03762") TN_FORMULA("factor width^-1/2 min(n^-1/2, n warmup^-3/2), n = t + 1"))
TN_PLUGIN("org.tenon.noam", "0.1.0", "Apache-2.0", noam)
