/* SPDX-License-Identifier: Apache-2.0
 *
 * rules_graph.c: what components of a model, of its data and of what runs it must do.
 */
#include "host/check/check.h"

const tn_check_rule tn_check_graph_rules[] = {
    {0},
};
