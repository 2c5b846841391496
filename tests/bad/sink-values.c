/* SPDX-License-Identifier: Apache-2.0
 *
 * Six digits are all it writes.
 */
#ifndef REPAIRED
#define SINK_NUMBER(line, value)                                                                                       \
    char digits[40];                                                                                                   \
    snprintf(digits, sizeof digits, "%.6e", value);                                                                    \
    tn_line_text(line, digits)
#endif
#include "sink.h"
