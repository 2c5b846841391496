/* SPDX-License-Identifier: Apache-2.0
 *
 * Its note says of a slot with both signs that it has one.
 */
#ifdef REPAIRED
#define BAD_SLOTS(S) S(m, like, zero, signed, "sum")
#else
#define BAD_SLOTS(S) S(m, like, zero, nonnegative, "sum")
#endif
#include "rule.h"

BAD_RULE("update-nonnegative", .begin = begin, .update = step)
