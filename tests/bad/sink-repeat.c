/* SPDX-License-Identifier: Apache-2.0
 *
 * It numbers its records.
 */
#ifndef REPAIRED
#define SINK_BEFORE(record, line)                                                                                      \
    static int64_t number;                                                                                             \
    tn_line_integer(line, number++);
#endif
#include "sink.h"
