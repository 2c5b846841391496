/* SPDX-License-Identifier: Apache-2.0
 *
 * It has nothing to say of itself.
 */
#ifndef REPAIRED
#define BACKEND_LINE ""
#endif
#include "backend.h"
