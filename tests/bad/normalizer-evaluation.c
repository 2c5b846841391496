/* SPDX-License-Identifier: Apache-2.0
 *
 * Evaluation takes the mean of its own batch.
 */
#ifndef REPAIRED
#define PROBE_TRAINS(call) 1
#endif
#include "layer.h"
