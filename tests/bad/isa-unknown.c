/* SPDX-License-Identifier: Apache-2.0
 *
 * It needs an instruction set that no processor has; its constructor must never run.
 */
#define BAD_NAME "isa-unknown"
#include <stdlib.h>

#include <tenon/sdk.h>
#undef TN_ISA_HERE_
#define TN_ISA_HERE_ 0x80000000u
#include "bad.h"

__attribute__((constructor)) static void at_load(void) { abort(); }
