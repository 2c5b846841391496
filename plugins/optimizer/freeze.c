/* SPDX-License-Identifier: Apache-2.0
 *
 * Freeze: the rule of parameters that stay as they are. With `on` it is given to some of them:
 * {use: freeze, on: {name: "hidden.0.*"}}. Their gradients still count in norms over all parameters.
 */
#include <tenon/rule.h>

static void freeze_update(const tn_piece *piece) { memset(piece->d, 0, (size_t)piece->n * sizeof(tn_real)); }

static const tn_optimizer freeze_table = {.struct_size = sizeof(tn_optimizer), .update = freeze_update};
TN_LINK(freeze, "optimizer", TN_NO_HYPER, TN_NO_SLOTS, "Parameters that stay as they are",
        TN_STAGE("rule") TN_GRAIN("element") TN_FORMULA("p = p"), freeze_table)
TN_PLUGIN("org.tenon.freeze", "0.1.0", "Apache-2.0", freeze)
