/* SPDX-License-Identifier: Apache-2.0
 *
 * dx is off by a hundredth.
 */
#ifndef REPAIRED
#define PROBE_SCALE 1.01
#endif
#include "layer.h"
