/* SPDX-License-Identifier: Apache-2.0
 *
 * Its table says a size of 1.
 */
#define BAD_NAME       "table-size-one"
#define BAD_TABLE_SIZE 1
#include "bad.h"
