/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of experiments: a second component called twin. Declarations only.
 */
#include <tenon/optimizer.h>
#include <tenon/sdk.h>

static const tn_optimizer link_table = {.struct_size = sizeof(tn_optimizer)};
TN_COMPONENT(twin, "average", TN_OPTIMIZER, 0, TN_NO_HYPER, "two of two", TN_FACT("stage", "\"after\""), link_table);
TN_PLUGIN("org.tenon.test.twin", "1.0.0", "Apache-2.0", twin)
