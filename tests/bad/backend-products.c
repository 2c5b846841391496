/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums are cut to a few bits.
 */
#ifndef REPAIRED
#define BACKEND_SUM(sum) ((double)(int64_t)((sum)*1024) / 1024)
#endif
#include "backend.h"
