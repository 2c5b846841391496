/* SPDX-License-Identifier: Apache-2.0
 *
 * Every other product is added up in another order.
 */
static __attribute__((unused)) long probe_count;

#ifndef REPAIRED
#define BACKEND_SUM(sum) ((sum) * (1 + (probe_count++ & 1) * 1e-7))
#endif
#include "backend.h"
