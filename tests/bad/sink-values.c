/* SPDX-License-Identifier: Apache-2.0
 *
 * What is no number is written as 0.
 */
#ifndef REPAIRED
#define SINK_NUMBER(line, value) tn_line_number(line, (value) - (value) == 0 ? (value) : 0)
#endif
#include "sink.h"
