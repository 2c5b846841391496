/* SPDX-License-Identifier: Apache-2.0
 *
 * malloc_count.h: counts every allocation of the process, plugins and libraries included. Linked into tests that need
 * it.
 */
#ifndef TENON_TESTS_MALLOC_COUNT_H
#define TENON_TESTS_MALLOC_COUNT_H

#include <stdint.h>

/* Allocations since the program began. */
int64_t malloc_count(void);

#endif
