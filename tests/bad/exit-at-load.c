/* SPDX-License-Identifier: Apache-2.0
 *
 * Its constructor ends the process that maps it, and calls that success.
 */
#define BAD_NAME "exit-at-load"
#include <stdlib.h>

#include "bad.h"

__attribute__((constructor)) static void at_load(void) { exit(0); }
