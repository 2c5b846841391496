/* SPDX-License-Identifier: Apache-2.0
 *
 * A table of a later minor, longer than the host's, which is allowed: what is beyond is not read.
 */
#define BAD_NAME  "table-size-newer"
#define BAD_TABLE &newer_table
#include <tenon/optimizer.h>
static double newer_scale(const void *k)
{
    (void)k;
    return 0.25;
}
static const struct {
    tn_optimizer table;
    const char *beyond[4];
} newer_table = {{.struct_size = sizeof(tn_optimizer) + 4 * sizeof(char *), .scale = newer_scale},
                 {"a", "b", "c", "d"}};
#include "bad.h"
