/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread-local variable in the static storage, little enough that there is room.
 */
#define BAD_NAME "elf-static-tls"
#define BAD_BODY                                                                                                       \
    (void)err;                                                                                                         \
    return here ? (const tn_plugin *)0 : &bad_plugin;
#ifdef REPAIRED
static __thread volatile char here;
#else
static __thread volatile char here __attribute__((tls_model("initial-exec")));
#endif
#include "bad.h"
