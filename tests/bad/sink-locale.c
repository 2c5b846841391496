/* SPDX-License-Identifier: Apache-2.0
 *
 * Numbers are as printf has them here.
 */
#ifndef REPAIRED
#define SINK_NUMBER(line, value)                                                                                       \
    char digits[40];                                                                                                   \
    snprintf(digits, sizeof digits, "%.17g", value);                                                                   \
    tn_line_text(line, digits)
#endif
#include "sink.h"
