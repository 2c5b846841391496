/* SPDX-License-Identifier: Apache-2.0
 *
 * Its constructor ends the process that maps it.
 */
#define BAD_NAME "abort-at-load"
#include <stdlib.h>

#include "bad.h"

__attribute__((constructor)) static void at_load(void) { abort(); }
