/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks for more of the static thread storage than a process has left once it runs.
 */
#define BAD_NAME "static-tls"
#define BAD_BODY                                                                                                       \
    (void)err;                                                                                                         \
    return room[0] ? (const tn_plugin *)0 : &bad_plugin;
static __thread volatile char room[65536] __attribute__((tls_model("initial-exec")));
#include "bad.h"
