/* SPDX-License-Identifier: Apache-2.0
 *
 * It reads a number from text with the locale's decimal point.
 */
#define BAD_HYPER(X)                                                                                                   \
    X(real, lr, 0.01, "[0, inf)", "step size")                                                                         \
    X(text, factor, "0.5", "", "of the step size")                                                                     \
    X(fixed, number, 0.5, "[0, 1]", "the same as a number")
#include <stdlib.h>

#include "rule.h"

static void begin_scaled(const void *hyper, const tn_clock *clock, void *k)
{
    const bad *h = (const bad *)hyper;
    begin(hyper, clock, k);
#ifdef REPAIRED
    ((constants *)k)->lr *= (tn_real)h->number;
#else
    ((constants *)k)->lr *= (tn_real)strtod(h->factor, NULL);
#endif
}

BAD_RULE("update-locale", .begin = begin_scaled, .update = step)
