/* SPDX-License-Identifier: Apache-2.0
 *
 * It reads the element behind the last one of x.
 */
static volatile float probe_reads;
#ifndef REPAIRED
#define PROBE_FORWARD(call) probe_reads = ((const float *)(call)->x->data)[(call)->x->shape[0] * (call)->x->shape[1]];
#endif
#include "layer.h"
