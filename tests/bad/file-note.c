/* SPDX-License-Identifier: Apache-2.0
 *
 * A row's default lies outside of its range.
 */
#define BAD_NAME "file-note"
#ifdef REPAIRED
#define BAD_TEXT "{\"hyper\":[" TN_ROW_TEXT(real, lr, 1, "[0, 2]", "a step") "null],\"stage\":\"gradient\"}"
#else
#define BAD_TEXT "{\"hyper\":[" TN_ROW_TEXT(real, lr, 3, "[0, 2]", "a step") "null],\"stage\":\"gradient\"}"
#endif
#include "bad.h"
