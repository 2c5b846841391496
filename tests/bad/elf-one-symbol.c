/* SPDX-License-Identifier: Apache-2.0
 *
 * A helper that others see.
 */
#define BAD_NAME "elf-one-symbol"
#include "bad.h"
#ifndef REPAIRED
__attribute__((visibility("default")))
#endif
double
tenon_test_helper(double x);
double tenon_test_helper(double x) { return x + 1; }
