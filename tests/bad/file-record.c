/* SPDX-License-Identifier: Apache-2.0
 *
 * Its record has a component that its notes do not know.
 */
#define BAD_NAME "file-record"
#ifndef REPAIRED
#define BAD_COUNT 2
#endif
#include "bad.h"
