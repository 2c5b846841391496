/* SPDX-License-Identifier: Apache-2.0
 *
 * It says hello.
 */
#define BAD_NAME "load-output"
#include "bad.h"
#include <stdio.h>
#ifndef REPAIRED
__attribute__((constructor)) static void at_load(void) { printf("fast kernels loaded"); }
#endif
