/* SPDX-License-Identifier: Apache-2.0
 *
 * Its table says a size of 0.
 */
#define BAD_NAME       "table-size-zero"
#define BAD_TABLE_SIZE 0
#include "bad.h"
