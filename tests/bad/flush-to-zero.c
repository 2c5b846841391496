/* SPDX-License-Identifier: Apache-2.0
 *
 * It turns on flush-to-zero when it is mapped, as -ffast-math does, and once more in its entry.
 */
#define BAD_NAME "flush-to-zero"
#if defined __x86_64__
#include <xmmintrin.h>
#define SPOIL _mm_setcsr(_mm_getcsr() | 0x8040u);
#else
#define SPOIL
#endif
#define BAD_BODY                                                                                                       \
    (void)err;                                                                                                         \
    SPOIL return &bad_plugin;
#include "bad.h"

__attribute__((constructor)) static void at_load(void) { SPOIL }
