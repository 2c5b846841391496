/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of the graph: a model whose table is too short to hold its function.
 */
#include <tenon/model.h>
#include <tenon/sdk.h>

static const struct {
    uint32_t struct_size, reserved;
} none_table = {8, 0};
TN_COMPONENT(no_build, "model", TN_MODEL, 0, TN_NO_HYPER, "No model at all", "", none_table);
TN_PLUGIN("org.tenon.test.no-build", "0.1.0", "Apache-2.0", no_build)
