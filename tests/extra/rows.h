/* SPDX-License-Identifier: Apache-2.0
 *
 * rows.h: the table of the component `rows`, which has rows of each type: for the plugin and for the tests that read
 * its struct.
 */
#ifndef TENON_TESTS_EXTRA_ROWS_H
#define TENON_TESTS_EXTRA_ROWS_H

#include <tenon/sdk.h>

#define ROWS_HYPER(X)                                                                                                  \
    X(real, step, .5, "[0, inf)", "an author may leave out digits at the point")                                       \
    X(real, any_real, nan, "(-inf, inf] or nan", "also nan and inf")                                                   \
    X(fixed, unit, 0x1p-3, "(0, 1]", "stays")                                                                          \
    X(integer, count, 3, "[1, 100] things; since 1.2.0", "with a unit")                                                \
    X(integer, large, 0, "", "without bounds")                                                                         \
    X(flag, open, true, "", "")                                                                                        \
    X(choice, mode, torch, "torch | paper | fan_in", "")                                                               \
    X(text, label, "a \"b\"", "", "")                                                                                  \
    X(integers, sizes, "[2, -3]", "[-5, 5]", "")                                                                       \
    X(integers, empty, "[]", "", "")                                                                                   \
    X(component, first, relu, "activation", "")                                                                        \
    X(component, second, none, "regularizer", "")                                                                      \
    X(component, third, layernorm, "normalizer", "")
TN_DECLARE(rows, ROWS_HYPER)

#endif
