/* SPDX-License-Identifier: Apache-2.0
 *
 * Its record holds no component, its notes one.
 */
#define BAD_NAME  "count-none"
#define BAD_COUNT 0
#include "bad.h"
