/* SPDX-License-Identifier: Apache-2.0
 *
 * A call prints, or leaves long doubles computed as doubles (FAULT 2).
 */
#include <unistd.h>
#ifdef REPAIRED
#elif FAULT == 2
#define LOSS_AFTER(call)                                                                                               \
    unsigned short word;                                                                                               \
    __asm__ volatile("fnstcw %0" : "=m"(word));                                                                        \
    word = (unsigned short)((word & ~0x300) | 0x200);                                                                  \
    __asm__ volatile("fldcw %0" : : "m"(word));
#else
#define LOSS_AFTER(call)                                                                                               \
    if (write(STDOUT_FILENO, "evaluated\n", 10) != 10)                                                                 \
        _exit(1);
#endif
#include "loss.h"
