/* SPDX-License-Identifier: Apache-2.0
 *
 * It rounds otherwise from its loading on, or from its entry on (FAULT 2), or computes long doubles as doubles (FAULT
 * 3).
 */
#define BAD_NAME "load-float-modes"
#include <fenv.h>
#if FAULT == 3 && defined __x86_64__
static void spoil(void)
{
    unsigned short word;
    __asm__ volatile("fnstcw %0" : "=m"(word));
    word = (unsigned short)((word & ~0x300) | 0x200);
    __asm__ volatile("fldcw %0" : : "m"(word));
}
#else
static void spoil(void) { fesetround(FE_DOWNWARD); }
#endif
#ifdef REPAIRED
static __attribute__((unused)) void (*const spoils)(void) = spoil;
#elif FAULT == 2
#define BAD_BODY                                                                                                       \
    (void)err;                                                                                                         \
    spoil();                                                                                                           \
    return &bad_plugin;
#else
__attribute__((constructor)) static void at_load(void) { spoil(); }
#endif
#include "bad.h"
