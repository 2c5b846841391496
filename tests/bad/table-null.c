/* SPDX-License-Identifier: Apache-2.0
 *
 * Its component has no table.
 */
#define BAD_NAME  "table-null"
#define BAD_TABLE (const void *)0
#include "bad.h"
