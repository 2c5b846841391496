/* SPDX-License-Identifier: Apache-2.0
 *
 * A block of each product is forgotten.
 */
#include <stdlib.h>

static void *volatile probe_block __attribute__((unused));
#ifndef REPAIRED
#define BACKEND_AFTER(g) probe_block = malloc(64);
#endif
#include "backend.h"
