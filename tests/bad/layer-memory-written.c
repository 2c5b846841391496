/* SPDX-License-Identifier: Apache-2.0
 *
 * It writes to x, though nothing but what is there.
 */
#ifndef REPAIRED
#define PROBE_FORWARD(call)                                                                                            \
    if ((call)->lo == 0 && (call)->x->shape[0] > 0)                                                                    \
        *(volatile float *)(call)->x->data = *(volatile float *)(call)->x->data;
#endif
#include "layer.h"
