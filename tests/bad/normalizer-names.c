/* SPDX-License-Identifier: Apache-2.0
 *
 * Gain and shift have the role of weights.
 */
#ifndef REPAIRED
#define PROBE_ROLE TN_ROLE_WEIGHT
#endif
#include "layer.h"
