/* SPDX-License-Identifier: Apache-2.0
 *
 * Its table says a size that no struct of pointers has.
 */
#define BAD_NAME       "table-size-odd"
#define BAD_TABLE_SIZE (sizeof(tn_optimizer) - 3)
#include "bad.h"
