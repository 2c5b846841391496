/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples depend on the process.
 */
#include <unistd.h>

#ifndef REPAIRED
#define DATA_LOAD(memory) (memory)[0] = (float)getpid();
#endif
#include "data.h"
