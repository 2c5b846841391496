/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts every allocation of the process, plugins and libraries included. Linked into tests that need it.
 */
#ifndef TESTS_MALLOC_COUNT_H
#define TESTS_MALLOC_COUNT_H

#include <stdint.h>

/* Allocations since the program began. */
int64_t malloc_count(void);

#endif
