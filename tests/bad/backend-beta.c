/* SPDX-License-Identifier: Apache-2.0
 *
 * What is there times 0.
 */
#ifndef REPAIRED
#define BACKEND_BETA(beta, c) ((beta) * (c))
#endif
#include "backend.h"
