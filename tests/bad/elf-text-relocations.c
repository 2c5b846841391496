/* SPDX-License-Identifier: Apache-2.0
 *
 * An address among the code, which the loader has to write there.
 */
#define BAD_NAME "elf-text-relocations"
#include "bad.h"
#ifndef REPAIRED
__asm__(".pushsection .text\n"
        ".balign 8\n"
        "tenon_test_here: .quad tenon_test_here\n"
        ".popsection\n");
#endif
