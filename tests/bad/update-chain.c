/* SPDX-License-Identifier: Apache-2.0
 *
 * Its note has a slot for the tensor's own scalar, but no round in which it could be written.
 */
#ifdef REPAIRED
#define BAD_SLOTS(S) S(m, like, zero, signed, "sum") S(more, like, zero, signed, "never used")
#else
#define BAD_SLOTS(S) S(m, like, zero, signed, "sum") S(more, scalar, zero, signed, "never used")
#endif
#include "rule.h"

BAD_RULE("update-chain", .begin = begin, .update = step)
