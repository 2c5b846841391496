/* SPDX-License-Identifier: Apache-2.0
 *
 * A weak symbol that others see, as templates and inline functions of C++ make them.
 */
#define BAD_NAME "elf-leaked-symbols"
#include "bad.h"
#ifndef REPAIRED
__attribute__((weak, visibility("default")))
#endif
double
tenon_test_helper(double x);
double tenon_test_helper(double x) { return x + 1; }
