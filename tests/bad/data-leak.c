/* SPDX-License-Identifier: Apache-2.0
 *
 * A file stays open.
 */
#include <stdio.h>

#ifndef REPAIRED
#define DATA_DESCRIBE fopen("/dev/null", "r");
#endif
#include "data.h"
