/* SPDX-License-Identifier: Apache-2.0
 *
 * It knows nothing of a refresh.
 */
#ifndef REPAIRED
#define PROBE_MOMENTUM(call) 0.1
#endif
#include "layer.h"
