/* SPDX-License-Identifier: Apache-2.0
 *
 * Constant: one value at every update, e.g. the plateau between a warm-up and a decay.
 */
#include <tenon/schedule.h>

#define HYPER(X)                                                                                                       \
    X(real, value, nan, "(-inf, inf) or nan", "the value; nan: as the experiment gives it")                            \
    X(integer, steps, 0, "[0, inf) steps", "length in a sequence; 0: the rest of the run")
TN_DECLARE(constant, HYPER)

static double constant_value(const constant *h, const tn_position *at) { return tn_or_base(h->value, at); }

TN_SCHEDULE(constant, HYPER, "One value throughout", TN_FORMULA("value"))
TN_PLUGIN("org.tenon.constant", "0.1.0", "Apache-2.0", constant)
