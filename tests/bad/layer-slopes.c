/* SPDX-License-Identifier: Apache-2.0
 *
 * dx is off by a thousandth.
 */
#define TN_REAL 64
#ifndef REPAIRED
#define PROBE_SCALE 1.001
#endif
#include "layer.h"
