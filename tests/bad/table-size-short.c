/* SPDX-License-Identifier: Apache-2.0
 *
 * Its table ends early, which is allowed: what is missing is zero.
 */
#define BAD_NAME       "table-size-short"
#define BAD_TABLE_SIZE 16
#include "bad.h"
