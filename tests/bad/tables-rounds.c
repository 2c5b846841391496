/* SPDX-License-Identifier: Apache-2.0
 *
 * Links that a chain must refuse for their rounds, constants or numbers.
 */
#include <tenon/rule.h>

static void nothing(const tn_piece *piece) { (void)piece; }
static void no_sum(const tn_piece *piece, const tn_partial *out)
{
    (void)piece;
    (void)out;
}
static void no_fold(const tn_fold *fold) { (void)fold; }
static double no_number(const void *k)
{
    (void)k;
    return 0.0 / 0.0;
}

#define PLAIN(name, kind, facts, ...)                                                                                  \
    TN_DECLARE(name, TN_NO_HYPER)                                                                                      \
    static const tn_optimizer name##_table = {.struct_size = sizeof(tn_optimizer), __VA_ARGS__};                       \
    TN_COMPONENT(name, kind, TN_OPTIMIZER, TN_REAL, TN_NO_HYPER, "Wrong", facts, name##_table);
#define ROUND .partial = no_sum, .fold = no_fold

PLAIN(many_rows, "transform", TN_STAGE("gradient") TN_ROUNDS(TN_SUMS("tensor", 0, 5000, 0)), ROUND)
PLAIN(minus_columns, "transform", TN_STAGE("gradient") TN_ROUNDS(TN_SUMS("tensor", 1, 0, -1)), ROUND)
PLAIN(empty_round, "transform", TN_STAGE("gradient") TN_ROUNDS(TN_SUMS("model", 0, 0, 0)), ROUND)
PLAIN(late_round, "transform", TN_STAGE("after") TN_ROUNDS(TN_SUMS("model", 1, 0, 0)), ROUND)
PLAIN(constants, "optimizer", TN_STAGE("rule"), .constants_bytes = TN_CONSTANTS_MAX + 8, .update = nothing)
PLAIN(idle_rule, "optimizer", TN_STAGE("rule"))
PLAIN(no_number_scale, "transform", TN_STAGE("gradient"), .scale = no_number)
TN_PLUGIN("org.tenon.test.tables-rounds", "0.1.0", "Apache-2.0", many_rows, minus_columns, empty_round, late_round,
          constants, idle_rule, no_number_scale)
