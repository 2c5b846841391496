/* SPDX-License-Identifier: Apache-2.0
 *
 * The width is another one each time.
 */
static __attribute__((unused)) int probe_count;

#ifndef REPAIRED
#define MODEL_WIDTH (probe_count++ % 2 ? "8" : "9")
#endif
#include "model.h"
