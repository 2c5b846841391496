/* SPDX-License-Identifier: Apache-2.0
 *
 * The running mean counts frozen calls too.
 */
#ifndef REPAIRED
#define PROBE_COUNTS(call) ((call)->flags & TN_TRAIN)
#endif
#include "layer.h"
