/* SPDX-License-Identifier: Apache-2.0
 *
 * Only the operation is compared.
 */
#ifndef REPAIRED
#define PROBE_AGREE(a, b) ((a)->operation == (b)->operation)
#endif
#include "collective.h"
