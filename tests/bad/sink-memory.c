/* SPDX-License-Identifier: Apache-2.0
 *
 * It looks at one field more than there are.
 */
#include <tenon/base.h>

static volatile double sink_seen __attribute__((unused));
#ifndef REPAIRED
#define SINK_BEFORE(record, line) sink_seen = (record)->fields[(record)->field_count].value;
#endif
#include "sink.h"
