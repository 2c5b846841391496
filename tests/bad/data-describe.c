/* SPDX-License-Identifier: Apache-2.0
 *
 * Any split is the same.
 */
#ifndef REPAIRED
#define DATA_SPLIT(split) 1
#endif
#include "data.h"
