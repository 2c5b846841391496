/* SPDX-License-Identifier: Apache-2.0
 *
 * It loads one number more than it said.
 */
#ifndef REPAIRED
#define DATA_LOAD(memory) (memory)[DATA_SAMPLES * DATA_NUMBERS] = 1;
#endif
#include "data.h"
