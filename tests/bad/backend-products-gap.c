/* SPDX-License-Identifier: Apache-2.0
 *
 * What lies between the rows of c is cleared.
 */
#ifndef REPAIRED
#define BACKEND_AFTER(g)                                                                                               \
    if ((g)->m > 1 && (g)->ldc > (g)->n)                                                                               \
        memset((char *)(g)->c + (g)->n * ((g)->dtype.bits / 8), 0, (g)->dtype.bits / 8);
#endif
#include "backend.h"
