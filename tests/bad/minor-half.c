/* SPDX-License-Identifier: Apache-2.0
 *
 * Two components: one that this host can use, and one that needs a newer minor.
 */
#include <tenon/optimizer.h>
#include <tenon/sdk.h>

static double half(const void *k)
{
    (void)k;
    return 0.5;
}
static const tn_optimizer old_half_table = {.struct_size = sizeof(tn_optimizer), .scale = half};
static const tn_optimizer new_half_table = {.struct_size = sizeof(tn_optimizer), .scale = half};
TN_COMPONENT(old_half, "optimizer", TN_OPTIMIZER, TN_REAL, TN_NO_HYPER, "of today", ",\"stage\":\"gradient\"",
             old_half_table);
#undef TN_ABI_TARGET
#define TN_ABI_TARGET 77u
TN_COMPONENT(new_half, "optimizer", TN_OPTIMIZER, TN_REAL, TN_NO_HYPER, "of tomorrow", ",\"stage\":\"gradient\"",
             new_half_table);
#undef TN_ABI_TARGET
#define TN_ABI_TARGET 0u
TN_PLUGIN("org.tenon.test.minor-half", "0.1.0", "Apache-2.0", old_half, new_half)
