/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes where nothing is while it is being loaded.
 */
#define BAD_NAME "segv-at-load"
#include "bad.h"

static int *volatile nowhere;
__attribute__((constructor)) static void at_load(void) { *nowhere = 1; }
