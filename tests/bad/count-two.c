/* SPDX-License-Identifier: Apache-2.0
 *
 * Its record holds two components, its notes one.
 */
#define BAD_NAME  "count-two"
#define BAD_COUNT 2
#include "bad.h"
