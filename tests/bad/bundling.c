/* SPDX-License-Identifier: Apache-2.0
 *
 * A plugin that looks for libtenon_bundled.so beside itself.
 */
#define BAD_NAME  "bundling"
#define BAD_TABLE &bundling_table
#include <tenon/optimizer.h>
int tenon_test_bundled(void);
static double bundling_scale(const void *k)
{
    (void)k;
    return tenon_test_bundled();
}
static const tn_optimizer bundling_table = {.struct_size = sizeof(tn_optimizer), .scale = bundling_scale};
#include "bad.h"
