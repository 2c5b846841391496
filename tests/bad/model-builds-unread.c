/* SPDX-License-Identifier: Apache-2.0
 *
 * A layer that nothing reads.
 */
#ifndef REPAIRED
#define MODEL_BETWEEN(builder, node) probe_linear(builder, "spare", "3", node);
#endif
#include "model.h"
