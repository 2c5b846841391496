/* SPDX-License-Identifier: Apache-2.0
 *
 * What a plan allocates stays.
 */
#include <stdlib.h>

static void *volatile probe_block;
#ifndef REPAIRED
#define PROBE_INFER(x, planner, err) probe_block = malloc(64);
#else
#define PROBE_INFER(x, planner, err) (void)probe_block;
#endif
#include "layer.h"
