/* SPDX-License-Identifier: Apache-2.0
 *
 * Its file is not in the run's folder.
 */
#ifndef REPAIRED
#define SINK_FILE "/tmp/probe.txt"
#endif
#include "sink.h"
