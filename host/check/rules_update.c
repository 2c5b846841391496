/* SPDX-License-Identifier: Apache-2.0
 *
 * rules_update.c: what components that make an update must do.
 */
#include "host/check/check.h"

const tn_check_rule tn_check_update_rules[] = {
    {0},
};
