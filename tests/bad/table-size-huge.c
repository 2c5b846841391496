/* SPDX-License-Identifier: Apache-2.0
 *
 * Its table says a size that leaves the file's memory.
 */
#define BAD_NAME       "table-size-huge"
#define BAD_TABLE_SIZE 0xfffffff8u
#include "bad.h"
