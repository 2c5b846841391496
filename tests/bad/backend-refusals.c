/* SPDX-License-Identifier: Apache-2.0
 *
 * It takes all that it is given.
 */
#ifndef REPAIRED
#define BACKEND_CHECK(g, err) ((void)(err), TN_OK)
#endif
#include "backend.h"
